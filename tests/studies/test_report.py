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
from pads.studies.arms import base_config, with_part
from pads.studies.claims import CLAIMS, NOT_RUN, Evidence, best, hold_claims, print_claims, read_evidence, write_claims
from pads.studies.costs import RATES, Rates, run_seconds, study_seconds
from pads.studies.plan import Plan
from pads.studies.seeds import append_row, read_rows

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


def make_result(out: Path, base: str = "cub200", rows=None, failures=None) -> Result:
    rows = rows or [row("static", 0, 0.60), row("static", 1, 0.62), row("learned", 0, 0.61), row("learned", 1, 0.65)]
    return Result(Plan(STUDY, out, base, (0, 1)), tuple(rows), failures or {})


def test_the_markdown_table_has_means_spread_intervals_differences_and_the_paper(tmp_path):
    write_report(make_result(tmp_path))
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
    write_report(make_result(tmp_path))
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    found = next(r for r in rows if (r["arm"], r["when"], r["metric"]) == ("learned", "selected", "recall@1"))
    assert (found["n"], float(found["mean"]), float(found["paper"])) == ("2", pytest.approx(63.0), 65.7)
    assert float(found["difference"]) == pytest.approx(2.0)
    assert float(found["difference_high"]) == pytest.approx(2 + 12.7062, abs=1e-4)
    assert len(rows) == 2 * 3 * 7


def test_the_latex_is_balanced_and_escaped(tmp_path):
    write_report(make_result(tmp_path))
    text = (tmp_path / "table.tex").read_text()
    assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") == 3
    assert "61.0 $\\pm$ 1.4" in text
    assert "95 \\% interval" in text
    assert "[$-$10.71, +14.71]" in text
    for line in text.splitlines():
        if line.endswith("\\\\"):
            assert line.count(" & ") == text.splitlines()[4].count(" & ")


def test_on_other_data_the_papers_figures_stand_beside_under_its_name(tmp_path):
    write_report(make_result(tmp_path, base="emoji"))
    text = (tmp_path / "table.md").read_text()
    assert "paper (cub200) R@1" in text
    assert "Somebody" not in text


def test_without_a_test_curve_there_is_no_table_of_the_best_test_epoch(tmp_path):
    rows = [row("static", 0, 0.6, **{f"best_test_{metric}": "" for metric in METRICS})]
    write_report(make_result(tmp_path, rows=rows))
    assert "test-selected)" not in (tmp_path / "table.md").read_text()


def test_an_arm_without_runs_is_an_empty_line_and_a_failure_is_told(tmp_path):
    result = make_result(tmp_path, rows=[row("static", 0, 0.6)], failures={("learned", 0): "out of luck."})
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
    print_report(make_result(tmp_path, rows=rows), console)
    line = next(line for line in console.file.getvalue().splitlines() if line.strip().startswith("static"))
    assert "60.0 ± 0.0" in line
    assert "50.0 ± 0.0" in line
    assert "70.0 ± 0.0" in line


def with_arms(result: Result, *arms: Arm) -> Result:
    return replace(result, plan=replace(result.plan, study=replace(result.plan.study, arms=arms)))


def said_of(result: Result, tmp_path: Path) -> tuple[str, str, list[dict[str, str]], str]:
    """table.md, table.tex and table.csv, and what the terminal shows."""
    write_report(result)
    console = Console(file=io.StringIO(), width=200)
    print_report(result, console)
    markdown, latex, table = ((tmp_path / f"table.{kind}").read_text() for kind in ("md", "tex", "csv"))
    return markdown, latex, list(csv.DictReader(table.splitlines())), console.file.getvalue()


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
def test_only_the_arm_that_selected_on_the_test_split_is_marked_wherever_it_stands(tmp_path, place):
    """The mark belongs to a row: `pads study factors` has one arm of ten that selects on the test split."""
    on_test = Arm("learned", with_part(pads, "data", paper_protocol=True), PAPER)
    arms = [Arm("static", udist)]
    arms.insert(place, on_test)
    markdown, latex, rows, terminal = said_of(with_arms(make_result(tmp_path), *arms), tmp_path)
    selected = markdown.partition("**selected epoch**")[2].partition("**last epoch**")[0]
    assert "| learned (test-selected) | 2 |" in selected
    assert "| static | 2 |" in selected
    assert "learned (test-selected) & 2" in latex
    assert "\nstatic & 2" in latex
    assert re.search(r"^ *learned \(test-selected\) +2 ", terminal, re.MULTILINE)
    assert re.search(r"^ *static +2 ", terminal, re.MULTILINE)
    marked = {(row["arm"], row["when"]) for row in rows if row["test_selected"] == "yes"}
    assert marked == {("learned", "selected"), ("learned", "best_test"), ("static", "best_test")}
    footer = "held-out training classes, that of learned on the test split itself (test-selected)"
    assert footer in markdown


