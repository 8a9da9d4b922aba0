"""Which triplets to learn from: distances, bins, rules, and the one draw."""

from pads.sampling.bins import BinDistribution, bin_distribution
from pads.sampling.distances import pairwise_distances
from pads.sampling.drawn import DrawnTriplets, diverged
from pads.sampling.rules import NEGATIVE_RULES, BinRule, NegativeRule, Rule
from pads.sampling.triplets import Pairs, Triplets, Tuples, draw_triplets, draw_tuples, triplet_statistics

__all__ = [
    "NEGATIVE_RULES",
    "BinDistribution",
    "BinRule",
    "DrawnTriplets",
    "NegativeRule",
    "Pairs",
    "Rule",
    "Triplets",
    "Tuples",
    "bin_distribution",
    "diverged",
    "draw_triplets",
    "draw_tuples",
    "pairwise_distances",
    "triplet_statistics",
]
