"""The tables of a study, worked out by hand for made-up rows."""

import csv
import io
import json
import re
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pads.config import Config
from pads.errors import UserError
from pads.runs import RunFolder
from pads.studies import STUDIES, Arm, Result, Study, pads, print_report, udist, write_report
from pads.studies.arms import base_config
from pads.studies.claims import CLAIMS, NOT_RUN, hold_claims, print_claims, write_claims
from pads.studies.costs import print_costs, rates_of, run_seconds, study_seconds
from pads.studies.plan import Plan
from pads.studies.seeds import append_row

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "r-precision", "nmi")
PAPER = {"cub200": {"recall@1": 65.7, "nmi": 69.2}}
STUDY = Study(
    "made-up",
    "two arms",
    (Arm("static", udist), Arm("learned", pads, PAPER)),
    reference="static",
    published={"cub200": {"Somebody": {"recall@1": 61.5}}},
    notes=("A note.",),
)


def row(arm, seed, recall, seconds="10.0", **others):
    values = {
        f"{when}_{metric}": recall for when in ("untrained", "last", "selected", "best_test") for metric in METRICS
    }
    about = {"recipe": arm, "seed": seed, "epochs": 150, "selected_epoch": 5, "best_test_epoch": 20}
    return {key: str(value) for key, value in {**about, **values, "seconds": seconds, **others}.items()}


def made_up(out: Path, base: str = "cub200", rows=None, failures=None) -> Result:
    rows = rows or [row("static", 0, 0.60), row("static", 1, 0.62), row("learned", 0, 0.61), row("learned", 1, 0.65)]
    return Result(Plan(STUDY, out, base, (0, 1)), tuple(rows), failures or {})


def test_the_markdown_table_has_means_spread_intervals_differences_and_the_paper(tmp_path):
    write_report(made_up(tmp_path))
    text = (tmp_path / "table.md").read_text()
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}
    static = (
        "| static | 2 | 61.0 ± 1.4 | 61.0 ± 1.4 | 61.0 ± 1.4 | 61.0 ± 1.4 | 61.0 ± 1.4 | 61.0 ± 1.4 | [48.29, 73.71] |"
    )
    assert lines["static"].startswith(static)
    # differences of 1 and 3 points: 2 ± t(0.975, 1) * 1.414 / 1.414 = 2 ± 12.706
    assert "+2.00 [-10.71, +14.71] | 65.7 | 69.2 | 10 |" in lines["learned"]
    assert lines["Somebody (published)"].count("61.5") == 1
    for kind in ("selected epoch", "last epoch", "best test epoch (test-selected)"):
        assert f"**{kind}**" in text
    assert "- A note." in text
    assert "2 seeds where the protocol asks for five" in text
    assert "pads study controls" in text


def test_the_csv_holds_the_numbers_unrounded(tmp_path):
    write_report(made_up(tmp_path))
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    found = next(r for r in rows if (r["arm"], r["when"], r["metric"]) == ("learned", "selected", "recall@1"))
    assert (found["n"], float(found["mean"]), float(found["paper"])) == ("2", pytest.approx(63.0), 65.7)
    assert float(found["difference"]) == pytest.approx(2.0)
    assert float(found["difference_high"]) == pytest.approx(2 + 12.7062, abs=1e-4)
    assert len(rows) == 2 * 3 * 7


def test_the_latex_is_balanced_and_escaped(tmp_path):
    write_report(made_up(tmp_path))
    text = (tmp_path / "table.tex").read_text()
    assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") == 3
    assert "61.0 $\\pm$ 1.4" in text
    assert "95 \\% interval" in text
    assert "[$-$10.71, +14.71]" in text
    for line in text.splitlines():
        if line.endswith("\\\\"):
            assert line.count(" & ") == text.splitlines()[4].count(" & ")


def test_on_other_data_the_papers_figures_stand_beside_under_its_name(tmp_path):
    write_report(made_up(tmp_path, base="emoji"))
    text = (tmp_path / "table.md").read_text()
    assert "paper (cub200) R@1" in text
    assert "Somebody" not in text


def test_without_a_test_curve_there_is_no_table_of_the_best_test_epoch(tmp_path):
    rows = [row("static", 0, 0.6, **{f"best_test_{metric}": "" for metric in METRICS})]
    write_report(made_up(tmp_path, rows=rows))
    assert "test-selected)" not in (tmp_path / "table.md").read_text()


def test_an_arm_without_runs_is_an_empty_line_and_a_failure_is_told(tmp_path):
    result = made_up(tmp_path, rows=[row("static", 0, 0.6)], failures={("learned", 0): "out of luck."})
    write_report(result)
    assert "| learned | 0 |" in (tmp_path / "table.md").read_text()
    console = Console(file=io.StringIO(), width=150)
    print_report(result, console)
    said = console.file.getvalue()
    assert "learned, seed 0 failed: out of luck." in said
    assert "3 runs missing; the same command tries again." in said


