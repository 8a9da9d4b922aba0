"""The fifteen findings that were the beginning of all this, each done to the command line once more; and a table.

    PYTHONPATH=src:tests python -m crash.reproducers          with these sources: all are mended
    PYTHONPATH=OLD/src:tests python -m crash.reproducers      with those of a373c01: none is

It needs nothing of pads but the command line, so that it runs with any sources.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

from crash.commands import QUIET, SET, draw_photos
from fuzz.load import bomb

SECONDS = 60
SERVE = "import sys; from pads.cli import main; main(sys.argv[1:])"


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    megabytes: int

    @property
    def is_sentence(self) -> bool:
        lines = self.err.strip().splitlines()
        return self.code == 1 and len(lines) == 1 and "Mend that" not in lines[0]

    @property
    def words(self) -> str:
        if self.code == -signal.SIGALRM:
            return "hangs"
        last = re.sub(r"x{20,}", "xxx...", (self.err.strip().splitlines() or [""])[-1].removeprefix("pads: "))
        last = re.sub(r"/\S*/place/", "", last)
        if "Traceback" in self.err:
            return f"traceback: {shorten(last, 120)}"
        return f"exit {self.code}" + (f": {shorten(last, 200)}" if last else "")


def pads(*arguments: object, cwd: Path | None = None, seconds: int = SECONDS) -> Ended:
    """The command line in a forked child."""
    said = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            os.dup2(said[0].fileno(), 1)
            os.dup2(said[1].fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            os.chdir(cwd or "/")
            from pads.cli import main

            try:
                main([str(each) for each in arguments])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    texts = []
    for file in said:
        file.seek(0)
        texts.append(file.read())
        file.close()
    return Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], usage.ru_maxrss // 1000)


class Place:
    """Photos, a run and an index, which each item has for itself."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.photos, self.run, self.index = place / "photos", place / "run", place / "index"

    def make(self) -> None:
        draw_photos(self.photos)
        for arguments in (
            ("train", "folder-pads", "--data", self.photos, "--run", self.run, *QUIET, *SET),
            ("index", self.run, self.photos, "--out", self.index, "--device", "cpu"),
        ):
            ended = pads(*arguments)
            assert ended.code == 0, ended

    def stop_halfway(self) -> None:
        """As a run that was killed in its second epoch."""
        (self.run / "metrics.json").unlink()
        sorted((self.run / "checkpoints").iterdir())[-1].unlink()

    def resume(self, cwd: Path | None = None) -> Ended:
        return pads("train", "--resume", self.run, *QUIET, cwd=cwd)

    def make_index(self, *more: object) -> Ended:
        return pads("index", self.run, self.photos, "--out", self.index, "--device", "cpu", *more)

    def search(self) -> Ended:
        return pads("search", self.index, self.photos / "class-00" / "0.png")


Answer = tuple[bool, str]
"""Whether it is mended, and what happened."""


def resume_changed_images(at: Place) -> Answer:
    at.stop_halfway()
    sorted(at.photos.glob("class-0[5-9]/*"))[0].unlink()
    ended = at.resume()
    return ended.is_sentence and "removed" in ended.err, ended.words


def index_killed_at_first(at: Place) -> Answer:
    (at.index / "index.json").rename(at.index / "index.json.partial")
    (at.index / "pending").mkdir()
    ended = at.make_index()
    return ended.code == 0, ended.words


def write_through_links(at: Place) -> Answer:
    outside, spoilt = at.place / "outside", []
    for name in ("index/lock", "index/rows-2.json.partial", "index/vectors-2.npy", "run/lock"):
        outside.write_text("somebody's")
        link = at.place / name
        link.unlink(missing_ok=True)
        link.symlink_to(outside)
        if name.startswith("index"):
            shutil.copy(at.photos / "class-00" / "0.png", at.photos / f"{time.monotonic_ns()}.png")
            at.make_index()
        else:
            at.stop_halfway()
            at.resume()
        if outside.read_text() != "somebody's":
            spoilt.append(name)
        link.unlink(missing_ok=True)
    return not spoilt, f"overwritten through {', '.join(spoilt) or 'none'}"


def wait_for_fifo(at: Place) -> Answer:
    os.mkfifo(at.photos / "class-00" / "x.jpg")
    ended = pads("index", at.run, at.photos, "--out", at.index, "--device", "cpu", seconds=20)
    return ended.code == 0, ended.words