def test_every_row_of_the_best_test_epoch_is_marked_and_none_of_the_last(tmp_path):
    markdown, *_ = said_of(make_result(tmp_path), tmp_path)
    last, best_test = markdown.partition("**last epoch**")[2].split("**best test epoch (test-selected)**")
    assert "test-selected" not in last
    assert "| static (test-selected) | 2 |" in best_test
    assert "| learned (test-selected) | 2 |" in best_test
    assert "picked on held-out training classes;" in markdown


def test_where_every_arm_selected_on_the_test_split_the_note_says_so(tmp_path):
    result = make_result(tmp_path)
    result = replace(result, plan=replace(result.plan, settings=("data.paper_protocol=true",)))
    markdown, *_ = said_of(result, tmp_path)
    assert "picked on the test split itself (test-selected);" in markdown
    assert "held-out" not in markdown


def test_a_narrow_terminal_shows_less_and_wraps_nothing(tmp_path):
    for width in (150, 120, 100, 80):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        print_report(make_result(tmp_path), console)
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
    assert tmp_path / "figures" / "curricula.png" in write_report(make_result(tmp_path, rows=rows))
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


def hold_below(root: Path, base: str):
    return hold_claims(read_evidence(root, base))


def found_of(held, says):
    return next(found for claim, found in held if claim.says.startswith(says))


def test_claims_are_held_against_the_runs_that_are_there(tmp_path):
    adapted = {"M-infinity": [0.58, 0.59, 0.601], "M-30": [0.60, 0.59, 0.59], "M-10": [0.7] * 3}
    study_folder(tmp_path, "frequency", "cub200", {"static": [0.60, 0.61, 0.62], **adapted})
    study_folder(tmp_path, "frequency", "emoji", {"static": [0.1, 0.1], "M-infinity": [0.9, 0.9]})
    held = hold_below(tmp_path, "cub200")
    assert len(held) == len(CLAIMS)
    below = found_of(held, "U-dist above M = infinity")
    assert below.verdict == "holds"
    assert below.words.startswith("+1.97 [")
    assert found_of(held, "adapting (M = 30)").verdict == "not resolved by 3 seeds"
    assert found_of(held, "M = 30 above M = 10").verdict == "does not hold"
    assert found_of(held, "M = 30 above M = 100") is NOT_RUN
    assert found_of(held, "margin loss: PADS") is NOT_RUN
    text = write_claims(held, "cub200", tmp_path / "claims", ["frequency: somewhere"]).read_text()
    assert text.endswith("- frequency: somewhere\n")
    assert text.count("\n| ") == len(CLAIMS) + 1
    assert "not run" in text
    console = Console(file=io.StringIO(), width=150)
    print_claims(held, "cub200", console)
    assert "does not hold" in console.file.getvalue()


def test_one_seed_decides_no_claim(tmp_path):
    study_folder(tmp_path, "controls", "cub200", {"pads": [0.6], "random-actions": [0.5]})
    assert found_of(hold_below(tmp_path, "cub200"), "the learned policy").verdict == "one seed: no verdict"


SENTENCES = {
    "above": "the learned policy above random actions",
    "not above": "plain Q-learning is not above",
}


