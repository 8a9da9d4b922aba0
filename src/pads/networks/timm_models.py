"""Any model of timm as a backbone: `network.backbone=timm:NAME`, with the input that it was made for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pads.config import unknown
from pads.errors import UserError, missing_extra

PREFIX = "timm:"


@dataclass(frozen=True)
class ModelInput:
    """What a model was trained to see."""

    image_size: int
    crop_share: float
    """The side of the centre crop over that of the picture that it is cut from."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    is_fixed: bool
    """Built for one size of image."""


def is_timm(backbone: str) -> bool:
    return backbone.startswith(PREFIX)


def timm_backbone(backbone: str, image_size: int | None = None) -> nn.Module:
    """The model with random weights and without its classifier: images in, pooled features out."""
    timm, made_for = timm_module(), model_input(backbone)
    size = {"img_size": image_size} if made_for.is_fixed and image_size not in (None, made_for.image_size) else {}
    try:
        return timm.create_model(backbone.removeprefix(PREFIX), pretrained=False, num_classes=0, **size)
    except (TypeError, ValueError, AssertionError) as error:
        if not size:
            raise
        raise UserError(
            f"{backbone} cannot be built for images of {image_size} pixels ({error}): it was made for "
            f"{made_for.image_size}, so leave out data.image_size, or take another model."
        ) from error


def model_input(backbone: str) -> ModelInput:
    about = find_timm_record(backbone)
    return ModelInput(
        image_size=about.input_size[-1],
        crop_share=about.crop_pct,
        mean=tuple(about.mean),
        std=tuple(about.std),
        is_fixed=about.fixed_input_size,
    )


def find_timm_record(backbone: str) -> Any:
    """Find timm's own record of the model (`PretrainedCfg`): its input, and where its weights are."""
    timm, name = timm_module(), backbone.removeprefix(PREFIX)
    try:
        about = timm.get_pretrained_cfg(name)
    except RuntimeError:  # a model that it has, with a tag that it has not
        about = None
    if about is None:
        raise unknown("timm model", name, [*timm.list_models(pretrained=True), *timm.list_models()])
    return about


def timm_module() -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        if "timm" not in str(error):
            raise UserError(f"timm is installed but cannot be imported ({error}): mend that first.") from error
        raise missing_extra("timm", "timm") from error
    except RuntimeError as error:  # a torchvision that was built for another torch
        raise UserError(
            f"timm is installed but cannot be imported ({error}): install a torchvision that fits this torch."
        ) from error


# -- weights -----------------------------------------------------------------------------------------------------------


def download_timm_weights(backbone: str) -> Path:
    """Return the file of weights in the cache of the Hub; download it if it is not there yet."""
    about, name = find_timm_record(backbone), backbone.removeprefix(PREFIX)
    if not about.hf_hub_id:
        raise UserError(f"timm has no weights on the Hub for {name}: give a file with --weights FILE.")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise missing_extra("huggingface_hub", "hub") from error
    try:
        return Path(hf_hub_download(about.hf_hub_id, about.hf_hub_filename or "model.safetensors"))
    except Exception as error:  # the Hub's client has a dozen ways to say that it could not reach it
        raise UserError(
            f"the weights of {name} could not be fetched from {about.hf_hub_id} on the Hub ({first_line(error)}): get "
            "the file where there is a network, and give it with --weights FILE."
        ) from error


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().partition("\n")[0].rstrip(".")


def convert_tensors(backbone: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert a file's tensors to what a timm model wants: without the classifier, embeddings of positions at its own size."""
    heads = classifiers(backbone)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(heads)}
    convert = getattr(sys.modules.get(type(backbone).__module__), "checkpoint_filter_fn", None)
    return dict(convert(kept, backbone)) if convert else kept


def classifiers(backbone: nn.Module) -> tuple[str, ...]:
    """The names of the classifier's tensors begin with one of these."""
    about: Any = getattr(backbone, "pretrained_cfg", None) or {}
    names = about.get("classifier") or ()
    return tuple(f"{name}." for name in ((names,) if isinstance(names, str) else names))
