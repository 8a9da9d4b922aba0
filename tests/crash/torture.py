"""`make torture`: every fault at every change, files spoilt for as long as asked, a server under bad clients; and a table.

    python -m crash.torture [crash] [chains] [fuzz] [load] [--minutes 10] [--out results/torture]

What it did is kept as one JSON file per part, and README.md in the same folder sums up all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from crash.disk import FAULTS
from crash.harm import ENDS, Machine, Tally, torture
from crash.trial import as_record

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT, PAGE = REPOSITORY / "results" / "torture", REPOSITORY / "docs" / "trust.md"
MARKS = ("<!-- begin: written by make torture -->\n", "<!-- end -->\n")
"""Between them the page has the figures of all runs that are kept."""
PARTS = ("crash", "chains", "fuzz", "load")
SHARES = {
    "csv": 20,
    "image": 15,
    "weights": 15,
    "http": 10,
    "lists": 10,
    "index": 6,
    "codes": 4,
    "store": 6,
    "config": 4,
    "set": 4,
}
"""Of the time for fuzzing; what is not named has 1."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help="crash, chains, fuzz, load (default: all)")
    parser.add_argument("--minutes", type=float, default=10, help="for each part that has no end (default: 10)")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn by chance (default: the time)")
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=FAULTS, help="of crash and chains (default: all)"
    )
    parser.add_argument("--commands", nargs="+", default=None, help="of crash and chains (default: all)")
    parser.add_argument("--out", type=Path, default=KEPT)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = int(time.time()) if options.seed is None else options.seed
    options.out.mkdir(parents=True, exist_ok=True)
    is_bad = False
    for part in options.parts:
        with tempfile.TemporaryDirectory(prefix="torture-", dir=memory_disk()) as place:
            start = time.monotonic()
            do = {"crash": do_crash, "chains": do_chains, "fuzz": do_fuzz, "load": do_load}[part]
            is_crash = part in ("crash", "chains")
            more = {"faults": tuple(options.faults), "names": options.commands} if is_crash else {}
            record = do(Path(place), options.minutes, seed, **more)
        record = {**about(part, seed, time.monotonic() - start), **record}
        is_bad = is_bad or bool(record["problems"])
        name = f"{time.strftime('%Y-%m-%dT%H%M%S', time.gmtime())}-{part}.json"
        (options.out / name).write_text(json.dumps(record, indent=1) + "\n")
    (options.out / "README.md").write_text(summary(options.out))
    if options.out.resolve() == KEPT:
        PAGE.write_text(with_figures(PAGE.read_text()))
    print((options.out / "README.md").read_text())
    sys.exit(1 if is_bad else 0)


