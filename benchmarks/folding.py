"""What folding frozen batch norms is worth (networks/fused.py): network and Adam alone, with it and without, in one run.

    python benchmarks/folding.py [--device cuda]

On a CPU nothing is folded, and the two are the same.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from pads.bench import synthetic_rate
from pads.build import pick_device
from pads.networks import fused
from pads.recipes import RECIPES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--backbone", default="resnet50-he")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    config = RECIPES["cub200-margin-udist"]()
    config = replace(config, network=replace(config.network, backbone=options.backbone))
    device = pick_device(options.device)
    folded = synthetic_rate(config, device, options.steps)
    torch.compiler.reset()  # what is compiled already would be taken again
    fused.folds = lambda maps, norm: False
    plain = synthetic_rate(config, device, options.steps)
    print(f"as written {plain:,.0f} images/s, folded {folded:,.0f} images/s: {folded / plain:.2f}x")


if __name__ == "__main__":
    main()
