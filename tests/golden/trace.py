"""Prints every loss and every adjustment of a short emoji run, bit for bit. `make golden` writes them down anew.

The kernels are held to the instructions that every x86-64 processor has, so that machines agree.
"""

import os
import sys
import tempfile

PINNED = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
}

SETTINGS = {
    "emoji-pads": ["curriculum.options.agent_options.old_policy_every=2"],
    "emoji-pads-code": [],
    "emoji-udist": [],
    "emoji-semihard": [],
}
SHORT = [
    "num_epochs=1",
    "data.classes_per_batch=12",
    "data.reward_share=0.05",
    "data.selection_share=0.05",
    "adapt_every=5",
    "log_every=1",
    "network.embedding_dim=32",
]


def main() -> None:
    import json
    from dataclasses import replace
    from pathlib import Path

    from pads.config import with_settings
    from pads.recipes import RECIPES
    from pads.train import train

    class Enough(Exception):
        """The final figures on thousands of test images are no part of the trace."""

    def watch(kind, step, values):
        if kind == "training":
            print(recipe, step, values["loss"].hex(), flush=True)
        if kind == "adaptation":
            actions = "".join(map(str, values["actions"]))
            print(recipe, step, "reward", values["reward"], "actions", actions, flush=True)
        if kind == "step" and step == 17:
            raise Enough

    for recipe, settings in SETTINGS.items():
        config = with_settings(replace(RECIPES[recipe](), recipe=recipe), [*SHORT, *settings])
        with tempfile.TemporaryDirectory() as folder:
            try:
                train(config, Path(folder) / "run", watch=watch)
            except Enough:
                continue
            raise SystemExit(json.dumps({"the run ended before step 17": recipe}))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in PINNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **PINNED})
    main()
