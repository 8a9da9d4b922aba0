"""How fast `pads serve` answers: searches by row and by upload, one at a time and fifty at once, on made-up images.

The server is a process of its own, started as a person would start it, and is asked over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

import pads
from pads.build import start_network
from pads.config import with_settings
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.search.serve.maps import FILE, Layout, write_layout
from pads.search.serve.searcher import version_of

SETTINGS = ["device=cpu", "data.paper_protocol=true"]  # without a selection split there is nothing to calibrate


def picture(rng: np.random.Generator, side: int) -> bytes:
    """A photograph as far as a decoder can tell: smooth, with some noise."""
    coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((side, side))
    noisy = np.clip(np.asarray(coarse, dtype=float) + rng.normal(0, 8, (side, side, 3)), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=88)
    return out.getvalue()


def make_index(folder: Path, num_images: int, num_distinct: int, rng: np.random.Generator) -> Path:
    """An index of files that are mostly links to those of the first class: each of these is embedded once."""
    photos = folder / "photos"
    for number in range(num_images):
        path = photos / f"class {0 if number < num_distinct else 1 + number % 99:02d}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < num_distinct:
            path.write_bytes(picture(rng, 128))
        else:
            os.link(photos / "class 00" / f"{number % num_distinct}.jpg", path)
    config = with_settings(RECIPES["emoji-pads"](), [*SETTINGS, f"data.root={folder}"])
    run = RunFolder.create(folder / "run", config)
    run.save_selected(start_network(config).state_dict())
    return pads.build_index(run, photos, folder / "index").path


def leave_out_the_map(path: Path) -> None:
    """Puts one there that took no time: it is not what is measured."""
    index = pads.Index.open(path)
    rows_M = np.arange(1)
    write_layout(path / FILE, Layout(rows_M, np.zeros((1, 2), np.float32), "nothing"), version_of(index))


class Connection:
    """One connection that asks one thing after another, with as little of its own as can be."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def ask(self, head: str, body: bytes = b"") -> dict:
        if not hasattr(self, "reader"):
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        self.writer.write(f"{head}Host: {self.host}:{self.port}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", answer, re.IGNORECASE).group(1))
        content = await self.reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server refused: {content.decode()}")
        return json.loads(content)


def by_row(number: int) -> tuple[str, bytes]:
    return f"GET /api/search?row={number}&k=24 HTTP/1.1\r\n", b""


def by_upload(uploads: list[bytes]) -> Callable[[int], tuple[str, bytes]]:
    def request(number: int) -> tuple[str, bytes]:
        part = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
        body = part + uploads[number % len(uploads)] + b"\r\n--b--\r\n"
        return "POST /api/search?k=24 HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n", body

    return request


async def measure(
    server: subprocess.Popen, port: int, request: Callable[[int], tuple[str, bytes]], num: int, at_once: int
) -> dict[str, float]:
    """Milliseconds of each request as the client sees it, of the search alone, and of the server's processor."""
    numbers, waited, searched = iter(range(num)), [], []

    async def keep_asking() -> None:
        connection = Connection("127.0.0.1", port)
        for number in numbers:
            start = time.perf_counter()
            answer = await connection.ask(*request(number))
            waited.append(1000 * (time.perf_counter() - start))
            searched.append(answer["search_ms"])
            assert len(answer["neighbours"]) == 24
        connection.writer.close()

    start, before = time.perf_counter(), processor_seconds(server.pid)
    await asyncio.gather(*(keep_asking() for _ in range(at_once)))
    p50, p95 = np.percentile(waited, [50, 95])
    rate, used = num / (time.perf_counter() - start), 1000 * (processor_seconds(server.pid) - before) / num
    return {"p50": p50, "p95": p95, "search p95": float(np.percentile(searched, 95)), "used": used, "rate": rate}


def processor_seconds(pid: int) -> float:
    """What a process has used so far, which does not depend on what else the machine is doing (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=20_000, help="in the index (default: 20,000)")
    parser.add_argument("--requests", type=int, default=1000, help="of each kind (default: 1,000)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        index = make_index(Path(folder), options.images, min(200, options.images), rng)
        leave_out_the_map(index)
        command = [sys.executable, "-m", "pads", "serve", str(index), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r"http://127.0.0.1:(\d+)", server.stdout.readline()).group(1))
            uploads = [picture(rng, 640) for _ in range(50)]
            kinds = {"by row": by_row, f"by upload ({len(uploads[0]) // 1000} kB JPEG)": by_upload(uploads)}
            print(f"{options.images:,} images, 128 dimensions, k = 24, {os.cpu_count()} cores\n")
            print("| search | at once | p50 | p95 | the search itself, p95 | processor, each | requests/s |")
            print("|---|--:|--:|--:|--:|--:|--:|")
            for kind, request in kinds.items():
                asyncio.run(measure(server, port, request, 20, 1))
                for at_once in (1, 50):
                    num = options.requests if at_once == 50 or kind == "by row" else options.requests // 5
                    found = asyncio.run(measure(server, port, request, num, at_once))
                    times = " | ".join(f"{found[name]:.1f} ms" for name in ("p50", "p95", "search p95", "used"))
                    print(f"| {kind} | {at_once} | {times} | {found['rate']:.0f} |", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