def test_the_terminal_shows_all_three_kinds_of_epochs(tmp_path):
    rows = [row("static", s, 0.6, **{"last_recall@1": 0.5, "best_test_recall@1": 0.7}) for s in (0, 1)]
    console = Console(file=io.StringIO(), width=150)
    print_report(made_up(tmp_path, rows=rows), console)
    line = next(line for line in console.file.getvalue().splitlines() if line.strip().startswith("static"))
    assert "60.0 ± 0.0" in line
    assert "50.0 ± 0.0" in line
    assert "70.0 ± 0.0" in line


def test_figures_that_were_picked_on_the_test_split_say_so_everywhere(tmp_path):
    result = made_up(tmp_path)
    result = replace(result, plan=replace(result.plan, settings=("data.paper_protocol=true",)))
    write_report(result)
    assert "**selected epoch (test-selected)**" in (tmp_path / "table.md").read_text()
    assert "% selected epoch (test-selected)" in (tmp_path / "table.tex").read_text()
    console = Console(file=io.StringIO(), width=150)
    print_report(result, console)
    assert "in percent, test-selected" in console.file.getvalue()


def test_a_narrow_terminal_shows_less_and_wraps_nothing(tmp_path):
    for width in (150, 120, 100, 80):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        print_report(made_up(tmp_path), console)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue()).splitlines()
        assert all(len(line.rstrip()) <= width for line in lines if not line.startswith("The tables are in"))
        static = [line for line in lines if line.strip().startswith("static")]
        assert len(static) == 1
        assert "61.0 ± 1.4" in static[0]
        learned = next(line for line in lines if line.strip().startswith("learned"))
        assert "+2.00 [-10.71, +14.71]" in learned


def test_the_figures_are_drawn_for_the_arms_that_logged_a_distribution(tmp_path, monkeypatch):
    drawn = {}

    def draw_curricula(rows, folder):
        drawn.update({arm: [run.path.name for run in runs] for arm, runs in rows.items()})
        (folder / "curricula.png").write_bytes(b"")

    figures = types.SimpleNamespace(draw_curricula=draw_curricula, draw_initial=lambda folder: None)
    monkeypatch.setitem(sys.modules, "pads.reports", types.SimpleNamespace(figures=figures))
    monkeypatch.setitem(sys.modules, "pads.reports.figures", figures)
    for name, event in (("static-0", {"loss": 1}), ("learned-0", {"distribution": [0.5]}), ("static-1", {})):
        run = RunFolder.create(tmp_path / "runs" / name, Config())
        with run:
            run.append("events.jsonl", {"event": "adaptation", **event})
    rows = [row("static", 0, 0.6), row("static", 1, 0.6), row("learned", 0, 0.6)]
    assert tmp_path / "figures" / "curricula.png" in write_report(made_up(tmp_path, rows=rows))
    assert drawn == {"learned": ["learned-0"]}


# -- claims -------------------------------------------------------------------------------------------------------------


def study_folder(root: Path, study: str, base: str, recalls: dict[str, list[float]]) -> Path:
    folder = root / f"{study}-{base}"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps({"study": study, "base": base, "data": base}))
    for arm, values in recalls.items():
        for seed, value in enumerate(values):
            append_row(folder / "seeds.csv", row(arm, seed, value))
    return folder


def found_of(held, says):
    return next(found for claim, found in held if claim.says.startswith(says))


def test_claims_are_held_against_the_runs_that_are_there(tmp_path):
    study_folder(
        tmp_path,
        "frequency",
        "cub200",
        {
            "static": [0.60, 0.61, 0.62],
            "M-infinity": [0.58, 0.59, 0.601],
            "M-30": [0.60, 0.59, 0.59],
            "M-10": [0.7] * 3,
        },
    )
    study_folder(tmp_path, "frequency", "emoji", {"static": [0.1, 0.1], "M-infinity": [0.9, 0.9]})
    held = hold_claims(tmp_path, "cub200")
    assert len(held) == len(CLAIMS)
    below = found_of(held, "M = infinity")
    assert below.verdict == "holds"
    assert below.words.startswith("+1.97 [")
    assert found_of(held, "adapting (M = 30)").verdict == "cannot be told"
    assert found_of(held, "M = 30 above M = 10").verdict == "does not hold"
    assert found_of(held, "M = 30 above M = 100") is NOT_RUN
    assert found_of(held, "margin loss: PADS") is NOT_RUN
    text = write_claims(held, "cub200", tmp_path / "claims").read_text()
    assert text.count("\n| ") == len(CLAIMS) + 1
    assert "not run" in text
    console = Console(file=io.StringIO(), width=150)
    print_claims(held, "cub200", console)
    assert "does not hold" in console.file.getvalue()


