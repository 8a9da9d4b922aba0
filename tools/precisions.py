"""What rounding costs: the test figures of trained runs in float32, TF32 and bfloat16, compiled where the runs were.

    python tools/precisions.py runs/cub200-margin-pads-0 [runs/...] [--data STORE] [--device cuda]

The weights are those of the selected epoch and stay the same. Folding batch norms into convolutions (networks/fused.py) is
part of the compiled bfloat16 row. Asked for are 0.3 points of R@1 at most. Of several runs, the mean difference to float32
and its spread are printed too: a few images at the edge change sides in every run, and one run cannot tell that from a bias.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev

from pads.build import build_network, pick_device
from pads.config import Config
from pads.data.loading import load_views
from pads.errors import UserError
from pads.evaluate import evaluate
from pads.runs import RunFolder
from pads.runtime.precision import PRECISIONS, float32_rounding
from pads.train import nobody

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", help="where the images are now, if not where the runs found them")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    found: dict[Path, dict[str, Figures]] = {}
    try:
        for run, precision, figures in measure_runs(options.runs, options.data, options.device):
            found.setdefault(run, {})[precision] = figures
            values = "  ".join(f"{name} {100 * value:.2f}" for name, value in figures.items())
            print(f"{run.name:28} {precision:9} {values}", flush=True)
    except UserError as error:
        raise SystemExit(f"precisions: {error}") from error
    if len(found) > 1:
        for precision in PRECISIONS[1:]:
            print(
                precision,
                "less float32:",
                spread([by[precision] for by in found.values()], [by["float32"] for by in found.values()]),
            )


def measure_runs(
    runs: Sequence[Path], data: str | None = None, device: str = "auto"
) -> Iterator[tuple[Path, str, Figures]]:
    """Yield run, precision and test figures; runs in a row that share images and network are compiled once."""
    folders = [RunFolder.open(run) for run in runs]
    for _, alike in groupby(folders, key=lambda folder: (folder.config.data, folder.config.network)):
        mine = list(alike)
        config = mine[0].config
        config = replace(config, device=device, data=replace(config.data, root=data or config.data.root))
        yield from measure_precisions(mine, config)


def measure_precisions(folders: Sequence[RunFolder], config: Config) -> Iterator[tuple[Path, str, Figures]]:
    views = load_views(config, pick_device(config.device), nobody)
    for precision in PRECISIONS:
        network = build_network(replace(config, precision=precision)).to(views.device)
        if config.compiled and views.device.type == "cuda":
            network.compile(dynamic=False)
        for folder in folders:
            network.load_state_dict(folder.load_network("selected"))
            with float32_rounding(precision):
                yield folder.path, precision, evaluate(network, views.test, METRICS)


def spread(figures: Sequence[Figures], exact: Sequence[Figures]) -> str:
    """Mean ± standard deviation of the differences in points, and the largest."""
    texts = []
    for name in METRICS:
        points = [100 * (mine[name] - other[name]) for mine, other in zip(figures, exact, strict=True)]
        texts.append(f"{name} {fmean(points):+.2f} ± {stdev(points):.2f} (at most {max(map(abs, points)):.2f})")
    return ", ".join(texts)


if __name__ == "__main__":
    main()
