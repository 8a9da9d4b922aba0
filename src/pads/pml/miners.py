"""Miners of pytorch-metric-learning in the place of a rule: they form the tuples themselves, and nothing adapts.

Dimensions: B batch, D embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pads.config import Part, call, lookup
from pads.pml.names import maker, own_randomness, their_parts
from pads.pml.tuples import Pairs, Tuples
from pads.sampling.triplets import Triplets

NOT_HERE = ("pml:EmbeddingsAlreadyPackagedAsTriplets",)  # looks at the order of the batch, not at its labels


class Mined:
    """A miner in the place of a rule: it gives tuples, not weights; how many, the batch decides."""

    def __init__(self, miner: nn.Module) -> None:
        self.miner = miner

    def mine(self, embeddings_BD: Tensor, labels_B: Tensor, generator: torch.Generator | None = None) -> Tuples:
        """Return triplets or pairs, as the miner forms them."""
        seed = torch.randint(2**62, (), generator=generator, device=generator.device if generator else None)
        with own_randomness(int(seed.item()), embeddings_BD.device):
            indices = self.miner(embeddings_BD.detach(), labels_B)
        return Triplets(*indices) if len(indices) == 3 else Pairs(*indices)


def mine_tuples(
    embeddings_BD: Tensor, labels_B: Tensor, rule: Mined, *, generator: torch.Generator | None = None
) -> Tuples:
    """Mine in the place of `pads.draw_triplets`; the options of the draw mean nothing to a miner."""
    return rule.mine(embeddings_BD, labels_B, generator)


def build_miner(part: Part) -> Mined:
    """Return the miner `pml:NAME` of theirs; its options are the miner's."""
    kinds = {name: kind for name, kind in their_parts("miners").items() if name not in NOT_HERE}
    make = maker(lookup(kinds, part.name, "curriculum"), "curriculum.options")
    return Mined(call(make, part.options, "curriculum.options"))
