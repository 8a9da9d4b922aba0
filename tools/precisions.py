"""What rounding costs: the test figures of one trained run in float32, TF32 and bfloat16, compiled where the run was.

    python tools/precisions.py runs/cub200-margin-pads-0 [--data STORE] [--device cuda]

The weights are those of the selected epoch and stay the same. Folding batch norms into convolutions (networks/fused.py) is
part of the compiled bfloat16 row. Asked for are 0.3 points of R@1 at most.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pads.data.views import load_views
from pads.errors import UserError
from pads.evaluate import evaluate
from pads.parts import build_network, pick_device
from pads.runs import RunFolder
from pads.speed import PRECISIONS, float32_rounding
from pads.train import nobody

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", help="where the images are now, if not where the run found them")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    try:
        found = measured(options.run, options.data, options.device)
    except UserError as error:
        raise SystemExit(f"precisions: {error}") from error
    for precision, figures in found.items():
        print(f"{precision:9}", "  ".join(f"{name} {100 * value:.2f}" for name, value in figures.items()), flush=True)


def measured(run: Path, data: str | None = None, device: str = "auto") -> Mapping[str, Mapping[str, Any]]:
    """The test figures by precision."""
    folder = RunFolder.open(run)
    config = folder.config
    config = replace(config, device=device, data=replace(config.data, root=data or config.data.root))
    views = load_views(config, pick_device(device), nobody)
    weights = folder.load_network("selected")
    figures = {}
    for precision in PRECISIONS:
        network = build_network(replace(config, precision=precision))
        network.load_state_dict(weights)
        network.to(views.device)
        if config.compiled and views.device.type == "cuda":
            network.compile(dynamic=False)
        with float32_rounding(precision):
            figures[precision] = evaluate(network, views.test, METRICS)
    return figures


if __name__ == "__main__":
    main()
