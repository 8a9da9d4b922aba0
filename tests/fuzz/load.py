"""A server in a process of its own, on loopback, with honest clients beside slow, broken and hostile ones."""

from __future__ import annotations

import json
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any

from crash.commands import QUIET, SET, draw_photos
from fuzz.mutations import mutate

HALF = b"GET /api/about HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
UPLOAD = (
    b"POST /api/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    b"Content-Length: 100000\r\n\r\n--b"
)
HALF_OPEN = 1100
"""Connections that send half a request."""
HOSTILE_IMAGES = 20


def bad_clients(place: Path, *, seconds: float, seed: int) -> dict[str, Any]:
    """How fast honest clients are answered before, beside and after bad ones, and the memory of the server."""
    photos = draw_photos(place / "photos")
    run_cli("train", "folder-pads", "--data", str(photos), "--run", str(place / "run"), *QUIET, *SET)
    run_cli("index", str(place / "run"), str(photos), "--out", str(place / "index"), "--device", "cpu")
    main = "from pads.cli import main; main()"
    command = [sys.executable, "-c", main, "serve", str(place / "index"), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().partition("at http://")[2].split()[0].rpartition(":")[2])
        clients = Clients(port, photos, server.pid, seed)
        figures = clients.measure(seconds)
        problems = list(clients.problems)
        if server.poll() is not None:
            problems.append(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        said = server.communicate(timeout=30)[1]
    problems += [line for line in said.splitlines() if "Traceback" in line or line.startswith("ERROR")]
    return {"trials": clients.sent, "figures": figures, "problems": problems}


def run_cli(*arguments: str) -> None:
    code = "import torch; torch.set_num_threads(1); from pads.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


class Clients:
    def __init__(self, port: int, photos: Path, server: int, seed: int) -> None:
        self.port, self.server, self.chance = port, server, random.Random(seed)
        self.picture = (photos / "class-00" / "0.png").read_bytes()
        self.problems: list[str] = []
        self.sent = 0
        self.over = threading.Event()

    def measure(self, seconds: float) -> dict[str, Any]:
        self.honest(3)  # warm
        before, memory_before = self.honest(seconds / 6), self.memory()
        bad = [threading.Thread(target=act, daemon=True) for act in (self.be_slow, self.be_broken, self.be_hostile)]
        for thread in bad:
            thread.start()
        beside = self.honest(seconds * 2 / 3)
        peak = self.memory("VmHWM")
        self.over.set()
        for thread in bad:
            thread.join(60)
        time.sleep(1)
        after = self.honest(seconds / 6)
        return {
            "honest requests": len(before) + len(beside) + len(after),
            "bad requests": self.sent,
            "half-open connections": HALF_OPEN,
            "p95 before, ms": p95(before),
            "p95 beside bad clients, ms": p95(beside),
            "slowest beside bad clients, ms": round(1000 * max(beside)),
            "p95 after, ms": p95(after),
            "memory before, MB": memory_before,
            "memory at its peak, MB": peak,
            "memory after, MB": self.memory(),
        }

    def memory(self, what: str = "VmRSS") -> int:
        lines = Path(f"/proc/{self.server}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1000 for line in lines if line.startswith(what + ":"))

    # -- honest --------------------------------------------------------------------------------------------------------

    def honest(self, seconds: float) -> list[float]:
        """Searches by row and by upload, one after the other; each must be answered."""
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter()
            try:
                upload = None if len(times) % 4 else form(self.picture)
                answer = self.ask("/api/search?k=5" + ("&row=3" if upload is None else ""), upload)
                if len(json.loads(answer)["neighbours"]) != 5:
                    self.problems.append(f"an honest client was answered {answer[:200]!r}")
            except (OSError, ValueError) as error:
                self.problems.append(f"an honest client was not answered: {error!r}"[:300])
            times.append(time.perf_counter() - start)
            time.sleep(0.01)
        return times

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        headers = {} if body is None else {"Content-Type": "multipart/form-data; boundary=b"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    # -- not so --------------------------------------------------------------------------------------------------------

    def be_slow(self) -> None:
        """Half a request on many connections, on every twentieth half an upload, and a letter of it now and then."""
        held: list[socket.socket] = []
        while not self.over.is_set():
            while len(held) < HALF_OPEN and not self.over.is_set():
                self.sent += 1
                try:
                    held.append(self.connect(HALF if len(held) % 20 else UPLOAD))
                except OSError:
                    break
            for connection in list(held):
                try:
                    connection.sendall(b"x")
                except OSError:
                    connection.close()
                    held.remove(connection)
            self.over.wait(0.5)
        for connection in held:
            connection.close()

    def be_broken(self) -> None:
        """Requests with spoilt bytes, and connections that end in the middle."""
        whole = b"POST /api/search?k=3 HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        body = form(self.picture)
        whole += f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        while not self.over.is_set():
            self.sent += 1
            try:
                with self.connect(mutate(whole, self.chance)) as connection:
                    connection.settimeout(0.5)
                    answer = connection.recv(1000)
                    if answer.startswith((b"HTTP/1.1 5", b"HTTP/1.0 5")):
                        self.problems.append(f"a broken request was answered {answer[:200]!r}")
            except OSError:
                pass

    def be_hostile(self) -> None:
        """Small files that are large pictures, and strange names of hosts and origins."""
        bombs = [bomb(side) for side in (2000, 5000, 9000)]
        for number in range(10**9):
            if self.over.is_set():
                return
            self.sent += 1
            try:
                if number < HOSTILE_IMAGES:
                    self.ask("/api/embed", form(bombs[number % len(bombs)]))
                else:
                    name = self.chance.choice(("[::1].evil.example", "localhost:80@evil", "evil", "", "localhost:x"))
                    with self.connect(f"GET /api/index HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()) as connection:
                        if connection.recv(1000).startswith(b"HTTP/1.1 200"):
                            self.problems.append(f"the name {name!r} was accepted")
            except urllib.error.HTTPError as error:
                if error.code >= 500 and error.code != 503:
                    self.problems.append(f"a hostile picture was answered {error.code}: {error.read()[:200]!r}")
            except OSError:
                pass
            self.over.wait(0.02)

    def connect(self, content: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        connection.sendall(content)
        return connection


def form(content: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n"


def bomb(side: int) -> bytes:
    """A PNG of one colour, of `side` times `side` pixels."""
    from struct import pack

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + 3 * side)) for _ in range(side)) + packer.flush()
    head = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def p95(times: list[float]) -> float:
    return round(1000 * statistics.quantiles(times, n=20)[-1], 1) if len(times) > 1 else float("nan")