def test_one_seed_decides_no_claim(tmp_path):
    study_folder(tmp_path, "controls", "cub200", {"pads": [0.6], "random-actions": [0.5]})
    assert found_of(hold_claims(tmp_path, "cub200"), "the learned policy").verdict == "one seed: no verdict"


def test_the_time_per_step_and_the_progression_are_read_from_the_runs(tmp_path):
    folder = study_folder(tmp_path, "controls", "cub200", {"pads": [0.6, 0.6], "udist": [0.6, 0.6]})
    for arm, seconds, widths in (("pads", 1.1, (9.0, 3.0, 2.0)), ("udist", 1.0, ())):
        for seed in (0, 1):
            run = folder / "runs" / f"{arm}-{seed}"
            run.mkdir(parents=True)
            times = {10: 50.0, 20: seconds, 30: seconds}
            records = [{"step": step, "seconds": took, "images_per_second": 99.0} for step, took in times.items()]
            (run / "timing.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
            events = [{"event": "adaptation", "step": 30, "perplexity": width} for width in widths]
            (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    held = hold_claims(tmp_path, "cub200")
    assert found_of(held, "at M = 30 an epoch") == ("+10% time per step", "holds")
    assert found_of(held, "p first peaks") == ("bins in use 9.0, 3.0, 2.0; so in 0 of 2 runs", "does not hold")


def test_a_comparison_with_published_numbers_is_for_their_data_set_alone(tmp_path):
    study_folder(tmp_path, "baselines", "emoji", {"margin-pads": [0.7, 0.7, 0.7]})
    assert found_of(hold_claims(tmp_path, "emoji"), "CUB: above all") is NOT_RUN
    study_folder(tmp_path, "baselines", "cub200", {"margin-pads": [0.67, 0.68, 0.69]})
    assert found_of(hold_claims(tmp_path, "cub200"), "CUB: above all").words.startswith("+1.70")


def test_claims_without_any_study_say_what_to_run(tmp_path):
    with pytest.raises(UserError, match=r"no study of emoji .* `pads study controls --recipe-base emoji`"):
        hold_claims(tmp_path, "emoji")


def test_every_claim_names_arms_that_exist(tmp_path):
    """A study with every arm leaves no claim about it unanswered, but those that read the run folders."""
    for name, study in STUDIES.items():
        study_folder(tmp_path, name, "cub200", {arm.name: [0.5, 0.6, 0.7] for arm in study.arms})
    missing = [claim.says for claim, found in hold_claims(tmp_path, "cub200") if found is NOT_RUN]
    assert missing == [
        "at M = 30 an epoch takes less than 20 % more time",
        "p first peaks on few bins, then becomes wider",
    ]


# -- costs --------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_run_is_its_images_over_the_rate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = udist(base_config("cub200", scheduled=False))
    bench = {"network": "resnet50", "device": "a GPU", "images_per_second": {"static sampling": 1000.0, "PADS": 500.0}}
    Path("bench.json").write_text(json.dumps(bench))
    rates = rates_of(config)
    assert rates == (1000.0, 500.0, "a GPU, bench.json")
    images = 5864 * 0.9 * 0.85
    evaluations = (4 + 150 // 20) * 5924 / 3 / 1000
    assert run_seconds(config, rates) == pytest.approx(150 * images / 1000 + evaluations)
    assert run_seconds(pads(config), rates) == pytest.approx(150 * images / 500 + evaluations)
    assert run_seconds(replace(pads(config), adapt_every=None), rates) == run_seconds(config, rates)
    assert rates_of(base_config("emoji", scheduled=False)).words.endswith("emoji")  # bench.json is of another network
    total, words = study_seconds(STUDIES["bins"], "cub200", 5)
    assert (total, words) == (pytest.approx(20 * run_seconds(pads(config), rates)), "a GPU, bench.json")
    Path("bench.json").unlink()
    assert "H200" in rates_of(config).words
    with pytest.raises(UserError, match="not what `pads bench` writes"):
        rates_of(config, Path("bench.json"))


def test_the_list_names_every_study_and_says_where_its_costs_are_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO(), width=200)
    print_costs("folder", 5, None, console)
    said = console.file.getvalue()
    assert all(name in said for name in [*STUDIES, "claims"])
    assert "unknown" in said
    print_costs(None, 5, None, console)
    assert "benchmarks/h200.json" in console.file.getvalue()
