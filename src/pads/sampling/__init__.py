"""Which triplets to learn from: distances, bins, rules, and the one draw."""

from pads.sampling.bins import BinDistribution, bin_distribution
from pads.sampling.distances import pairwise_distances
from pads.sampling.drawn import DrawnTriplets, divergence_error
from pads.sampling.rules import NEGATIVE_RULES, BinRule, NegativeRule
from pads.sampling.triplets import Triplets, draw_triplets, triplet_statistics

__all__ = [
    "NEGATIVE_RULES",
    "BinDistribution",
    "BinRule",
    "DrawnTriplets",
    "NegativeRule",
    "Triplets",
    "bin_distribution",
    "divergence_error",
    "draw_triplets",
    "pairwise_distances",
    "triplet_statistics",
]