def lose_selected(at: Place) -> Answer:
    at.stop_halfway()
    (at.run / "selected.safetensors").unlink()
    ended = at.resume()
    return ended.is_sentence, ended.words


def read_damaged(at: Place) -> Answer:
    tried = []
    for name, content in (("rows-1.json", "[3]"), ("vectors-1.npy", "x"), ("index.json", '{"format": 1, "files": 3}')):
        whole = (at.index / name).read_bytes()
        (at.index / name).write_text(content)
        tried.append(at.search())
        (at.index / name).write_bytes(whole)
    at.stop_halfway()
    config = json.loads((at.run / "config.json").read_text())
    config["data"]["classes_per_batch"] = 0
    (at.run / "config.json").write_text(json.dumps(config))
    tried.append(at.resume())
    deep = "loss.options.x=" + "[" * 3000 + "]" * 3000
    tried.append(pads("train", "folder-pads", "--data", at.photos, "--run", at.place / "new", "--set", deep))
    bad = [each for each in tried if not each.is_sentence]
    return not bad, f"{len(bad)} of {len(tried)} without a sentence" + (f", such as {bad[0].words}" if bad else "")


def decode_large(at: Place) -> Answer:
    (at.photos / "class-00" / "large.png").write_bytes(bomb(13300))
    ended = at.make_index()
    return ended.code == 0 and ended.megabytes < 1500, f"{ended.megabytes / 1000:.1f} GB for one PNG of 177 megapixels"


def flip_bits(at: Place) -> Answer:
    at.stop_halfway()
    checkpoint = sorted((at.run / "checkpoints").iterdir())[-1]
    content = bytearray(checkpoint.read_bytes())
    for share in (0.5, 0.7):
        content[int(share * len(content))] ^= 1
    checkpoint.write_bytes(content)
    first = at.resume()
    return first.is_sentence, first.words


def shorten_events(at: Place) -> Answer:
    at.stop_halfway()
    (at.run / "events.jsonl").write_bytes(b"")
    ended = at.resume()
    nul = (at.run / "events.jsonl").read_bytes().count(0)
    return ended.is_sentence, f"{ended.words}{f', and {nul} NUL bytes in events.jsonl' if nul else ''}"


def start_ghostscript(at: Place) -> Answer:
    mark, folder = at.place / "gs-was-run", at.place / "bin"
    folder.mkdir()
    (folder / "gs").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (folder / "gs").chmod(0o755)
    eps = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    (at.photos / "class-00" / "evil.jpg").write_text(eps)
    before, os.environ["PATH"] = os.environ["PATH"], f"{folder}:{os.environ['PATH']}"
    try:
        at.make_index()
    finally:
        os.environ["PATH"] = before
    return not mark.exists(), "gs was run" if mark.exists() else "gs was not run"


@contextlib.contextmanager
def serving(index: Path, *more: str) -> Iterator[int]:
    command = [sys.executable, "-c", SERVE, "serve", str(index), "--port", "0", *more]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most)),  # as shells have it
    )
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline().partition("http://")[2].split()[0].split("/")[0].rpartition(":")[2])
    finally:
        server.terminate()
        server.wait(30)


