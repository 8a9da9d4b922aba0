"""Losses and miners of pytorch-metric-learning by name: `pml:MultiSimilarityLoss`, `pml:DistanceWeightedMiner`."""
