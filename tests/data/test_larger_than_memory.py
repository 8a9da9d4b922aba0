"""A store larger than memory is read batch by batch: in a process that may have far less than the store takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pads.data.benchmark import Benchmark, ImageList
from pads.data.prepare import CHUNK_IMAGES, CHUNKS, FORMAT, PIXELS, STORE, describe_splits
from pads.data.store import load_store
from pads.errors import UserError

SIZE, NUM, NUM_CLASSES = 128, 4000, 200

READ = """
import resource, sys
import torch
from pads.config import Config, Data, Network
from pads.data.loading import load_views
from pads.evaluate import evaluate, raw_pixels
from pads.train import epoch_batches

torch.set_num_threads(1)
root, more = sys.argv[1], int(sys.argv[2])
data = Data("folder", root=root, image_size=8, resize=8, store_size=128, store_ratio=1.0)
config = Config(data=data, network=Network("small"))
with open("/proc/self/status") as file:
    status = file.read().split()
limit = int(status[status.index("VmData:") + 1]) * 1024 + more
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
views = load_views(config, torch.device("cpu"), lambda *_: None)
store = views.train.store
assert store.is_on_disk and store.pixels.nbytes > more, (store.is_on_disk, store.pixels.nbytes, more)
seen = 0
batches = epoch_batches(config, views, 0, len(views.train) // 112)
for pixels, sizes, labels in views.train.read_batches(batches):
    seen += len(pixels)
figures = evaluate(raw_pixels, views.test, ("recall@1",))
try:
    store.pixels.clone()
    print("the limit is none")
except RuntimeError:
    print(seen, len(store), sorted(figures))
"""


def sparse_store(path: Path, bad: bool) -> Path:
    """A store of made-up images whose pixels take no room on the disk: they are all 0 and were never written."""
    path.mkdir()
    labels = np.arange(NUM) % NUM_CLASSES
    names = tuple(f"{number:03d}" for number in range(NUM_CLASSES))
    lists = [
        ImageList(tuple(path / f"{split}-{n}.jpg" for n in range(NUM)), labels, names) for split in ("train", "test")
    ]
    splits = describe_splits(Benchmark("folder", *lists), path)
    contents = {
        "format": FORMAT,
        "dataset": "folder",
        "options": {},
        "size": SIZE,
        "longer": SIZE,
        "notes": [],
        "splits": splits,
    }
    chunks = [range(first, min(first + CHUNK_IMAGES, 2 * NUM)) for first in range(0, 2 * NUM, CHUNK_IMAGES)]
    records = [
        {"chunk": n, "source": "", "sha256": "", "sizes": [[300, 200]] * len(chunk), "bad": {}}
        for n, chunk in enumerate(chunks)
    ]
    if bad:
        records[0]["bad"] = {"3": "3.jpg (broken)"}
    np.lib.format.open_memmap(path / PIXELS, mode="w+", dtype=np.uint8, shape=(2 * NUM, 3, SIZE, SIZE))
    (path / CHUNKS).write_text("".join(json.dumps(record) + "\n" for record in records))
    (path / STORE).write_text(json.dumps(contents))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process may write to as its data")
@pytest.mark.parametrize("bad", [False, True])
def test_training_and_measuring_read_a_store_that_memory_cannot_hold(tmp_path: Path, bad: bool) -> None:
    """Nor does an image that is left out bring the rest of them into memory."""
    root, allowed = sparse_store(tmp_path / "store", bad), 150 * 2**20
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ, str(root), str(allowed)], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    seen, num, *_ = answer.stdout.split()
    assert int(seen) > 2500
    assert int(num) == NUM - bad
    assert "recall@1" in answer.stdout


def test_images_that_memory_cannot_hold_are_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pads.data.store.free_memory", lambda: 10**6)
    images = ImageList(tuple(Path(f"{n}.png") for n in range(100)), np.zeros(100, dtype=np.int64), ("a",))
    with pytest.raises(UserError, match=r"take 0\.0 GB of memory, and 0\.0 GB are free: .*`pads prepare`"):
        load_store(images, 64)
