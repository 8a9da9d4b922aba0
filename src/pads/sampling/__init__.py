"""Which triplets to learn from: distances, bins, rules, and the one draw."""

from pads.sampling.bins import BinDistribution, bin_distribution
from pads.sampling.drawn import DrawnTriplets, divergence_error
from pads.sampling.rules import NEGATIVE_RULES
from pads.sampling.triplets import Triplets, draw_triplets

__all__ = [
    "NEGATIVE_RULES",
    "BinDistribution",
    "DrawnTriplets",
    "Triplets",
    "bin_distribution",
    "divergence_error",
    "draw_triplets",
]