def ask(port: int, path: str, headers: str = "Host: localhost", seconds: float = 10) -> str:
    """The status line of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        return connection.recv(200).partition(b"\r\n")[0].decode()


def attack_server(at: Place) -> Answer:
    manifest = json.loads((at.index / "index.json").read_text())
    rows = json.loads((at.index / manifest["files"]["rows"]).read_text())
    stranger = at.place / "stranger"
    shutil.copytree(at.index, stranger)
    secret = at.place / "secret.png"
    shutil.copy(at.photos / "class-01" / "1.png", secret)
    rows[-1][0] = str(secret)[1:]
    rows.sort()
    row = next(number for number, each in enumerate(rows) if each[0] == str(secret)[1:])
    (stranger / manifest["files"]["rows"]).write_text(json.dumps(rows))
    (stranger / "index.json").write_text(json.dumps({**manifest, "root": "/", "checksums": {}, "sha256": None}))
    wrong = []
    with serving(stranger) as port:
        if "200" in ask(port, f"/api/image/{row}"):
            wrong.append("shows any image of the machine")
        if "500" in ask(port, "/api/about", "Host: localhost\r\nOrigin: http://["):
            wrong.append("500 for an Origin")
        wrong += [
            f"answers to Host {name}"
            for name in ("[::1].evil.example", "localhost:80@evil")
            if "200" in ask(port, "/api/index", f"Host: {name}")
        ]
        held = []
        for _ in range(1100):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=2))
                held[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        try:
            if "200" not in ask(port, "/api/index"):
                wrong.append("no answer beside 1,100 half-sent requests")
        except OSError:
            wrong.append("no answer beside 1,100 half-sent requests")
        for connection in held:
            connection.close()
    with contextlib.suppress(IndexError, ValueError), serving(at.index, "--host", "0.0.0.0"):
        wrong.append("open to the network without a token")
    return not wrong, ", ".join(wrong) or "nothing"


def start_again(at: Place) -> Answer:
    name = at.place / "new"
    (name / "checkpoints").mkdir(parents=True)
    (name / "lock").touch()
    (name / "environment.json").write_text("{}")
    ended = pads("train", "folder-pads", "--data", at.photos, "--run", name, *QUIET, *SET)
    return ended.code == 0, ended.words


def fill_disk(at: Place) -> Answer:
    disk = at.place / "small"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True).returncode:
        return True, "not tried: no right to make a small disk"
    try:
        ended = pads("index", at.run, at.photos, "--out", disk / "index", "--device", "cpu")
    finally:
        subprocess.run(["umount", str(disk)])
    return ended.is_sentence and "full" in ended.err and "--resume" not in ended.err, ended.words


def resume_from_elsewhere(at: Place) -> Answer:
    train = ("train", "folder-pads", "--data", "photos", "--run", "relative", *QUIET, *SET)
    assert pads(*train, cwd=at.place).code == 0
    at.run = at.place / "relative"
    at.stop_halfway()
    ended = at.resume(cwd=Path("/"))
    return ended.code == 0, ended.words


def read_table(at: Place, path: str, label: str = "a") -> Ended:
    lines = ["path,label,split", f"{path},{label},train"]
    for number in range(4):
        split = "train" if number < 2 else "test"
        lines += [f"photos/class-0{number}/{each}.png,class {number},{split}" for each in range(3)]
    table = at.place / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    return pads("train", "csv", "--data", table, "--run", at.place / "new", *QUIET, *SET)


def break_line(at: Place) -> Answer:
    tried = [read_table(at, '"no\nfile.png"'), read_table(at, "photos/class-00/5.png", '"two\nlines"')]
    longest = max(len(each.err.strip().splitlines()) for each in tried)
    return all(each.is_sentence for each in tried), f"a message of {longest} line{'s' * (longest != 1)}"


def name_too_long(at: Place) -> Answer:
    ended = read_table(at, "x" * 5000 + ".png")
    return ended.is_sentence, ended.words


ITEMS: dict[str, Callable[[Place], Answer]] = {
    "1 resume accepts changed images": resume_changed_images,
    "2 an index killed at its first index.json": index_killed_at_first,
    "3 files outside, through links": write_through_links,
    "4 a FIFO named x.jpg": wait_for_fifo,
    "5 a missing selected.safetensors": lose_selected,
    "6 damaged files": read_damaged,
    "7 memory": decode_large,
    "8 flipped bits in a checkpoint": flip_bits,
    "8 a shortened events.jsonl": shorten_events,
    "9 an EPS named evil.jpg": start_ghostscript,
    "10 the server": attack_server,
    "11 a run killed before config.json": start_again,
    "12 a full disk in pads index": fill_disk,
    "13 a relative --data": resume_from_elsewhere,
    "14 a newline in a CSV": break_line,
    "15 a path too long in a CSV": name_too_long,
}


def main() -> None:
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
    random.seed(0)
    wanted = sys.argv[1:]
    print("| finding | mended | what happens |\n|---|---|---|")
    is_bad = False
    with tempfile.TemporaryDirectory(prefix="reproducers-") as folder:
        whole = Place(Path(folder) / "place")
        whole.place.mkdir()
        whole.make()
        kept = Path(shutil.copytree(whole.place, Path(folder) / "kept", symlinks=True))
        for name, reproduce in ITEMS.items():
            if wanted and name.split()[0] not in wanted:
                continue
            shutil.rmtree(whole.place)
            shutil.copytree(kept, whole.place, symlinks=True)
            is_mended, words = reproduce(Place(whole.place))
            is_bad = is_bad or not is_mended
            words = words.replace(str(whole.place) + os.sep, "").replace("|", "/")
            print(f"| {name} | {'yes' if is_mended else 'no'} | {words} |", flush=True)
    sys.exit(1 if is_bad else 0)


if __name__ == "__main__":
    main()
