"""RESULTS.md, the pages in results/ and docs/findings.md say what the evidence says, and no other numbers."""

import csv
import json
import re
from itertools import permutations
from pathlib import Path

import pytest

from pads.studies.claims import hold_claims, read_evidence, write_claims
from pads.studies.seeds import read_rows
from pads.studies.statistics import difference, estimate, interval, paired_difference

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "RESULTS.md").read_text()
FINDINGS = ROOT / "docs" / "findings.md"
FOLDERS = sorted(path.parent for path in (ROOT / "results").glob("*/claim.json"))
REMOVED = (
    "study adaptive",
    "tools/learn_across.py",
    "tools/branches.py",
    "margin-pads-random-actions",
    "margin-pads-fixed-bins",
)
every_folder = pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("results")


def test_every_page_is_made_from_the_evidence(tool):
    for path, text in tool.make_pages().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)}: run python tools/results.py"


def table_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.startswith("| setting")]


def test_the_page_of_results_fits_one_page():
    assert len(RESULTS.encode()) <= 10_240


def test_every_row_links_to_a_folder_that_is_there():
    assert len(table_rows(RESULTS)) > 40
    for row in table_rows(RESULTS):
        (link,) = re.findall(r"\]\((results/[^)]+/)\)", row)
        assert (ROOT / link / "README.md").is_file(), row
        assert (ROOT / link / "seeds.csv").is_file(), row


def test_every_folder_is_linked():
    linked = {Path(link).name for link in re.findall(r"\]\((results/[^)]+/)\)", RESULTS)}
    assert linked == {path.name for path in (ROOT / "results").iterdir()}


# -- a made-up folder of evidence ---------------------------------------------------------------------------------------


@pytest.fixture
def made_up(tool, tmp_path, monkeypatch):
    """Two arms with two seeds, of which `ours` selected on the test split; a second folder has a third arm."""
    monkeypatch.setattr(tool, "RESULTS", tmp_path)
    points = {"ours": (50, 52), "theirs": (49, 48)}
    claim = {
        "title": "Made up", "data": "Emoji", "setting": "two seeds", "claim": "It is.", "command": "true",
        "baseline": "theirs", "borrowed": {"third": "more/a-third"}, "paper": {"ours": 63.5},
        "shown": [["ours", "theirs"], ["theirs", "ours", "last"], ["ours", "third"], ["theirs", "", "best_test"]],
    }  # fmt: skip
    write_folder(tmp_path / "made-up", points, on_test=("ours",), claim=claim)
    write_folder(tmp_path / "more", {"a-third": (40, 41, 42)})
    return tool.read_folder(tmp_path / "made-up")


def write_folder(path, points, on_test=(), claim=None):
    path.mkdir()
    names = [f"{when}_{metric}" for when in ("selected", "last", "best_test") for metric in ("recall@1", "map@r")]
    lines = [",".join(["recipe", "seed", "seconds", *names])]
    for arm, values in points.items():
        lines += [",".join([arm, str(seed), "", *[str(value / 100)] * len(names)]) for seed, value in enumerate(values)]
        config = {"data": {"paper_protocol": arm in on_test}, "select_by": "map@r"}
        (path / f"{arm}.json").write_text(json.dumps(config))
    (path / "seeds.csv").write_text("\n".join(lines) + "\n")
    if claim:
        (path / "claim.json").write_text(json.dumps(claim))


def test_a_row_has_the_paired_seeds_the_difference_what_it_reads_and_who_picked_the_epoch(tool, made_up):
    link = "[two seeds](results/made-up/)"
    assert tool.make_rows(made_up) == [
        [
            link,
            "ours less theirs",
            "2",
            "51.0 ± 1.4",
            "+2.50 [-16.56, +21.56]",
            "not resolved",
            "test-selected",
            "63.5",
        ],
        [link, "theirs less ours", "2", "48.5 ± 0.7", "-2.50 [-21.56, +16.56]", "not resolved", "last", ""],
        [link, "ours less third", "2", "51.0 ± 1.4", "+10.50 [+4.15, +16.85]", "above", "test-selected", "63.5"],
        [link, "theirs", "2", "48.5 ± 0.7", "", "", "test-selected", ""],
    ]


def test_the_tables_of_a_folder_mark_the_rows_that_the_test_split_picked(tool, made_up):
    text = tool.make_readme(made_up)
    selected, last, best = re.split("## (?:Last|Best test) epoch", text.partition("## Selected epoch")[2])
    assert "| `ours` (test-selected) | 2 |" in selected
    assert "| `theirs` | 2 |" in selected
    assert "| `third` of [more](../more/README.md) | 2 |" in selected  # of its three seeds, those of this folder
    assert "test-selected" not in last
    assert "third" not in last + best
    assert "| `ours` (test-selected) | 2 |" in best
    assert "| `theirs` (test-selected) | 2 |" in best


