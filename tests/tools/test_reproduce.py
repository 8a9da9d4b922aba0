"""tools/reproduce.py and the page that is made from it: every part is a study that can run, and is what the issue fixed."""

import argparse
import re
from pathlib import Path

import pytest

from pads.check import check
from pads.config import Config
from pads.data.emoji import emoji
from pads.data.splits import split_roles
from pads.studies import STUDIES
from pads.studies.claims import Evidence, hold_claims
from pads.studies.engines import Job, Outcome

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("reproduce")


def options(**given):
    usual = {"out": Path("studies"), "data": None, "weights": None, "set": [], "results": None, "minutes": 1.0}
    return argparse.Namespace(**{**usual, **given})


def test_every_part_is_a_plan_of_valid_configs_in_a_folder_of_its_own(tool):
    pieces = [piece for run in tool.RUNS.values() for piece in run]
    assert len({piece.folder for piece in pieces}) == len(pieces)
    for piece in pieces:
        plan = tool.plan_of(piece, options())
        for arm in plan.asked:
            check(plan.config(arm, 0))


def test_the_length_of_the_authors_runs_is_fixed(tool):
    lengths = {}
    for run in "123":
        for piece in tool.RUNS[run]:
            config = tool.plan_of(piece, options()).example
            lengths[piece.folder] = (config.num_epochs, config.optimiser.milestones, config.data.selection_share)
    assert lengths == {
        "cub200-authors": (200, (150,), 0.0),
        "cub200-authors-static": (200, (150,), 0.0),
        "cub200-authors-selected": (200, (150,), 0.1),
        "cub200-authors-300-epochs": (300, (150,), 0.0),
        "cars196-authors": (200, (140,), 0.0),
        "cars196-udist": (300, (140,), 0.0),
        "cub200-controls": (120, (), 0.1),
    }


def test_the_reward_split_of_table_7_on_emoji_is_what_its_arms_say(tool):
    """With the usual 15 % every arm would hold out whole classes, and two of them would be the same."""
    (piece,) = [piece for piece in tool.RUNS["4"] if piece.study == "validation"]
    plan, labels = tool.plan_of(piece, options()), emoji().train.labels
    for arm in plan.asked:
        data = plan.config(arm, 0).data
        roles = split_roles(
            labels,
            selection_share=data.selection_share,
            reward_share=data.reward_share,
            reward_split=data.reward_split,
            seed=0,
        )
        assert not roles.notes
        shared = set(labels[roles.train]) & set(labels[roles.reward])
        assert bool(shared) == arm.name.startswith("per-class")
        assert 0.27 < len(roles.reward) / (len(roles.train) + len(roles.reward)) < 0.30  # as many for every arm


class FakeRuns:
    """A schedule of made-up runs."""

    def __init__(self, name, num):
        self.left, self.finished, self.done = [f"{name}-{number}" for number in range(num)], [], ()
        self.plan = argparse.Namespace(out=Path(f"nowhere/{name}"))

    def next(self):
        return Job("arm", 0, Config(), Path(self.left.pop(0))) if self.left else None

    def finish(self, job, outcome):
        self.finished.append(job.path.name)


def test_the_runs_of_several_studies_are_one_queue_and_each_ends_in_its_own_study(tool):
    studies = [FakeRuns("a", 2), FakeRuns("b", 2)]
    schedule = tool.Together(studies, options())
    jobs = [schedule.next() for _ in range(5)]
    assert [job and job.path.name for job in jobs] == ["a-0", "a-1", "b-0", "b-1", None]
    for job in reversed(jobs[:4]):
        schedule.finish(job, Outcome())
    assert [sorted(study.finished) for study in studies] == [["a-0", "a-1"], ["b-0", "b-1"]]


def test_parts_that_belong_together_make_one_folder_of_evidence_and_those_aside_are_no_study(
    tool, tmp_path, monkeypatch
):
    gathered = {}

    def gather(studies, results):
        results.mkdir(parents=True)
        (results / "study.json").write_text("{}")
        gathered[results.name] = [study.name for study in studies]

    monkeypatch.setattr(tool, "gather", gather)
    pieces = tool.RUNS["1"]
    tool.keep_evidence([tool.plan_of(piece, options()) for piece in pieces], pieces, tmp_path)
    assert gathered == {
        "cub200-authors": ["cub200-authors", "cub200-authors-static"],
        "cub200-authors-selected": ["cub200-authors-selected"],
        "cub200-authors-300-epochs": ["cub200-authors-300-epochs"],
    }
    assert [path.parent.name for path in tmp_path.glob("*/study.json")] == ["cub200-authors"]


def test_no_run_starts_after_the_time_is_up(tool):
    study = FakeRuns("a", 2)
    assert tool.Together([study], options(minutes=-1.0)).next() is None
    assert len(study.left) == 2


def test_the_page_has_every_part_and_a_command_for_all_that_was_not_run(tool):
    page = (ROOT / "docs" / "reproduction.md").read_text()
    for run in tool.RUNS.values():
        for piece in run:
            assert (piece.joins or piece.folder) in page and piece.command() in page
    for section in re.split(r"\n### ", page)[1:]:
        if "| not run" in section:
            assert "- Not run on " in section


class AllRun(Evidence):
    """The evidence as it is when run 4 is done: the rows of every arm of its studies."""

    def __init__(self, studies):
        self.studies, self.data, self.about, self.folders = studies, "emoji", {}, {}

    def rows(self, study, arm):
        if study not in self.studies or arm not in [each.name for each in STUDIES[study].arms]:
            return []
        return [{"seed": seed, "selected_recall@1": 0.4 + 0.01 * seed, "seconds": 20.0} for seed in range(5)]

    def runs(self, study, arm):
        return []

    def perplexities(self, study, arm):
        return [[9.0, 5.0, 6.0] for _ in self.rows(study, arm)]


def test_run_4_answers_every_sentence_on_emoji_but_that_of_inception_bn(tool):
    studies = {piece.study for piece in tool.RUNS["4"]}
    held = hold_claims(AllRun(studies))
    assert [claim.says for claim, found in held if "not run" in found.words] == ["Inception-BN: PADS above U-dist"]
    without_n = [claim.says for claim, found in held if not re.search(r"n = 5|of 5 runs", found.words)]
    assert without_n == ["CUB: above all published methods", "Inception-BN: PADS above U-dist"]
