"""What a study costs: runs, and hours on one device, estimated before anything is trained."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from rich.console import Console

from pads.config import Config
from pads.curricula import is_adaptive
from pads.data.benchmark import count
from pads.display import make_console, say
from pads.studies.arms import Study, study_base
from pads.studies.tables import STUDIES

SIZES = {"cub200": (5864, 5924), "cars196": (8054, 8131), "sop": (59551, 60502), "emoji": (4552, 4543)}
"""Training and test images."""
WIDEST = 80
"""Letters of a line."""
FORWARD_SHARE = 1 / 3
"""Of a training step: what it takes to embed an image."""


class Rates(NamedTuple):
    """Images per second of training."""

    static: float
    adaptive: float
    words: str


RATES = {
    "small": Rates(2300.0, 1900.0, "one thread of a cloud CPU, 16-pixel emoji"),
    "resnet50": Rates(8494.1, 7777.8, "one NVIDIA H200 in bfloat16, benchmarks/h200.json"),
    "inception-bn": Rates(8494.1, 7777.8, "one NVIDIA H200 in bfloat16, as if it were ResNet-50"),
}
"""By backbone."""


def run_seconds(config: Config, rates: Rates) -> float | None:
    """Of one run: its training and what is measured on the test split; None for data of which the size is not known."""
    if config.data.name not in SIZES:
        return None
    num_train, num_test = SIZES[config.data.name]
    train = num_train * (1 - config.data.selection_share) * (1 - config.data.reward_share)
    rate = rates.adaptive if config.adapt_every and is_adaptive(config) else rates.static
    evaluations = 4 + (config.num_epochs // config.test_curve_every if config.test_curve_every else 0)
    return config.num_epochs * train / rate + evaluations * num_test * FORWARD_SHARE / rates.static


def study_seconds(study: Study, base: str, num_seeds: int) -> tuple[float | None, str]:
    """Of all arms and seeds on one device, and where the figures are from."""
    configs = [arm.change(study_base(study, base)) for arm in study.arms]
    rates = RATES.get(configs[0].network.backbone, RATES["resnet50"])
    seconds = [run_seconds(config, rates) for config in configs]
    known = [each for each in seconds if each is not None]
    return (num_seeds * sum(known) if len(known) == len(seconds) else None), rates.words


def print_costs(base: str | None, num_seeds: int, console: Console | None = None) -> None:
    """`pads study --list`: what each study is, and what it costs on its own data set or on the one that is named."""
    console = console or make_console()
    sources: dict[str, None] = {}
    width = max(map(len, STUDIES))
    for name, study in STUDIES.items():
        on, num_runs = base or study.bases[0], len(study.arms) * num_seeds
        seconds, words = study_seconds(study, on, num_seeds)
        if seconds is not None:
            sources[words] = None
        cost = "time unknown" if seconds is None else readable(seconds)
        runs = f"{count(len(study.arms), 'arm', 'arms')}, {count(num_runs, 'run', 'runs')} on {on}, {cost}"
        print_study(f"{name:{width}}  {runs}", study.title, console)
    claims = "every number and order in the text, held against the other studies' runs"
    print_study(f"{'claims':{width}}  no runs of its own", claims, console)
    say(
        f"With {num_seeds} seeds, one run at a time, estimated from: {'; '.join(sources) or 'nothing'}.", console, "dim"
    )


def print_study(headline: str, title: str, console: Console) -> None:
    """What a study costs and, below it, what it compares: no wider than a terminal, also in a file."""
    say(headline, console, "bold")
    say(textwrap.fill(title, min(console.width, WIDEST), initial_indent="    ", subsequent_indent="    "), console)


def readable(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