def test_a_column_that_nobody_filled_is_left_out(tool, made_up):
    head = tool.make_table(made_up, "selected")[0]
    assert head == "| arm | n | R@1 | its 95 % interval | less `theirs` | MAP@R | paper R@1 |"


def test_the_table_over_training_has_the_last_epoch_and_not_too_many(tool):
    curves = [{"recipe": "a", "epoch": str(epoch), "recall@1": "0.5"} for epoch in range(5, 205, 5)]
    curves += [{"recipe": "b", "epoch": "200", "recall@1": value} for value in ("0.4", "0.6")]
    head, _, first, second = tool.make_curve_table(curves)
    epochs = head.strip("| ").split(" | ")[1:]
    assert epochs[-1] == "200"
    assert len(epochs) <= tool.MOST_EPOCHS
    assert first.endswith("| 50.0 |")
    assert second.replace("|", "").split() == ["`b`", "50.0"]


# -- words -------------------------------------------------------------------------------------------------------------


def intervals_in(text):
    """Every [low, high] of a text, with the signed number before it if there is one."""
    return set(re.findall(r"(?:[+-]\d+\.\d\d )?\[[+-]?\d+\.\d\d, [+-]?\d+\.\d\d\]", text))


def intervals_of(tool, path):
    """Every interval that the runs of a folder and those that it borrows give: of an arm, and of two arms' difference."""
    folder, found = tool.read_folder(path), set()
    arms = [*folder.arms, *folder.claim.get("borrowed", {})]
    for when in tool.WHEN:
        for metric in ("recall@1", "map@r"):
            figures = {arm: folder.figures(arm, when, metric) for arm in arms}
            found |= {interval(estimate(list(values.values()))) for values in figures.values()}
            found |= {difference(paired_difference(*pair)) for pair in permutations(figures.values(), 2)}
    return found


@every_folder
def test_the_intervals_of_a_claim_are_those_of_its_runs(tool, path):
    claim = json.loads((path / "claim.json").read_text())["claim"]
    assert intervals_in(claim) <= intervals_of(tool, path)


@every_folder
def test_a_command_that_needs_what_was_removed_says_at_which_commit_it_runs(path):
    claim = json.loads((path / "claim.json").read_text())
    used = [name for name in REMOVED if name in claim["command"]]
    assert ("a373c01" in claim.get("needs", "")) == bool(used)
    assert claim.get("needs", "") in (path / "README.md").read_text()


def test_the_findings_fit_their_page_and_have_the_numbers_of_the_evidence(tool):
    text = FINDINGS.read_text()
    assert len(text.encode()) <= 8_192
    assert "a373c01" in text
    assert len(intervals_in(text)) > 5
    assert intervals_in(text) <= set.union(*(intervals_of(tool, path) for path in FOLDERS))
    for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text):
        assert (FINDINGS.parent / picture).is_file()


@pytest.mark.parametrize("base", ["emoji", "cub200", "cars196"])
def test_the_sentences_of_the_paper_are_held_against_the_evidence(tmp_path, base):
    evidence = read_evidence(ROOT / "results", base)
    written = write_claims(hold_claims(evidence), base, tmp_path, evidence.sources())
    assert written.read_text() == (ROOT / "results" / "claims" / base / "claims.md").read_text()


def test_the_rows_of_the_authors_code_are_the_last_and_best_of_its_curves():
    folder = ROOT / "results" / "cub200-authors-code"
    curves = {}
    for row in csv.DictReader((folder / "curves.csv").read_text().splitlines()):
        curves.setdefault((row["code"], row["arm"]), {})[int(row["epoch"])] = float(row["test R@1"])
    for row, curve in zip(read_rows(folder / "seeds.csv"), curves.values(), strict=True):
        best = max(curve, key=curve.__getitem__)
        assert (int(row["epochs"]), int(row["best_test_epoch"])) == (max(curve), best)
        assert 100 * float(row["last_recall@1"]) == pytest.approx(curve[max(curve)])
        assert 100 * float(row["best_test_recall@1"]) == pytest.approx(curve[best])


def test_on_emoji_every_sentence_of_the_paper_has_an_answer_with_its_seeds():
    """But that on Inception-BN, which has no weights here, and that about CUB alone."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in read_claims("emoji") if line.startswith("| ")]
    answers = {says: (here, verdict) for _, says, _, here, verdict in rows[1:]}
    unanswered = {says for says, (_, verdict) in answers.items() if not verdict}
    assert unanswered == {"CUB: above all published methods", "Inception-BN: PADS above U-dist"}
    for says in answers.keys() - unanswered:
        assert re.search(r"n = 5|of 5 runs", answers[says][0]), says


def read_claims(base):
    return (ROOT / "results" / "claims" / base / "claims.md").read_text().splitlines()
