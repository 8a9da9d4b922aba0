"""Two real processes (gloo), started once: the miner under PML's wrappers, the controller, the metric, the batch sampler."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning.utils.distributed import DistributedMinerWrapper
from torch import distributed

from pads.adapters import AdaptiveController, AdaptiveMiner, ClassBalancedBatchSampler
from pads.metrics import compute_metrics

HERE = Path(__file__).parent
SHARED = runpy.run_path(str(HERE / "two_processes.py"))
LABELS, images, loader, network = (SHARED[name] for name in ("LABELS", "images", "loader", "network"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What came out of each process."""
    folder = tmp_path_factory.mktemp("two")
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                str(HERE / "two_processes.py"),
                str(rank),
                str(folder / "meet"),
                str(folder / f"{rank}.pt"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def gathered_labels(rank):
    """PML puts the rank's own rows first."""
    halves = LABELS.split(36)
    return torch.cat([halves[rank], halves[1 - rank]])


@pytest.mark.parametrize("efficient", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_wrapped_miner_gives_valid_triplets_of_all_processes(ranks, rank, efficient):
    result = ranks[rank]["mined"][efficient]
    anchors, positives, negatives = result["tuples"]
    labels = gathered_labels(rank)
    assert anchors.tolist() == list(range(36 if efficient else 72))
    assert (labels[anchors] == labels[positives]).all()
    assert (anchors != positives).all()
    assert (labels[anchors] != labels[negatives]).all()
    assert (negatives >= 36).any()
    assert (negatives < 36).any()
    assert result["loss"].isfinite()
    assert result["grad"].isfinite().all()
    assert result["grad"].abs().sum() > 0


@pytest.mark.parametrize("efficient", [False, True])
def test_processes_draw_differently_and_learn_the_same(ranks, efficient):
    first, second = (result["mined"][efficient] for result in ranks)
    assert not torch.equal(first["tuples"][2], second["tuples"][2])
    assert torch.equal(first["grad"], second["grad"])


def test_after_an_adaptation_all_processes_have_the_first_ones_state(ranks):
    alone = AdaptiveMiner()
    controller = AdaptiveController(alone, every=2, num_steps=6)
    logs = [controller.step(network(), loader(0)) for _ in range(6)]
    expected = str(alone.state_dict())
    for result in ranks:
        assert str(result["adapted"]["state"]) == expected
        assert [log is None for log in result["adapted"]["logs"]] == [True, False] * 3
        assert result["adapted"]["logs"][-1]["distribution"] == logs[-1]["distribution"]
        assert all(result["adapted"]["training"])


def test_an_error_of_the_first_process_is_everyones(ranks):
    message = "there is no image to evaluate: give a split that is not empty."
    assert [result["refused"] for result in ranks] == [message, f"the first process could not adapt: {message}"]


def test_the_metric_of_two_processes_is_that_of_the_whole(ranks):
    pictures, labels = images()
    for result in ranks:
        expected = compute_metrics(pictures, labels, list(result["measured"]["plain"]))
        assert {name: value.item() for name, value in result["measured"]["plain"].items()} == expected
        assert {name: value.item() for name, value in result["measured"]["by_id"].items()} == expected


def test_the_batches_of_the_processes_are_those_of_one_without_a_class_on_both(ranks):
    whole = list(ClassBalancedBatchSampler(LABELS, 6, 3, seed=5))
    assert [a + b for a, b in zip(ranks[0]["batches"], ranks[1]["batches"], strict=True)] == whole
    for first, second in zip(ranks[0]["batches"], ranks[1]["batches"], strict=True):
        assert not set(LABELS[first].tolist()) & set(LABELS[second].tolist())


@pytest.mark.parametrize("efficient", [False, True])
def test_a_group_of_one_process_mines_as_without_a_group(tmp_path, efficient):
    pictures, labels = images()
    alone = AdaptiveMiner()(pictures, labels)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        wrapped = DistributedMinerWrapper(AdaptiveMiner(), efficient=efficient)(pictures, labels)
    finally:
        distributed.destroy_process_group()
    assert all(torch.equal(a, b) for a, b in zip(wrapped, alone, strict=True))
