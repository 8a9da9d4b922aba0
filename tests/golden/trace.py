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

AGENT = "curriculum.options.agent"
GREEDY = ["adapt_every=2", f"{AGENT}_options.epsilon_steps=6", f"{AGENT}_options.target_every=3"]
TRACES = {
    "emoji-pads": ("emoji-pads", [f"{AGENT}_options.old_policy_every=2"]),
    "emoji-pads-code": ("emoji-pads-code", []),
    "emoji-udist": ("emoji-udist", []),
    "emoji-semihard": ("emoji-semihard", []),
    "reinforce": ("emoji-pads", [f"{AGENT}=reinforce", f"{AGENT}_options.baseline=moving average", "adapt_every=2"]),
    "a2c": ("emoji-pads", [f"{AGENT}=a2c", f"{AGENT}_options.episode_length=2", "adapt_every=2"]),
    "q-learning": ("emoji-pads", [f"{AGENT}=q-learning", *GREEDY]),
    "rainbow": ("emoji-pads", [f"{AGENT}=rainbow", *GREEDY]),
    "self-paced with rho": ("emoji-udist-pace", ["sampling.rho=0.4"]),
    "random actions": ("emoji-pads", ["curriculum.name=random actions"]),
}
"""name of the trace: its recipe and what is changed in it"""
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
    import hashlib
    import signal
    from dataclasses import replace
    from pathlib import Path

    import numpy as np

    from pads.config import with_settings
    from pads.data.emoji import package_folder
    from pads.data.prepare import prepare
    from pads.recipes import RECIPES
    from pads.runs import RunFolder
    from pads.train import train

    def digest(*arrays):
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]

    def watch(kind, step, values):
        if kind == "training":
            print(name, step, values["loss"].hex(), flush=True)
        if kind == "adaptation":
            actions = "".join(map(str, values["actions"]))
            p = digest(values["distribution"])
            print(name, step, "reward", values["reward"], "actions", actions, "p", p, flush=True)
        if kind == "step" and step == 17:
            signal.raise_signal(signal.SIGINT)  # the final figures on thousands of test images are no part of the trace

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may have been told to ignore it
    with tempfile.TemporaryDirectory() as folder:
        data = RECIPES["emoji-pads"]().data  # every trace stores its images alike, so they are decoded once for all
        store = prepare(
            "emoji", package_folder()[0], Path(folder) / "emoji", size=data.store_size, ratio=data.store_ratio
        )
        for name, (recipe, settings) in TRACES.items():
            changes = [f"data.root={store.path}", *SHORT, *settings]
            config = with_settings(replace(RECIPES[recipe](), recipe=recipe), changes)
            run = Path(folder) / name
            try:
                train(config, run, watch=watch)
            except KeyboardInterrupt:
                weights = RunFolder(run).load_checkpoint()["network"]
                print(name, 17, "weights", digest(*weights.values()), flush=True)
                continue
            raise SystemExit(f"the run of {name} ended before step 17")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in PINNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **PINNED})
    main()