@pytest.mark.parametrize(
    ("sentence", "differences", "verdict"),
    [
        ("above", [1.0, 3.0, 5.0, 3.0, 3.0], "holds"),  # 3 ± 1.8: wide, but on one side
        ("above", [-1.0, -3.0, -5.0, -3.0, -3.0], "does not hold"),
        ("above", [0.2, -0.2, 0.4, -0.4, 0.1], "level"),  # 0 ± 0.4
        ("above", [2.0, -2.0, 3.0, -1.0, 1.0], "not resolved by 5 seeds"),
        ("not above", [0.2, -0.2, 0.4, -0.4, 0.1], "holds"),
        ("not above", [2.0, -2.0, 3.0, -1.0, 1.0], "not resolved by 5 seeds"),
        ("not above", [-1.0, -3.0, -5.0, -3.0, -3.0], "holds"),
        ("not above", [1.0, 3.0, 5.0, 3.0, 3.0], "does not hold"),
    ],
)
def test_only_a_narrow_interval_says_that_two_arms_are_level(tmp_path, sentence, differences, verdict):
    theirs = [0.6] * len(differences)
    ours = [0.6 + points / 100 for points in differences]
    study_folder(tmp_path, "controls", "cub200", {"pads": ours, "random-actions": theirs})
    study_folder(tmp_path, "agents", "cub200", {"q-learning": ours, "static": theirs})
    assert found_of(hold_below(tmp_path, "cub200"), SENTENCES[sentence]).verdict == verdict


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ({"bins-10": [0.60, 0.60, 0.60], "bins-50": [0.70, 0.71, 0.70]}, "does not hold"),  # above one, below the other
        ({"bins-10": [0.60, 0.60, 0.60], "bins-50": [0.61, 0.61, 0.61]}, "holds"),
        ({"bins-10": [0.60, 0.60, 0.60], "bins-50": [0.40, 0.70, 0.55]}, "not resolved by 3 seeds"),  # the lower mean
        ({"bins-10": [0.60, 0.60, 0.60], "bins-50": [0.649, 0.651, 0.650]}, "level"),
        ({"bins-10": [0.60, 0.60, 0.60], "bins-50": []}, "not all arms run"),
        ({"bins-10": [0.70, 0.71, 0.70], "bins-50": []}, "does not hold"),
    ],
)
def test_the_best_arm_is_above_every_other_not_above_the_closest_alone(tmp_path, others, verdict):
    study_folder(tmp_path, "bins", "cub200", {"bins-30": [0.65, 0.65, 0.65], **others})
    found = best("", "", "bins", "bins-30", "bins-10", "bins-50").find(Evidence(tmp_path, "cub200"))
    assert found.verdict == verdict
    assert all(f"to {name} " in found.words for name, runs in others.items() if runs)


@pytest.mark.parametrize(
    ("says", "paper"),
    [
        # typed from the paper's tables
        ("margin loss: PADS above U-dist", "CUB +3.8, CARS +3.4, SOP +1.9"),
        ("PADS above the non-linear curriculum", "CUB +3.7, CARS +5.4 (text: CUB 3.6)"),
        ("every interval above static sampling", "CUB +0.2 to +2.2"),
        ("plain Q-learning is not above static sampling", "CUB -0.3"),
        ("above the initial distribution, never adapted", ""),
    ],
)
def test_the_number_of_a_claim_is_the_difference_in_the_papers_tables(says, paper):
    assert [claim.paper for claim in CLAIMS if claim.says == says] == [paper]


def test_evidence_may_call_an_arm_otherwise_and_take_it_from_another_folder(tmp_path):
    """As results/ does: arms under the names of their recipes, and the controls of a series in a folder of their own."""
    series = study_folder(tmp_path, "baselines", "cub200", {"cub-udist": [0.60, 0.60], "cub-pads": [0.62, 0.63]})
    more = study_folder(tmp_path, "controls", "cub200", {"chance": [0.60, 0.62]})
    names = {"margin-udist": "cub-udist", "margin-pads": "cub-pads"}
    describe(series, "baselines", arms=names, setting="Small images.")
    describe(more, "controls", arms={"pads": f"{series.name}/cub-pads", "random-actions": "chance"})
    held = hold_below(tmp_path, "cub200")
    assert found_of(held, "margin loss: PADS above U-dist").words.startswith("+2.50 [")
    assert found_of(held, "the learned policy above random").words.startswith("+1.50 [")
    assert Evidence(tmp_path, "cub200").sources() == [
        f"baselines: {series.name}. Small images.",
        f"controls: {more.name}.",
    ]


def describe(folder: Path, study: str, **more) -> None:
    about = {"study": study, "base": "cub200", "data": "cub200", **more}
    (folder / "study.json").write_text(json.dumps(about))


