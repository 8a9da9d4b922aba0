"""Features that are computed once: a backbone that does not learn gives the same ones for an image in every epoch.

`network.freeze=backbone` trains the head on them. Whatever trains or measures a network sees them in place of the images:
a batch of features_BF goes straight to the head.

Dimensions: B batch, b the own part of it, K crops, N images, F features.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pads.config import Config
from pads.data.roles import View, Views
from pads.evaluate import embed, evaluation_mode
from pads.networks import EmbeddingNetwork, PooledFeatures
from pads.runs import RunFolder
from pads.runtime.team import ALONE, Team

ROLES = ("train", "reward", "selection", "test")


def freeze_views(config: Config, run: RunFolder, network: EmbeddingNetwork, views: Views, team: Team = ALONE) -> Views:
    """Return the images as they are, or their features where the backbone is frozen.

    The features are kept in the run folder, so that a run that goes on has the same bits.
    """
    if config.network.freeze == "none":
        return views
    kept = team.lead(run.load_features)
    if kept is None or any(len(kept[role]) != len(getattr(views, role)) for role in ROLES):
        pooled = pool_roles(config, network, views, team)
        kept = team.lead(lambda: pooled)
        run.save_features(kept)
    train, reward, selection, test = (
        show_features(getattr(views, role), kept[role].to(views.device)) for role in ROLES
    )
    return replace(views, train=train, reward=reward, selection=selection, test=test, redraw=None, resample_every=None)


def pool_roles(config: Config, network: EmbeddingNetwork, views: Views, team: Team) -> dict[str, Tensor]:
    """Return features_NKF of each role: those of the evaluation crop, and of augmented crops of the training images."""
    pooled = {role: pool_features(network, getattr(views, role), team)[0][:, None] for role in ROLES}
    generator = torch.Generator(views.device).manual_seed(config.seed)
    more = [pool_augmented(network, views.train, generator, team) for _ in range(config.network.crops)]
    return {**pooled, "train": torch.cat([pooled["train"], *more], dim=1)}


def pool_features(network: EmbeddingNetwork, images: View, team: Team = ALONE) -> tuple[Tensor, Tensor]:
    """Return the pooled features of the evaluation crops and their labels; of several processes, the first has them all."""
    if not len(images):
        return torch.empty(0, network.embedding.in_features), torch.empty(0, dtype=torch.int64)
    features_NF, labels_N = team.on_first(*embed(PooledFeatures(network), images.batches(team)))
    return features_NF.cpu(), labels_N.cpu()


def pool_augmented(network: EmbeddingNetwork, images: View, generator: torch.Generator, team: Team) -> Tensor:
    """Return features_N1F of one random crop of each image, cut as for training."""
    own = team.share(len(images))
    batches = torch.arange(len(images), device=images.store.device).split(128)
    pooled = PooledFeatures(network)
    rows = []
    with evaluation_mode(pooled), torch.no_grad():
        for index_B in batches:  # every process draws all crops, so that they are those of a single one
            ((pixels_BCHW, sizes_B2, _),) = images.read_batches(index_B[None])
            crops_BCHW = images.preprocessing.for_training(pixels_BCHW, sizes_B2, generator)
            is_own_B = (index_B >= own.start) & (index_B < own.stop)
            if is_own_B.any():
                rows.append(pooled(crops_BCHW[is_own_B]))
    features = torch.cat(rows) if rows else torch.empty(0, network.embedding.in_features, device=images.store.device)
    return team.on_first(features)[0].cpu()[:, None]


# -- in place of images ------------------------------------------------------------------------------------------------


def show_features(view: View, features_NKF: Tensor) -> View:
    """Return the view with its features in place of its images."""
    shown = copy.copy(view)
    shown.store = FeatureStore(features_NKF, view.labels_N, view.store.sizes_N2[view.indices_N])  # type: ignore[assignment]
    shown.indices_N = torch.arange(len(view), device=features_NKF.device)
    shown.preprocessing = FeatureChoice()  # type: ignore[assignment]
    shown.kept_crops = {}
    return shown


@dataclass(frozen=True)
class FeatureStore:
    """Stands where a store of images does: the features of the evaluation crop come first, those of augmented ones after."""

    features_NKF: Tensor
    labels_N: Tensor
    sizes_N2: Tensor

    @property
    def device(self) -> torch.device:
        return self.features_NKF.device

    def batches(self, indices: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the features of each batch, and the sizes of the images that they came from."""
        for index_B in indices:
            yield self.features_NKF[index_B], self.sizes_N2[index_B]


@dataclass(frozen=True)
class FeatureChoice:
    """Stands where the preprocessing of images does."""

    image_size: int = 0
    """Features take no room beside the store."""

    def for_training(
        self, features_bKF: Tensor, sizes_B2: Tensor, generator: torch.Generator, own: slice = slice(None)
    ) -> Tensor:
        """Pick one crop of each image at random; drawn for the whole batch, of which the features are the own part."""
        num_crops = features_bKF.shape[1]
        if num_crops == 1:
            return features_bKF[:, 0]
        picked_B = torch.randint(num_crops, (len(sizes_B2),), device=sizes_B2.device, generator=generator)
        return features_bKF[torch.arange(len(features_bKF), device=sizes_B2.device), picked_B[own]]

    def cut_centres(self, features_BKF: Tensor, sizes_B2: Tensor) -> Tensor:
        """Take the evaluation crop."""
        return features_BKF[:, 0]

    def scale(self, features_BF: Tensor) -> Tensor:
        """Leave features as they are."""
        return features_BF
