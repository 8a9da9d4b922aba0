"""How much memory hostile images take: twenty of up to 177 megapixels in `pads index`, six uploads of 64 in `pads serve`.

Both are processes of their own, started as a person would start them. The figures are the system's (Linux): the most that
the process ever had (`VmHWM`), and what it has at a moment (`VmRSS`). It fails if the index takes more than 1.5 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import PIL
import torch
from PIL import Image

import pads
from pads.build import start_network
from pads.config import with_settings
from pads.recipes import RECIPES
from pads.runs import RunFolder

SIDE = 13_300
"""Of a square that Pillow still opens: 176.9 of at most 179 megapixels."""
UPLOAD_SIDE = 8_000
MOST = 1.5e9
SETTINGS = ["device=cpu", "data.paper_protocol=true"]  # without a selection split there is nothing to calibrate
CHANNELS = {0: 1, 2: 3, 3: 1, 6: 4}
"""Of PNG's kinds of colour: grey, RGB, palette, RGBA."""


def flat_png(side: int, colour: int = 2, depth: int = 8) -> bytes:
    """A square of few bytes and many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer, row = zlib.compressobj(1), b"\0" + b"\x7f" * (side * CHANNELS[colour] * depth // 8)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    palette = chunk(b"PLTE", bytes(range(256)) * 3) if colour == 3 else b""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + palette + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def save_bytes(side: int, kind: str, mode: str = "RGB", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (side, side), 127).save(out, kind, **options)
    return out.getvalue()


def hostile_images() -> Iterator[tuple[str, bytes]]:
    """Twenty files, no two alike; those that no decoder can hold are to be refused."""
    number = 0

    def side() -> int:
        nonlocal number
        number += 1
        return SIDE - 4 * number

    for kind, colour, depth, num in (("rgb", 2, 8, 3), ("rgba", 6, 8, 2), ("grey", 0, 8, 2), ("grey16", 0, 16, 1)):
        for _ in range(num):
            yield f"{kind}-{number}.png", flat_png(side(), colour, depth)
    yield "palette.png", flat_png(side(), 3)
    for _ in range(2):
        yield f"baseline-{number}.jpg", save_bytes(side(), "JPEG")
        yield f"progressive-{number}.jpg", save_bytes(side(), "JPEG", progressive=True)
        yield f"lossless-{number}.webp", save_bytes(side(), "WEBP", lossless=True, method=0)
    for mode in ("RGB", "RGBA"):  # all rows in one strip
        strip = {"compression": "tiff_adobe_deflate", "tiffinfo": {278: SIDE}}
        yield f"strip-{mode}.tif", save_bytes(side(), "TIFF", mode, **strip)
    yield "deflate.tif", save_bytes(side(), "TIFF", compression="tiff_adobe_deflate")
    yield "cmyk.jpg", save_bytes(side(), "JPEG", "CMYK", progressive=True)
    yield "flat.gif", save_bytes(side(), "GIF", "L")


def make_run(folder: Path) -> Path:
    config = with_settings(RECIPES["emoji-pads"](), [*SETTINGS, f"data.root={folder}"])
    run = RunFolder.create(folder / "run", config)
    run.save_selected(start_network(config).state_dict())
    return run.path


def measure_index(run: Path, photos: Path, out: Path) -> dict[str, float]:
    """Index a folder in a process of its own; what it took at most."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(
        [sys.executable, "-m", "pads", "index", str(run), str(photos), "--out", str(out)], stdout=subprocess.DEVNULL
    )
    while process.poll() is None:  # of the process itself: what `wait4` tells has the memory of its parent in it
        with contextlib.suppress(OSError, AssertionError):
            peak = max(peak, memory_of(process.pid, "VmHWM"))
        time.sleep(0.02)
    indexed = len(pads.Index.open(out)) if process.returncode == 0 else 0
    return {"images": indexed, "peak_mb": peak, "seconds": round(time.perf_counter() - start, 1)}


def memory_of(pid: int, name: str) -> int:
    """Megabytes, by the system's own name for them."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return round(int(found[1]) * 1024 / 1e6)


def upload(port: int, content: bytes) -> int:
    part = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(
        "POST",
        "/api/search?k=1",
        part + content + b"\r\n--b--\r\n",
        {"Content-Type": "multipart/form-data; boundary=b"},
    )
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def measure_serve(index: Path, uploads: list[bytes]) -> dict[str, object]:
    """Send all uploads at once to a server that has answered one small one before."""
    command = [sys.executable, "-m", "pads", "serve", str(index), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://127.0.0.1:(\d+)", server.stdout.readline())
        assert found is not None
        port = int(found[1])
        assert upload(port, flat_png(64)) == 200
        before = memory_of(server.pid, "VmRSS")
        with ThreadPoolExecutor(len(uploads)) as pool:
            answers = list(pool.map(lambda content: upload(port, content), uploads))
        time.sleep(1)
        after, peak = memory_of(server.pid, "VmRSS"), memory_of(server.pid, "VmHWM")
        return {"answers": answers, "before_mb": before, "peak_mb": peak, "after_mb": after}
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="memory.json", help="where the figures go (default: memory.json)")
    options = parser.parse_args()
    Image.MAX_IMAGE_PIXELS = None  # of this process, which makes them
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = make_run(folder)
        for content, where in ((None, "hostile"), (64, "small")):
            (folder / where / "class").mkdir(parents=True)
            if content is None:
                for file, data in hostile_images():
                    (folder / where / "class" / file).write_bytes(data)
            else:
                for number in range(20):
                    (folder / where / "class" / f"{number}.png").write_bytes(flat_png(content + number))
        sizes = [path.stat().st_size for path in (folder / "hostile/class").iterdir()]
        figures: dict[str, object] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {"pads": pads.__version__, "torch": torch.__version__, "pillow": PIL.__version__},
            "hostile": {"images": len(sizes), "bytes": sum(sizes), "megapixels_each": round(SIDE**2 / 1e6)},
            "index_of_20_small": measure_index(run, folder / "small", folder / "small-index"),
            "index_of_20_hostile": measure_index(run, folder / "hostile", folder / "hostile-index"),
        }
        kinds = {
            "png": [flat_png(UPLOAD_SIDE - number, 6 if number % 2 else 2) for number in range(6)],
            "progressive jpeg": [save_bytes(UPLOAD_SIDE - number, "JPEG", progressive=True) for number in range(6)],
        }
        figures["serve_six_of_64_megapixels"] = {
            kind: measure_serve(folder / "small-index", uploads) for kind, uploads in kinds.items()
        }
    Path(options.out).write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    peak = figures["index_of_20_hostile"]["peak_mb"]  # type: ignore[index]
    if peak * 1e6 > MOST:
        raise SystemExit(f"the index took {peak:,} MB, and may take {MOST / 1e6:,.0f}")


if __name__ == "__main__":
    main()
