"""A small trained run, pictures with names of every kind, an index of them, and servers in threads of this process."""

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import pads
from pads.config import with_settings
from pads.recipes import RECIPES
from pads.search.calibration import Calibration
from pads.search.serve.served import Served
from pads.search.serve.server import bind_socket, make_app, make_server

SETTINGS = [
    *("network.weights=none", "data.image_size=16", "data.resize=18", "data.store_size=20", "data.classes_per_batch=4"),
    *("data.samples_per_class=3", "data.selection_share=0.3", "network.embedding_dim=8", "num_epochs=2"),
    *("device=cpu", "threads=1", "log_every=1", "adapt_every=1"),
]
EVIL = "<img src=x onerror=window.hacked=1>"
CLASSES = ("mugs", "größe 茶 🫖", EVIL, "\"quotes\" & 'more'", "new\nline", os.fsdecode(b"caf\xe9"))
FILES = (
    "0.png",
    "1.jpg",
    "\"><svg onload='window.hacked=1'>.png",
    "javascript:window.hacked=1;.webp",
    "two\nlines.bmp",
)


def draw_classes(root: Path, classes: tuple[str, ...], files: tuple[str, ...], seed: int, side: int = 24) -> Path:
    """Pictures with a colour and stripes for each class."""
    rng = np.random.default_rng(seed)
    for number, label in enumerate(classes):
        (root / label).mkdir(parents=True)
        colour = rng.integers(0, 256, 3)
        for name in files:
            pixels = np.clip(colour + rng.normal(0, 40, (side, side + 6, 3)), 0, 255).astype(np.uint8)
            pixels[:: number + 2] //= 2
            Image.fromarray(pixels).save(root / label / name)
    return root


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    classes = tuple(f"class {number:02d}" for number in range(14))
    photos = draw_classes(tmp_path_factory.mktemp("training"), classes, tuple(f"{i}.png" for i in range(6)), seed=0)
    config = with_settings(RECIPES["folder-pads"](), [f"data.root={photos}", *SETTINGS])
    return pads.train(config, tmp_path_factory.mktemp("runs") / "my run")


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    return draw_classes(tmp_path_factory.mktemp("photos"), CLASSES, FILES, seed=1)


@pytest.fixture(scope="session")
def index_path(run, photos, tmp_path_factory) -> Path:
    return pads.build_index(run, photos, tmp_path_factory.mktemp("indexes") / "shop").path


@pytest.fixture(scope="module")
def served(index_path):
    served = Served(index_path)
    index = served.ready().index
    distances = tuple(np.quantile(np.linalg.norm(index.vectors_ND[:1] - index.vectors_ND, axis=1), [0.2, 0.5, 1]))
    index.calibration = Calibration(len(index), 6, distances, same_P=(990, 1040, 1100), strangers_P=(19, 250, 1090))
    yield served
    served.close()


@pytest.fixture(scope="module")
def client(served):
    """Asks the application without a network."""
    return TestClient(make_app(served), base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def serving():
    return running


@pytest.fixture(scope="session")
def wait_until():
    return until


@contextlib.contextmanager
def running(served: Served):
    """The address of a server in a thread of this process."""
    listener = bind_socket("127.0.0.1", 0)
    server = make_server(served)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def until(is_so, seconds: float = 30):
    """Waits for something that a thread does; what it gave, if it is true."""
    end = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return value
