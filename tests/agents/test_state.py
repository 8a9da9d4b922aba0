"""The training state: what is in it, in which order, and what it remembers."""

import json

import pytest
import torch

from pads.agents.state import TrainingState
from pads.errors import UserError

torch.set_num_threads(1)

METRICS = {"recall@1": 0.1, "recall@2": 0.2, "recall@4": 0.4, "recall@8": 0.8, "intra": 0.3, "inter": 0.7, "nmi": 0.5}


def test_state_of_the_paper_has_198_entries():
    state = TrainingState(num_bins=29)
    assert state.metrics == ("recall@1", "recall@2", "recall@4", "recall@8", "intra", "inter", "nmi")
    assert state.size == 198
    assert state.observe(METRICS, torch.full((29,), 1 / 29), 0.5).shape == (198,)


@pytest.mark.parametrize("composition", [("recall",), ("nmi", "recall"), ("distances",), ("recall", "distances")])
@pytest.mark.parametrize(("history", "averages"), [(1, (2,)), (3, ()), (20, (2, 8, 16, 32)), (2, (1, 7))])
def test_size_is_the_length_of_what_is_observed(composition, history, averages):
    state = TrainingState(composition, history=history, averages=averages, num_bins=4)
    for _ in range(9):
        assert state.observe(METRICS, torch.ones(4) / 4, 0.1).shape == (state.size,)


def test_metrics_follow_the_order_of_the_composition():
    state = TrainingState(("nmi", "distances"), num_bins=2)
    assert state.metrics == ("nmi", "intra", "inter")
    assert state.observe(METRICS, torch.ones(2) / 2, 0.0)[:3].tolist() == pytest.approx([0.5, 0.3, 0.7])


def test_recall_can_be_measured_at_other_ranks():
    state = TrainingState(("recall", "nmi"), num_bins=2, recall_at=(1, 10, 100, 1000))
    assert state.metrics == ("recall@1", "recall@10", "recall@100", "recall@1000", "nmi")


def test_history_comes_oldest_first_then_averages_then_distribution_then_progress():
    state = TrainingState(("distances",), history=2, averages=(2, 3), num_bins=2)
    for intra, inter in [(1, 10), (2, 20), (4, 40)]:
        state.observe({"intra": intra, "inter": inter}, torch.tensor([1.0, 0.0]), 0.0)
    state_S = state.observe({"intra": 9, "inter": 90}, torch.tensor([0.25, 0.75]), 0.5)
    history, averages = [4, 40, 9, 90], [6.5, 65, 5, 50]  # means of 4, 9 and of 2, 4, 9
    assert state_S.tolist() == [*history, *averages, 0.25, 0.75, 0.5]


@pytest.mark.parametrize(("history", "lengths"), [(5, (2, 8)), (12, (3,)), (1, (4, 1))])
def test_state_is_that_of_a_naive_record_of_everything(history, lengths):
    state = TrainingState(("nmi", "distances"), history=history, averages=lengths, num_bins=1)
    generator = torch.Generator().manual_seed(0)
    record = []
    for _ in range(15):
        record.append(torch.rand(3, generator=generator, dtype=torch.float64).tolist())
        padded = [record[0]] * history + record
        expected = [value for values in padded[-history:] for value in values]
        for length in lengths:
            last = record[-length:]
            expected += [sum(values[m] for values in last) / len(last) for m in range(3)]
        metrics = dict(zip(state.metrics, record[-1], strict=True))
        assert state.observe(metrics, torch.ones(1), 0.75).tolist() == pytest.approx([*expected, 1.0, 0.75])


def test_state_is_float32_and_shares_no_memory_with_the_distribution():
    probabilities_K = torch.tensor([0.5, 0.5], dtype=torch.float64)
    state_S = TrainingState(("nmi",), num_bins=2).observe({"nmi": 0.5}, probabilities_K, 0.0)
    probabilities_K.zero_()
    assert state_S.dtype == torch.float32
    assert state_S[-3:-1].tolist() == [0.5, 0.5]


def test_metrics_beyond_the_composition_are_left_aside():
    state = TrainingState(("nmi",), num_bins=1)
    assert torch.equal(state.observe(METRICS, torch.ones(1), 0.0)[:-2], torch.full((24,), 0.5))


def test_saved_state_continues_the_same():
    def observe(state, step):
        return state.observe({"nmi": step % 17 / 7}, torch.ones(1), step / 50)

    state, resumed = TrainingState(("nmi",), num_bins=1), TrainingState(("nmi",), num_bins=1)
    for step in range(40):
        observe(state, step)
    saved = json.loads(json.dumps(state.state_dict()))
    observe(resumed, 99)  # what it knew before is forgotten
    resumed.load_state_dict(saved)
    for step in range(40, 50):
        assert torch.equal(observe(state, step), observe(resumed, step))


def test_saved_state_does_not_change_while_the_run_goes_on():
    state = TrainingState(("nmi",), num_bins=1)
    state.observe({"nmi": 0.1}, torch.ones(1), 0.0)
    saved = state.state_dict()
    state.observe({"nmi": 0.2}, torch.ones(1), 0.0)
    assert saved == {"observed": [[0.1]]}


def test_unknown_part_is_refused_with_the_right_names():
    with pytest.raises(UserError, match=r"'recal'.*recall, distances, nmi"):
        TrainingState(("recal", "nmi"), num_bins=2)


@pytest.mark.parametrize(
    ("composition", "options", "message"),
    [
        ((), {}, "empty"),
        (("nmi", "nmi"), {}, "twice"),
        (("nmi",), {"history": 0}, "at least 1"),
        (("nmi",), {"history": 2.5}, "whole numbers"),
        (("nmi",), {"averages": (2, 0)}, "at least 1"),
        (("recall",), {"recall_at": (0,)}, "at least 1"),
    ],
)
def test_states_that_make_no_sense_are_refused(composition, options, message):
    with pytest.raises(UserError, match=message):
        TrainingState(composition, num_bins=2, **options)


def test_missing_metric_is_named():
    with pytest.raises(UserError, match=r"recall@8, nmi; measured: recall@1"):
        TrainingState(("recall", "nmi"), num_bins=1).observe(
            {"recall@1": 0.1, "recall@2": 0.1, "recall@4": 0.1}, torch.ones(1), 0.0
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_metric_that_is_not_finite_is_named_before_it_spoils_the_policy(value):
    state = TrainingState(("distances",), num_bins=1)
    with pytest.raises(UserError, match="intra is"):
        state.observe({"intra": value, "inter": 0.5}, torch.ones(1), 0.0)
    assert state.state_dict() == {"observed": []}
