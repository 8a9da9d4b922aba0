"""What the figures of a network are worth, in plain words: against what one has without it, and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pads.config import Network
from pads.data.benchmark import count
from pads.evaluate import BASELINES
from pads.networks.weights import DOWNLOADED

FEW = 0.01
"""Half of an interval; beyond it, nobody is left to guess how far a figure can be trusted."""
NAMES = {"pretrained features": "the pretrained features", "untrained": "the untrained network"}
USE_AS_IS = "use those as they are, with `pads index backbone:{backbone} IMAGES --out INDEX`"
ADVICE = {
    "pretrained features": "try more classes, or more epochs with --set num_epochs=N",
    "raw pixels": 'try a pretrained network, with pip install "pads-dml[pretrained]"',
    "untrained": "try more classes, or another network",
}


def judge(compared: Mapping[str, Any], own: str = "trained", backbone: str = "NAME") -> list[str]:
    """Say in sentences what `compare_rows` found: the gain over the first baseline, each other that is not beaten, the spread.

    backbone: the network whose pretrained features these are.
    """
    gains = compared.get("gain_over", {})
    known = [name for name in BASELINES if "map@r" in gains.get(name, {})]
    if not known:
        return []
    not_beaten = [name for name in known[1:] if gains[name]["map@r"][0] < 0]
    first = describe_gain(known[0], compared, advise(known[0], own, backbone))
    return [first, *(describe_gain(name, compared) for name in not_beaten), *describe_spread(compared, own)]


def describe_gain(name: str, compared: Mapping[str, Any], advice: Mapping[str, str] | None = None) -> str:
    """Say whether a network is better than a baseline: yes, no, or not as far as these classes tell."""
    mean, low, high = (100 * value for value in compared["gain_over"][name]["map@r"])
    who, where = NAMES.get(name, name), count_images(compared)
    if low > 0:
        return f"Better than {who} by {mean:.1f} [{low:.1f}, {high:.1f}] points of MAP@R, on {where}."
    if high < 0:
        worse = f"Worse than {who} by {-mean:.1f} [{-high:.1f}, {-low:.1f}] points of MAP@R, on {where}"
        return f"{worse}: {advice['worse']}." if advice else f"{worse}."
    level = f"No better than {who}, as far as {where} tell: {mean:+.1f} [{low:+.1f}, {high:+.1f}] points of MAP@R"
    return f"{level}; {advice['level']}." if advice else f"{level}."


def advise(name: str, own: str, backbone: str) -> dict[str, str]:
    """What may help where a baseline is not beaten, or is better."""
    if own == "pretrained features":  # nothing was trained
        return dict.fromkeys(("level", "worse"), "try another network, such as backbone:timm:NAME")
    level = ADVICE[name]
    return {"level": level, "worse": USE_AS_IS.format(backbone=backbone) if name == "pretrained features" else level}


def describe_spread(compared: Mapping[str, Any], own: str) -> list[str]:
    """Say how far the figures themselves can be trusted, where that is not far."""
    # where every query fares alike, nothing varies that could tell how far a figure can be trusted
    halves = {name: (high - low) / 2 for name, (_, low, high) in compared[own].items() if high > low}
    if max(halves.values(), default=0.0) < FEW:
        return []
    heads = {"recall@1": "R@1", "map@r": "MAP@R"}
    known = " and ".join(f"{heads[name]} to ± {100 * half:.1f}" for name, half in halves.items())
    return [f"{count_images(compared)} give {known} points (95 % intervals over classes)."]


def name_backbone(network: Network) -> str:
    """Return what stands behind `backbone:` for the pretrained network that a run started from."""
    return network.backbone if network.weights in (None, *DOWNLOADED) else f"{network.backbone}=FILE"


def count_images(compared: Mapping[str, Any]) -> str:
    images, classes = count(compared["queries"], "image", "images"), count(compared["classes"], "class", "classes")
    return f"{images} of {classes}"
