"""What a network knows before the first step: its pooled features, and a head that is made from them.

Dimensions: N images, F features.
"""

from __future__ import annotations

from torch import Tensor

from pads.config import Config
from pads.data.roles import View
from pads.evaluate import embed
from pads.networks import EmbeddingNetwork, Head, PooledFeatures, make_head
from pads.runs import RunFolder
from pads.runtime.team import ALONE, Team


def start_head(
    config: Config, run: RunFolder, network: EmbeddingNetwork, train: View, team: Team = ALONE
) -> Head | None:
    """Put the head in place that the config asks for, made from the training images alone, and return it; None if random.

    It is made once and kept in the run folder, so that a run that goes on has the same bits.
    """
    if config.network.head == "random":
        return None
    kept = team.lead(run.load_start)
    if kept is not None:
        head = Head(*kept)
    else:
        features_NF, labels_N = pool_features(network, train, team)
        options = config.network
        head = team.lead(
            lambda: to_float32(make_head(options.head, features_NF, labels_N, options.embedding_dim, options.shrinkage))
        )
        run.save_start(*head)
    with run.fitting():
        network.start_from(head)
    return head


def pool_features(network: EmbeddingNetwork, images: View, team: Team = ALONE) -> tuple[Tensor, Tensor]:
    """Return the pooled features of the evaluation crops and their labels; of several processes, the first has them all."""
    features_NF, labels_N = team.on_first(*embed(PooledFeatures(network), images.batches(team)))
    images.kept_crops.clear()  # those of the training images are not looked at again
    return features_NF.cpu(), labels_N.cpu()


def to_float32(head: Head | None) -> Head:
    """Round a head to the precision that a network has it in."""
    assert head is not None
    return Head(head.weight_DF.float(), head.bias_D.float())
