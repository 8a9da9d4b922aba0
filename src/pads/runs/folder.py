"""A run folder holds everything needed to run it again.

config.json         what was asked for
environment.json    what it ran on
data.jsonl          which images it began with, those left out and why, and what became different since (`pads.data.manifest`)
events.jsonl        one JSON per event, deterministic: a resumed run has the same bytes as one never stopped
timing.jsonl        seconds and images per second, which are not
test_curve.jsonl    the test split over training, if asked for; nothing in training reads it
checkpoints/        step-000123.safetensors: everything a resumed run needs
start.safetensors   the heads that were made from the training images, where the config asks for one
features.safetensors  the features of all images, where the backbone is frozen
selected.safetensors  the network at the epoch that the selection split picked
metrics.json        the final figures; it exists when the run is finished
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch

import pads
from pads.config import Config, from_dict, lookup, to_json
from pads.errors import UserError
from pads.runs.backbone import is_backbone
from pads.runs.checkpoint import load_state, save_state
from pads.runs.events import METRICS
from pads.runtime.files import (
    PARTIAL,
    RESUME,
    append_line,
    cut,
    hold_lock,
    make_folder,
    make_inner_folder,
    open_to_append,
    remove_file,
    remove_folder,
    sync_lines,
    write_atomically,
)
from pads.runtime.reading import is_count, is_positive, read_json, read_regular
from pads.runtime.team import num_processes

KEPT_CHECKPOINTS = 2
CHECKPOINT = {"network?": dict, "curriculum?": dict, "selected?": {"step": is_count, "epoch?": is_count}}
TO_RESUME = {
    **dict.fromkeys(("network", "loss", "optimiser", "curriculum", "drawn"), dict),
    "selected": {"step": is_count, "epoch?": is_count},
    "step": is_count,
    "stage?": is_count,
    "lengths": {str: is_count},
    "generator": torch.Tensor,
}
SELECTED = {"network": dict}
START = {str: [torch.Tensor]}
FEATURES = dict.fromkeys(("train", "reward", "selection", "test"), torch.Tensor)


class RunFolder:
    """Read and write a run folder. `with run:` takes the lock that writing needs."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._files: dict[str, FileIO] = {}

    # -- opening -----------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path | str, config: Config, manifest: str | None = None) -> RunFolder:
        """Make a new run folder with its config; a folder that holds something already is refused.

        manifest: the text of data.jsonl, which is there before the config: that one marks a run.
        """
        run = cls(path)
        run.check_new()
        make_folder(run.path)
        with run._take_lock():
            run.check_new()  # once more: another process may have begun a run here meanwhile
            try:
                make_inner_folder(run.checkpoints_path)
                write_atomically(run.path / "environment.json", as_json(environment()))
                if manifest is not None:
                    write_atomically(run.manifest_path, manifest)
                write_atomically(run.config_path, to_json(config))
            except UserError:
                run.remove_if_unused()
                raise
        return run

    def remove_if_unused(self) -> None:
        """Remove a run that has nothing to show: no event and no checkpoint."""
        if not self.checkpoints() and not (self.path / "events.jsonl").exists():
            remove_folder(self.path)

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """Explain, in a `with` block, why a saved state does not fit the parts that were built from config.json."""
        try:
            yield
        except (LookupError, RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
            raise UserError(
                f"what {self.path} saved does not fit its config.json or the images: put back what was changed since."
            ) from error

    def check_new(self) -> None:
        """Refuse a folder that holds something already."""
        if self.config_path.exists():
            raise UserError(
                f"{self.path} holds a run already: go on with `pads train --resume {self.path}`, or give another --run."
            )
        if self.path.exists() and not is_unstarted(self.path):
            raise UserError(f"{self.path} exists and is not empty: give a new folder as --run.")

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Open a run folder that exists."""
        if is_backbone(path):
            raise UserError(
                f"{path} was not trained here and has no run folder: `pads index {path} IMAGES --out INDEX` makes images "
                f"searchable with it, and `pads evaluate {path} --data DIR` measures it."
            )
        run = cls(path)
        if not run.config_path.is_file():
            what = "does not exist" if not run.path.exists() else "is not a run folder: it has no config.json"
            raise UserError(f"{path} {what}. `pads train RECIPE --run {path}` makes one.")
        return run

    @property
    def config(self) -> Config:
        """Return the config of the run."""
        values = read_json(self.config_path, dict, "put back the file that the run wrote.")
        try:
            return from_dict(values)
        except UserError as error:
            raise UserError(f"{self.config_path} does not fit this version of pads: {error}") from error

    @property
    def config_path(self) -> Path:
        """Return the path of config.json."""
        return self.path / "config.json"

    @property
    def manifest_path(self) -> Path:
        """Return the path of data.jsonl."""
        return self.path / "data.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        """Return the folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def selected_path(self) -> Path:
        """Return the path of the network at the selected epoch."""
        return self.path / "selected.safetensors"

    @property
    def start_path(self) -> Path:
        """Return the path of the heads that were made from the training images."""
        return self.path / "start.safetensors"

    @property
    def features_path(self) -> Path:
        """Return the path of the features that a frozen backbone gave."""
        return self.path / "features.safetensors"

    @property
    def metrics(self) -> dict[str, Any] | None:
        """Return the final figures, None while the run is not finished."""
        path = self.path / "metrics.json"
        try:
            return read_json(path, METRICS, "delete it, and --resume writes it anew.")
        except FileNotFoundError:
            return None

    @property
    def is_finished(self) -> bool:
        """Return whether the run has its final figures."""
        return (self.path / "metrics.json").exists()

    # -- one writer ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> RunFolder:
        """Takes the lock, which the system releases with the process, however it ends."""
        self._lock = self._take_lock()
        return self

    def _take_lock(self) -> BinaryIO:
        refusal = f"another process is training in {self.path}: wait for it, stop it, or give another --run."
        return hold_lock(self.path / "lock", refusal)

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk was told of when it was noticed
                file.close()
        self._files.clear()
        self._lock.close()

    # -- what is written as the run goes on ----------------------------------------------------------------------------

    def append(self, name: str, event: Mapping[str, Any]) -> None:
        """Append one line to events.jsonl, timing.jsonl or test_curve.jsonl."""
        append_line(self.path / name, self._file(name), json.dumps(event, allow_nan=False), again=RESUME)

    def _file(self, name: str) -> FileIO:
        if name not in self._files:
            self._files[name] = open_to_append(self.path / name, again=RESUME)
        return self._files[name]

    def lengths(self) -> dict[str, int]:
        """Return the lengths in bytes to which a resumed run cuts its files back."""
        return {
            name: (self.path / name).stat().st_size
            for name in ("events.jsonl", "test_curve.jsonl")
            if (self.path / name).exists()
        }

    def cut_back(self, lengths: Mapping[str, int]) -> None:
        """Remove what was written after the checkpoint that a resumed run starts from: it will be written again."""
        paths = {self.path / name: lengths.get(name, 0) for name in ("events.jsonl", "test_curve.jsonl")}
        for path, length in paths.items():
            size = path.stat().st_size if path.exists() else 0
            if size < length:
                raise UserError(
                    f"{path} has {size:,} bytes, and had {length:,} when the newest checkpoint was written: put back the file "
                    "that the run wrote, or train anew."
                )
        for path, length in paths.items():
            if path.exists():
                cut(path, length)
        timing = self.path / "timing.jsonl"
        if timing.exists() and (length := count_whole_lines(timing)) < timing.stat().st_size:
            cut(timing, length)  # half a line, to which the next one would be added

    def write_json(self, name: str, value: Any) -> None:
        """Write a value as a JSON file of the run, atomically."""
        write_atomically(self.path / name, as_json(value), again=RESUME)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save_checkpoint(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint atomically, and delete old ones."""
        for name, file in self._files.items():  # a checkpoint must not remember events that a power cut can take away
            sync_lines(self.path / name, file, again=RESUME)
        make_inner_folder(self.checkpoints_path)  # which is there, or is a link
        path = self.checkpoints_path / f"step-{step:08d}.safetensors"
        save_state(path, {**state, "lengths": self.lengths()}, again=RESUME)
        for old in self.checkpoints()[:-KEPT_CHECKPOINTS]:
            remove_file(old)

    def checkpoints(self) -> list[Path]:
        """List the complete checkpoints, oldest first."""
        return sorted(
            p
            for p in self.checkpoints_path.glob("step-*.safetensors")
            if re.fullmatch(r"step-\d+\.safetensors", p.name)
        )

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Load the newest checkpoint; None before the first."""
        checkpoints = self.checkpoints()
        return load_state(checkpoints[-1], CHECKPOINT) if checkpoints else None

    def load_to_resume(self) -> dict[str, Any] | None:
        """Load the newest checkpoint, and refuse where a file that belongs to it is missing."""
        checkpoints = self.checkpoints()
        checkpoint = load_state(checkpoints[-1], TO_RESUME) if checkpoints else None
        self.check_selected(checkpoint)
        return checkpoint

    def check_selected(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Refuse a run that has selected an epoch and lost its network: the last one would pass for it."""
        selected = (checkpoint or {}).get("selected") or (self.metrics or {}).get("selection") or {}
        if "epoch" in selected and not self.selected_path.exists():
            raise UserError(
                f"{self.selected_path} is missing, which holds the network of the selected epoch {selected['epoch']}: put it "
                "back, or train anew; the last epoch is still there for `pads evaluate --checkpoint last`."
            )

    def save_start(self, heads: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Write weight and bias of the heads that were made from the training images: they need not be made anew."""
        save_state(self.start_path, heads, again=RESUME)

    def load_start(self) -> dict[str, list[torch.Tensor]] | None:
        """Load the heads that were made from the training images by name; None before that."""
        return load_state(self.start_path, START) if self.start_path.exists() else None

    def save_features(self, features: Mapping[str, torch.Tensor]) -> None:
        """Write the features of all images by role: a frozen backbone need not compute them anew."""
        save_state(self.features_path, features, again=RESUME)

    def load_features(self) -> dict[str, torch.Tensor] | None:
        """Load the features of all images by role; None before they were computed."""
        return load_state(self.features_path, FEATURES) if self.features_path.exists() else None

    def drop_features(self) -> None:
        """Remove the features: they are of no use once the backbone learns, or after the images changed."""
        remove_file(self.features_path)

    def find_stage(self) -> int:
        """Return the number of the stage that the newest checkpoint is in."""
        checkpoint = self.load_to_resume()
        return int((checkpoint or {}).get("stage", 0))

    def save_selected(self, network: Mapping[str, Any], **about: Any) -> None:
        """Write the network of the epoch that the selection split picked."""
        save_state(self.selected_path, {"network": network, **about}, again=RESUME)

    def load_network(self, which: str = "selected") -> dict[str, Any]:
        """Load the state of the network at the `selected` epoch (the last, if none was selected) or the `last` checkpoint."""
        lookup(dict.fromkeys(("selected", "last")), which, "checkpoint")
        if which == "selected" and self.selected_path.exists():
            return load_state(self.selected_path, SELECTED)["network"]
        checkpoint = self.load_checkpoint()
        if which == "selected":
            self.check_selected(checkpoint)
        if checkpoint is None:
            raise UserError(
                f"{self.path} has no checkpoint yet: train it first with `pads train --resume {self.path}`."
            )
        if "network" not in checkpoint:
            raise UserError(f"the newest checkpoint of {self.path} holds no network: train the run anew.")
        return checkpoint["network"]

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


class SilentFolder(RunFolder):
    """The run folder for the processes of a run that leave it to the first to write."""

    @classmethod
    def create(cls, path: Path | str, config: Config, manifest: str | None = None) -> RunFolder:
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        return cls(path)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def append(self, name: str, event: Mapping[str, Any]) -> None:
        pass

    def cut_back(self, lengths: Mapping[str, int]) -> None:
        pass

    def write_json(self, name: str, value: Any) -> None:
        pass

    def save_checkpoint(self, step: int, state: Mapping[str, Any]) -> None:
        pass

    def save_start(self, heads: Mapping[str, Sequence[torch.Tensor]]) -> None:
        pass

    def save_features(self, features: Mapping[str, torch.Tensor]) -> None:
        pass

    def drop_features(self) -> None:
        pass

    def save_selected(self, network: Mapping[str, Any], **about: Any) -> None:
        pass

    def remove_if_unused(self) -> None:
        pass


def is_unstarted(path: Path) -> bool:
    """Whether a folder is empty, or holds what a process leaves that was killed before the run had its config.json."""
    if not path.is_dir():
        return False
    names = {each.name.removesuffix(PARTIAL) for each in path.iterdir()}
    has_checkpoints = any((path / "checkpoints").iterdir()) if (path / "checkpoints").is_dir() else False
    return names <= {"lock", "checkpoints", "environment.json", "data.jsonl", "config.json"} and not has_checkpoints


def next_free(parent: Path | str, name: str) -> Path:
    """parent/name, or parent/name-2, -3, ... if there is one already."""
    path, number = Path(parent) / name, 1
    while path.exists():
        number += 1
        path = Path(parent) / f"{name}-{number}"
    return path


def count_whole_lines(path: Path) -> int:
    """Return how many bytes of a file are lines that were written to their end."""
    return read_regular(path).rfind(b"\n") + 1


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def note_threads(run: RunFolder, config: Config) -> tuple[str, ...]:
    """Say that a run goes on with another number of threads than it began with, where its config does not fix it."""
    before, now = None, torch.get_num_threads()
    with contextlib.suppress(UserError, FileNotFoundError):  # of an earlier version, or damaged: nothing depends on it
        before = read_json(run.path / "environment.json", {"threads": is_positive}, "")["threads"]
    if config.threads is not None or before in (None, now):
        return ()
    return (
        f"The run began with {before} threads and goes on with {now}, so its figures will not be the same to the last bit: "
        f"OMP_NUM_THREADS={before} keeps them so.",
    )


def environment() -> dict[str, Any]:
    """What the run ran on, as far as it can change a figure."""
    return {
        "pads": pads.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "threads": torch.get_num_threads(),
        "processes": num_processes(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }
