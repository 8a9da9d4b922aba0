"""What a network knows before the first step: heads that are made from the pooled features of the training images."""

from __future__ import annotations

from torch import Tensor

from pads.config import Config
from pads.data.roles import View
from pads.features import pool_features
from pads.networks import EmbeddingNetwork, Head, make_head
from pads.runs import RunFolder
from pads.runtime.team import ALONE, Team


def start_heads(
    config: Config, run: RunFolder, network: EmbeddingNetwork, train: View, team: Team = ALONE
) -> dict[str, Head]:
    """Return the heads that a run can start from by name, and put the one that the config asks for in place; {} if random.

    They are the plain features and the chosen closed form, made from the training images alone. The run folder keeps them,
    so that a run that goes on has the same bits.
    """
    options = config.network
    if options.head == "random":
        return {}
    kept = team.lead(run.load_start)
    if kept is not None:
        heads = {name: Head(*head) for name, head in kept.items()}
    else:
        features_NF, labels_N = pool_features(network, train, team)
        train.kept_crops.clear()  # they are not looked at again
        heads = team.lead(lambda: make_heads(config, features_NF, labels_N))
        run.save_start(heads)
    with run.fitting():
        for name in (*heads, options.head):  # each must fit, and the last one stays
            network.start_from(heads[name])
    return heads


def make_heads(config: Config, features_NF: Tensor, labels_N: Tensor) -> dict[str, Head]:
    """Make the heads, rounded to the precision of a network."""
    options = config.network
    made = {}
    for name in dict.fromkeys(("plain", options.head)):
        head = make_head(name, features_NF, labels_N, options.embedding_dim, options.shrinkage)
        assert head is not None
        made[name] = Head(head.weight_DF.float(), head.bias_D.float())
    return made
