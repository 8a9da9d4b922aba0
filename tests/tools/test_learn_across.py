"""tools/learn_across.py: a policy is carried through a chain of runs and compared with a fresh one."""

import csv

import pytest
import torch

from pads.curricula import LearnedCurriculum
from pads.runs import RunFolder

SMALL = [
    "data.image_size=16", "data.resize=18", "data.store_size=18", "data.classes_per_batch=4",
    "data.samples_per_class=2", "data.reward_share=0.2", "data.selection_share=0.2", "network.embedding_dim=8",
    "num_epochs=2", "adapt_every=1", "test_curve_every=null", "device=cpu", "threads=1",
    "curriculum.options.bins.bound=1.0", "curriculum.options.agent_options.trust=1.0",
]  # fmt: skip


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("learn_across")


@pytest.fixture(scope="module")
def arguments(noisy_photos):
    settings = [word for setting in SMALL for word in ("--set", setting)]
    return ["--base", "folder", "--data", str(noisy_photos(14)), *settings]


@pytest.fixture(scope="module")
def chain(tool, arguments, tmp_path_factory):
    out = tmp_path_factory.mktemp("across")
    tool.main([*arguments, "--runs", "3", "--compare", "1", "--seed", "5", "--out", str(out)])
    return out


def rows(out):
    with (out / "levels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def updates(run):
    return RunFolder.open(run).load_checkpoint()["curriculum"]["agent"]["num_updates"]


def test_each_run_starts_from_the_policy_of_the_run_before_and_the_last_is_compared_with_a_fresh_one(chain):
    names = ["chain-5", "chain-6", "chain-7", "carried-8", "fresh-8"]
    assert [row["run"] for row in rows(chain)] == names
    assert [row["policy"] for row in rows(chain)] == ["fresh", "chain-5", "chain-6", "chain-7", "fresh"]
    assert [RunFolder.open(chain / name).config.seed for name in names] == [5, 6, 7, 8, 8]
    each = updates(chain / "chain-5")
    assert [updates(chain / name) for name in names[:3]] == [each, 2 * each, 3 * each]  # it went on learning


def test_the_levels_are_those_of_the_events_and_no_test_figure_is_among_them(chain):
    for row in rows(chain):
        assert 0 <= float(row["best_selection_recall@1"]) <= 1
        assert 0 < float(row["last_reward_level"]) <= 2
        assert float(row["last_perplexity"]) > 5  # the bound of the settings holds
        assert not any("test" in name for name in row)


def test_what_is_kept_is_small_and_a_policy_can_be_used_again(chain):
    for name in ("chain-5", "chain-7"):
        run = RunFolder.open(chain / name)
        assert len(run.checkpoints()) == 1
        assert run.load_checkpoint().keys() == {"curriculum"}
        assert not run.selected_path.exists()
    assert not RunFolder.open(chain / "fresh-8").checkpoints()
    options = {"policy": str(chain / "chain-7"), "agent_options": {"trust": 1.0}, "recall_at": (1, 2, 4, 8)}
    saved = RunFolder.open(chain / "chain-7").load_checkpoint()["curriculum"]["agent"]["network"]
    network = LearnedCurriculum(**options, seed=3).agent.network.state_dict()
    assert all(torch.equal(network[name], weight) for name, weight in saved.items())


def test_the_same_command_again_does_nothing_anew(tool, arguments, chain, capsys):
    before, events = rows(chain), (chain / "chain-6" / "events.jsonl").stat().st_mtime_ns
    tool.main([*arguments, "--runs", "3", "--compare", "1", "--seed", "5", "--out", str(chain)])
    assert rows(chain) == before
    assert (chain / "chain-6" / "events.jsonl").stat().st_mtime_ns == events
    assert "carried less fresh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--runs", "0"], "at least one run"),
        (["--runs", "2", "--set", "curriculum.name=random reward"], "'learned' alone"),
        (["--runs", "2", "--set", "data.selection_share=0"], "set adapt_every and data.selection_share"),
        (["--runs", "2", "--set", "curriculum.options.bins.bound=0"], "bound is 0"),
    ],
)
def test_a_chain_that_cannot_be_is_refused_before_anything_is_written(tool, arguments, tmp_path, extra, words):
    with pytest.raises(SystemExit) as refused:
        tool.main([*arguments, *extra, "--out", str(tmp_path / "out")])
    assert words in str(refused.value)
    assert not (tmp_path / "out").exists()
