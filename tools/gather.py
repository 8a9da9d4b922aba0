"""Makes a folder of evidence from what `pads study` or tools/series.py left: rows, configs and curves of the finished runs.

    python tools/gather.py studies/controls-cub200 results/cub200-controls --without-seconds

Several folders may be given before the last. Written are seeds.csv, ARM.json (without the paths of the machine),
adaptations.csv, distributions.csv, training.csv, selection_curves.csv and test_curves.csv, and study.json where all are of
one study, for `pads study claims --results`. A person writes claim.json, and tools/results.py README.md. Of a run that was
cut before its end, `--cut ARM-SEED` keeps config and curves, as the arm ARM-cut.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pads.runs.events import read_records
from pads.studies import STUDIES
from pads.studies.seeds import read_rows

Row = Mapping[str, Any]

KEPT = ("reward", "perplexity", "policy_entropy", "recall@1", "nmi")
"""What is kept of an adjustment, where it is there."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path, help="folders with seeds.csv and runs/ARM-SEED/")
    parser.add_argument("results", type=Path, help="the folder of evidence")
    parser.add_argument(
        "--without-seconds", action="store_true", help="for runs that shared their machine with other work"
    )
    parser.add_argument(
        "--cut", action="append", default=[], metavar="ARM-SEED", help="a run without a row whose curves are kept"
    )
    options = parser.parse_args(arguments)
    for study in options.studies:
        if not (study / "seeds.csv").is_file() or not (study / "runs").is_dir():
            raise SystemExit(f"gather: {study} is no folder of a study: it has no seeds.csv or no runs/.")
    for name in options.cut:
        found = [study for study in options.studies if is_cut(study, name)]
        if len(found) != 1:
            raise SystemExit(
                f"gather: --cut {name} needs one study with a run of that name and no row of it: {len(found)} do."
            )
    gather(options.studies, options.results, with_seconds=not options.without_seconds, cut=options.cut)


def gather(studies: Sequence[Path], results: Path, *, with_seconds: bool = True, cut: Sequence[str] = ()) -> None:
    results.mkdir(parents=True, exist_ok=True)
    seeds = sort_rows(studies)
    write(results / "seeds.csv", [row if with_seconds else {**row, "seconds": ""} for _, row in seeds])
    for study, recipe in dict.fromkeys((study, row["recipe"]) for study, row in seeds):
        (results / f"{recipe}.json").write_text(drop_paths((study / f"{recipe}.json").read_text()))
    runs: list[tuple[Row, Path]] = [(row, study / "runs" / f"{row['recipe']}-{row['seed']}") for study, row in seeds]
    for study, name in ((study, name) for name in cut for study in studies if is_cut(study, name)):
        arm, _, seed = name.rpartition("-")
        runs.append(({"recipe": f"{arm}-cut", "seed": seed}, study / "runs" / name))
        (results / f"{arm}-cut.json").write_text(drop_paths((study / f"{arm}.json").read_text()))
    for name, read in CURVES.items():
        write(results / f"{name}.csv", [{**key_of(row), **each} for row, run in runs for each in read(run)])
    abouts = {(study / "study.json").read_text() for study in studies if (study / "study.json").exists()}
    if len(abouts) == 1:
        (results / "study.json").write_text(abouts.pop())


def key_of(row: Row) -> Row:
    return {"recipe": row["recipe"], "seed": row["seed"]}


def is_cut(study: Path, name: str) -> bool:
    rows = {f"{row['recipe']}-{row['seed']}" for row in read_rows(study / "seeds.csv")}
    return (study / "runs" / name).is_dir() and name not in rows


def sort_rows(studies: Sequence[Path]) -> list[tuple[Path, dict[str, str]]]:
    """Sort the rows of every seeds.csv by arm and then by seed, whichever folders the runs of an arm are in."""
    rows = [(study, row) for study in studies for row in read_rows(study / "seeds.csv")]
    names = list(dict.fromkeys(name for study in studies for name in arms_run(study)))
    return sorted(rows, key=lambda each: (names.index(each[1]["recipe"]), int(each[1]["seed"])))


def arms_run(study: Path) -> list[str]:
    """The arms that have a row, in the order of the study's own table."""
    names, about = list(dict.fromkeys(row["recipe"] for row in read_rows(study / "seeds.csv"))), study / "study.json"
    if about.exists():
        arms = [arm.name for arm in STUDIES[json.loads(about.read_text())["study"]].arms]
        names.sort(key=[*arms, *names].index)  # a name that was given to older runs comes last
    return names


def events(run: Path, name: str) -> list[Row]:
    return [event for event in read_records(run / "events.jsonl") if event["event"] == name]


def adaptations(run: Path) -> list[Row]:
    """Reward, perplexity and mean entropy of the policy at each adjustment."""
    rows: list[Row] = []
    for event in events(run, "adaptation"):
        entropies = event.get("policy_entropies")
        known = {**event, **({"policy_entropy": fmean(entropies)} if entropies else {})}
        rows.append({"step": event["step"], **{name: known.get(name) for name in KEPT}})
    return rows


def distributions(run: Path) -> list[Row]:
    """The probability of each bin, whenever the selection split was measured."""
    adjusted = [event for event in events(run, "adaptation") if "distribution" in event]
    rows: list[Row] = []
    for measured in events(run, "selection"):
        if before := [event["distribution"] for event in adjusted if event["step"] <= measured["step"]]:
            bins = {f"bin_{number}": share for number, share in enumerate(before[-1], 1)}
            rows.append({"step": measured["step"], "epoch": measured["epoch"], **bins})
    return rows


def training(run: Path) -> list[Row]:
    """Of the triplets drawn: how many cost something or had a negative of the anchor's class; how far the negatives were.

    And the mean boundary of a loss where it rises.
    """
    names = ("step", "violation_share", "negative_of_class_share", "negative_distance", "boundary")
    return [{name: event.get(name) for name in names} for event in events(run, "training")]


def selections(run: Path) -> list[Row]:
    """The selection split over training."""
    names = ("step", "epoch", "recall@1", "map@r")
    return [{name: event[name] for name in names} for event in events(run, "selection")]


CURVES: Mapping[str, Callable[[Path], Iterable[Row]]] = {
    "adaptations": adaptations,
    "distributions": distributions,
    "training": training,
    "selection_curves": selections,
    "test_curves": lambda run: read_records(run / "test_curve.jsonl"),
}
"""The files of a folder of evidence, and what reads their rows from a run."""


def drop_paths(config: str) -> str:
    """Return the config with the name of the weights in place of their path, and no place of the images."""
    changed = json.loads(config)
    weights = changed["network"]["weights"]
    changed["data"]["root"] = None
    changed["network"]["weights"] = weights and Path(weights).name
    return json.dumps(changed, indent=2) + "\n"


def write(path: Path, rows: Iterable[Row]) -> None:
    """Numbers with five digits; no column that is empty throughout but those of seeds.csv, no file without a row."""
    rows = list(rows)
    if not rows:
        return
    names = dict.fromkeys(name for row in rows for name in row)
    used = [name for name in names if path.name == "seeds.csv" or any(row.get(name) is not None for row in rows)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(used)
        writer.writerows([short(row.get(name)) for name in used] for row in rows)


def short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