def memory_disk() -> str | None:
    """Syncing to a real disk thousands of times would measure the disk; the order of things is what is tested."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def about(part: str, seed: int, seconds: float) -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "part": part,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit,
        "python": platform.python_version(),
        "seed": seed,
        "seconds": round(seconds),
    }


# -- crash -------------------------------------------------------------------------------------------------------------


def do_crash(
    place: Path, minutes: float, seed: int, faults: tuple[str, ...] = FAULTS, names: list[str] | None = None
) -> dict[str, Any]:
    """Each fault at every change of every command; this takes as long as it takes."""
    machine, tally = Machine(place), Tally()
    with contextlib.suppress(KeyboardInterrupt):
        for fault in faults:
            for name in names or machine.commands:
                torture(machine, machine.all_trials(name, (fault,)), tally, math.inf, say)
                say(f"{fault} at {tally.trials[name, fault]} of {len(machine.logs[name])} changes of {name}")
    return crash_record(tally)


def do_chains(
    place: Path, minutes: float, seed: int, faults: tuple[str, ...] = FAULTS, names: list[str] | None = None
) -> dict[str, Any]:
    """Commands that are ended several times in a row, every other one by kills alone."""
    machine, tally = Machine(place), Tally()
    names = names or list(machine.commands)
    ends = tuple(fault for fault in faults if fault in ENDS) or ENDS
    with contextlib.suppress(KeyboardInterrupt):
        for number, name in enumerate(names):
            for kind in (ends, ("kill",)):
                until = time.monotonic() + 60 * minutes / len(names) / 2
                torture(machine, machine.chains(name, seed + number, kind), tally, until, say)
            say(f"{name}: ended {sum(tally.faults.values()):,} times so far")
    return crash_record(tally)


def crash_record(tally: Tally) -> dict[str, Any]:
    return {
        "trials": sum(tally.trials.values()),
        "kills": sum(count for (_, fault), count in tally.faults.items() if fault == "kill"),
        "power cuts": sum(count for (_, fault), count in tally.faults.items() if fault in ENDS and fault != "kill"),
        "errors": sum(count for (_, fault), count in tally.faults.items() if fault not in ENDS),
        "changes": tally.points,
        "points": {name: {f: tally.trials[name, f] for f in FAULTS if tally.trials[name, f]} for name in tally.points},
        "faults": {
            name: {fault: tally.faults[name, fault] for fault in FAULTS if tally.faults[name, fault]}
            for name in tally.points
        },
        "problems": [as_record(found) for found in tally.found],
    }


# -- fuzz --------------------------------------------------------------------------------------------------------------


def do_fuzz(place: Path, minutes: float, seed: int) -> dict[str, Any]:
    from fuzz.fuzz import fuzz
    from fuzz.targets import make_kinds

    kinds = make_kinds(place)
    total = sum(SHARES.get(name, 1) for name in kinds)
    record: dict[str, Any] = {"trials": 0, "kinds": {}, "problems": []}
    with contextlib.suppress(KeyboardInterrupt):
        for name, kind in kinds.items():
            tally = fuzz(kind, 60 * minutes * SHARES.get(name, 1) / total, seed, place / "record")
            record["trials"] += tally["trials"]
            record["kinds"][name] = {"trials": tally["trials"], "problems": tally["num_problems"]}
            record["problems"] += [{"kind": name, **problem} for problem in tally["problems"]]
            say(f"{name}: {tally['trials']:,} trials, {tally['num_problems']} problems")
            for problem in tally["problems"]:
                say(f"FOUND {name} {problem['number']}: {problem['what'][-800:]}")
    return record


# -- load --------------------------------------------------------------------------------------------------------------


def do_load(place: Path, minutes: float, seed: int) -> dict[str, Any]:
    from fuzz.load import bad_clients

    return bad_clients(place, seconds=min(60.0, 60 * minutes), seed=seed)


# -- the page ----------------------------------------------------------------------------------------------------------


def summary(folder: Path) -> str:
    """README.md: the sums, then each run."""
    records = read_records(folder)
    crash = [each for each in records if each["part"] in ("crash", "chains")]
    fuzzed, load = ([each for each in records if each["part"] == part] for part in ("fuzz", "load"))
    changes = {name: count for each in crash for name, count in each["changes"].items()}
    lines = [
        "# What `make torture` did",
        "",
        "Written by `tests/crash/torture.py`; [trust](../../docs/trust.md) says what each row means. At the end "
        "stands what the version did that had none of this.",
        "",
        f"Summed: **{sum(r['kills'] + r['power cuts'] for r in crash):,} processes ended** at a chosen change "
        f"({sum(r['kills'] for r in crash):,} killed, {sum(r['power cuts'] for r in crash):,} with the power), "
        f"{sum(r['errors'] for r in crash):,} failed changes, **{sum(r['trials'] for r in fuzzed):,} spoilt inputs**.",
        "",
        "| date | part | commit | seconds | trials | problems |",
        "|---|---|---|--:|--:|--:|",
    ]
    for record in records:
        cells = (record["date"], record["part"], record["commit"], record["seconds"], f"{record['trials']:,}")
        lines.append("| " + " | ".join(map(str, (*cells, num_problems(record)))) + " |")
    if crash:
        lines += ["", "## Faults, by command", "", f"| command | changes | {' | '.join(FAULTS)} |"]
        lines += ["|---|--:|" + "--:|" * len(FAULTS)]
        for name in changes:
            counts = [sum(r["faults"].get(name, {}).get(fault, 0) for r in crash) for fault in FAULTS]
            lines.append(f"| {name} | {changes[name]} | {' | '.join(map(str, counts))} |")
    if fuzzed:
        lines += ["", "## Spoilt inputs, by kind", "", "| kind | trials | problems in the last run |", "|---|--:|--:|"]
        for name in fuzzed[-1]["kinds"]:
            trials = sum(r["kinds"].get(name, {}).get("trials", 0) for r in fuzzed)
            lines.append(f"| {name} | {trials:,} | {fuzzed[-1]['kinds'][name]['problems']} |")
    if load:
        lines += ["", "## A server under bad clients", "", "| | |", "|---|--:|"]
        lines += [f"| {key} | {value} |" for key, value in load[-1]["figures"].items()]
    if (folder / "a373c01.md").exists():
        lines += ["", "#" + (folder / "a373c01.md").read_text().rstrip()]
    return "\n".join(lines) + "\n"


def read_records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def with_figures(page: str, folder: Path = KEPT) -> str:
    """The page on trust with the sums of what is kept."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return before + MARKS[0] + "\n".join(figures(read_records(folder))) + "\n" + MARKS[1] + after


def figures(records: list[dict[str, Any]]) -> list[str]:
    crash = [each for each in records if each["part"] in ("crash", "chains")]
    fuzzed, load = ([each for each in records if each["part"] == part] for part in ("fuzz", "load"))
    kills, cuts, errors = (sum(r[what] for r in crash) for what in ("kills", "power cuts", "errors"))
    lines = [
        "",
        f"{len(records)} runs, from {records[0]['date'][:10]} to {records[-1]['date'][:10]}:",
        "",
        "| | trials | problems, by then |",
        "|---|--:|--:|",
        f"| processes ended at a chosen change | {kills + cuts:,} ({kills:,} kills, {cuts:,} power cuts) | "
        f"{sum(each['fault'] in ENDS for r in crash for each in r['problems'])} |",
        f"| changes that failed (full disk, failing disk, short write) | {errors:,} | "
        f"{sum(each['fault'] not in ENDS for r in crash for each in r['problems'])} |",
        f"| spoilt files and requests | {sum(r['trials'] for r in fuzzed):,} | {sum(map(num_problems, fuzzed))} |",
        f"| bad requests to a server, beside {sum(r['figures']['honest requests'] for r in load):,} honest ones | "
        f"{sum(r['figures']['bad requests'] for r in load):,} | {sum(map(num_problems, load))} |",
        "",
    ]
    if load:
        last = load[-1]["figures"]
        lines += [
            f"The last server answered honest clients in {last['p95 before, ms']:.0f} ms before, "
            f"{last['p95 beside bad clients, ms']:.0f} ms beside and {last['p95 after, ms']:.0f} ms after the bad ones (p95), "
            f"the slowest in {last['slowest beside bad clients, ms'] / 1000:.1f} s; its memory was "
            f"{last['memory before, MB']} MB before, {last['memory at its peak, MB']} at its peak and "
            f"{last['memory after, MB']} after.",
            "",
        ]
    return lines


def num_problems(record: dict[str, Any]) -> int:
    return sum(kind["problems"] for kind in record["kinds"].values()) if "kinds" in record else len(record["problems"])


def say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    main()