def test_a_number_that_was_picked_on_the_test_split_is_marked_in_a_claim(tmp_path):
    folder = study_folder(tmp_path, "controls", "cub200", {"pads": [0.6, 0.61], "random-actions": [0.5, 0.52]})
    (folder / "pads.json").write_text(json.dumps({"data": {"paper_protocol": True}}))
    held = hold_below(tmp_path, "cub200")
    assert found_of(held, "the learned policy").words.endswith("n = 2, test-selected")
    (folder / "pads.json").write_text(json.dumps({"data": {"paper_protocol": False}}))
    assert found_of(hold_below(tmp_path, "cub200"), "the learned policy").words.endswith("n = 2")


def test_the_progression_is_read_from_the_evidence_where_the_runs_are_gone(tmp_path):
    folder = study_folder(tmp_path, "controls", "cub200", {"pads": [0.6, 0.6]})
    lines = ["recipe,seed,perplexity", *(f"pads,{seed},{width}" for seed in (0, 1) for width in (9, 3, 2 + 4 * seed))]
    (folder / "adaptations.csv").write_text("\n".join([*lines, "other,0,1"]) + "\n")
    found = found_of(hold_below(tmp_path, "cub200"), "p first peaks")
    assert found == ("bins in use 9.0, 3.0, 4.0; so in 1 of 2 runs", "does not hold")


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
    held = hold_below(tmp_path, "cub200")
    assert found_of(held, "at M = 30 an epoch") == ("+10% time per step, n = 2", "holds")
    assert found_of(held, "p first peaks") == ("bins in use 9.0, 3.0, 2.0; so in 0 of 2 runs", "does not hold")


def test_a_comparison_with_published_numbers_is_for_their_data_set_alone(tmp_path):
    study_folder(tmp_path, "baselines", "emoji", {"margin-pads": [0.7, 0.7, 0.7]})
    assert found_of(hold_below(tmp_path, "emoji"), "CUB: above all").words.endswith("the sentence is about CUB alone")
    study_folder(tmp_path, "baselines", "cub200", {"margin-pads": [0.67, 0.68, 0.69]})
    assert found_of(hold_below(tmp_path, "cub200"), "CUB: above all").words.startswith("+1.70")


def test_claims_without_any_study_say_what_to_run(tmp_path):
    with pytest.raises(UserError, match=r"no study of emoji .* `pads study controls --recipe-base emoji`"):
        hold_below(tmp_path, "emoji")


def test_every_claim_names_arms_that_exist(tmp_path):
    """A study with every arm leaves no claim about it unanswered, but one that reads the adjustments."""
    for name, study in STUDIES.items():
        study_folder(tmp_path, name, "cub200", {arm.name: [0.5, 0.6, 0.7] for arm in study.arms})
    missing = [claim.says for claim, found in hold_below(tmp_path, "cub200") if found is NOT_RUN]
    assert missing == ["p first peaks on few bins, then becomes wider"]


# -- costs --------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_run_is_its_images_over_the_rate(monkeypatch):
    config = udist(base_config("cub200", scheduled=False))
    rates = Rates(1000.0, 500.0, "a GPU")
    monkeypatch.setitem(RATES, "resnet50", rates)
    images = 5864 * 0.9 * 0.85
    evaluations = (4 + 150 // 20) * 5924 / 3 / 1000
    assert run_seconds(config, rates) == pytest.approx(150 * images / 1000 + evaluations)
    assert run_seconds(pads(config), rates) == pytest.approx(150 * images / 500 + evaluations)
    assert run_seconds(replace(pads(config), adapt_every=None), rates) == run_seconds(config, rates)
    total, words = study_seconds(STUDIES["bins"], "cub200", 5)
    assert (total, words) == (pytest.approx(20 * run_seconds(pads(config), rates)), "a GPU")


def test_the_time_per_run_stands_in_where_the_runs_are_gone(tmp_path):
    folder = study_folder(tmp_path, "controls", "cub200", {"pads": [0.6, 0.6], "udist": [0.6, 0.6]})
    rows = read_rows(folder / "seeds.csv")
    (folder / "seeds.csv").unlink()
    for row in rows:
        append_row(folder / "seeds.csv", {**row, "seconds": 13.0 if row["recipe"] == "pads" else 10.0})
    found = found_of(hold_below(tmp_path, "cub200"), "at M = 30 an epoch")
    assert found == ("+30% time per run, n = 2", "does not hold")
