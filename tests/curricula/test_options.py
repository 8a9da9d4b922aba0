"""The options of the learned curriculum that the paper does not have, and its controls with them."""

import itertools
import json
import statistics

import pytest
import torch

from pads.agents.rewards import REWARDS
from pads.config import Part
from pads.curricula import LearnedCurriculum, build_curriculum
from pads.curricula.learned import RHO_LIMITS
from pads.errors import UserError
from pads.sampling import draw_triplets

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "intra", "inter", "nmi", "soft-recall")
WITH_OPTIONS = ("learned", "random actions", "random reward", "frozen policy")
RHO = {"adapt_rho": True, "bins": {"rho": 0.1}}
OPTIONS = {
    "entropy bonus": {"agent_options": {"entropy_bonus": 0.3}},
    "trust": {"agent_options": {"trust": 10.0, "trust_window": 3}},
    "bound": {"bins": {"bound": 0.5}},
    "difference": {"reward_form": "difference"},
    "soft recall": {"reward": "soft-recall", "state": ["soft-recall", "distances"]},
    "fall": {"state": ["recall", "nmi", "fall"]},
    "rho": RHO,
}


@pytest.fixture(params=[*OPTIONS, "all"])
def options(request, every_option):
    return {**OPTIONS, "all": every_option}[request.param]


def make(name, seed=0, **options):
    return build_curriculum(Part(name, options), dim=16, recall_at=(1, 2, 4, 8), seed=seed)


def made_up(num, seed=0):
    values = torch.rand(num, len(METRICS), generator=torch.Generator().manual_seed(seed)).tolist()
    return [dict(zip(METRICS, row, strict=True)) for row in values]


def advance(curriculum, validations):
    return [curriculum.advance(metrics, index / len(validations)) for index, metrics in enumerate(validations)]


# -- every option, in every control ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_it_goes_on_from_a_file_bit_for_bit(name, options, round_trip):
    curriculum = make(name, **options)
    for num_times in (0, 1, 6):  # before the first adjustment, before the first reward, and later
        advance(curriculum, made_up(num_times))
        resumed = make(name, seed=5, **options)
        advance(resumed, made_up(2, seed=8))  # what it knew before is forgotten
        resumed.load_state_dict(round_trip(curriculum.state_dict()))
        assert resumed.distribution.rho == curriculum.distribution.rho
        assert advance(resumed, made_up(9, seed=3)) == advance(curriculum, made_up(9, seed=3))
        assert torch.equal(resumed.distribution.weights_K, curriculum.distribution.weights_K)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_what_is_logged_fits_into_json_and_has_a_number_for_each_bin(name, options):
    for log in advance(make(name, **options), made_up(5)):
        assert json.loads(json.dumps(log, allow_nan=False)) == log
        assert len(log["actions"]) == len(log["policy_entropies"]) == len(log["distribution"]) == 30


@pytest.mark.parametrize("which", ["entropy bonus", "trust", "bound", "difference"])
def test_a_state_that_was_saved_without_an_option_loads_where_the_policy_has_the_same_shape(which):
    plain = make("learned")
    advance(plain, made_up(4))
    curriculum = make("learned", **OPTIONS[which])
    curriculum.load_state_dict(plain.state_dict())
    advance(curriculum, made_up(4))


def test_without_options_nothing_of_them_is_saved_or_logged():
    curriculum = make("learned")
    log = advance(curriculum, made_up(5))[-1]
    assert curriculum.state_dict().keys() == {"weights", "state", "agent", "previous"}
    assert curriculum.state_dict()["state"].keys() == {"observed"}
    assert not {"rho", "rho_action", "divergence"} & log.keys()


def test_the_coin_of_the_control_stands_in_for_a_difference_too():
    options = {"reward_form": "difference", "reward": "soft-recall"}
    logs, learned = (advance(make(name, **options), made_up(12)) for name in ("random reward", "learned"))
    assert {log["reward"] for log in logs[1:]} <= {-1.0, 1.0}
    assert [log["earned"] for log in logs[1:]] == [log["reward"] for log in learned[1:]]


# -- the reward --------------------------------------------------------------------------------------------------------


def test_a_difference_is_compared_with_the_last_twenty_changes():
    validations = made_up(40)
    logs = advance(make("learned", reward="nmi", reward_form="difference"), validations)
    levels = [metrics["nmi"] for metrics in validations]
    changes = [after - before for before, after in itertools.pairwise(levels)]
    assert logs[0]["reward"] is None
    assert logs[1]["reward"] == (1.0 if changes[0] > 0 else -1.0)
    for index in range(2, len(changes)):
        earlier = changes[max(0, index - 20) : index]
        expected = (changes[index] - statistics.mean(earlier)) / statistics.stdev(earlier)
        assert logs[index + 1]["reward"] == pytest.approx(max(-3.0, min(expected, 3.0)))


def test_the_smooth_recall_is_asked_for_where_it_is_rewarded():
    assert REWARDS["soft-recall"] == ("soft-recall",)
    curriculum = LearnedCurriculum(reward="soft-recall")
    assert "soft-recall" in curriculum.metrics
    flat = [{**dict.fromkeys(METRICS, 0.5), "soft-recall": level} for level in (0.3, 0.31, 0.305)]
    assert [log["reward"] for log in advance(curriculum, flat)] == [None, 1.0, -1.0]


# -- the bound ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_under_a_bound_the_distribution_does_not_collapse_whoever_acts(name):
    free, bounded = (make(name, bins=bins) for bins in ({}, {"bound": 1.0}))
    start_K = bounded.distribution.probabilities_K
    perplexities = [[log["perplexity"] for log in advance(each, made_up(200))] for each in (free, bounded)]
    assert min(perplexities[0]) < 4.5 < 5.5 < min(perplexities[1])
    assert (bounded.distribution.probabilities_K / start_K).log().abs().max() <= 1 + 1e-9


# -- rho ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_the_odds_of_rho_follow_from_the_actions_that_were_logged(name):
    multipliers, rho, seen = (0.5, 1.0, 2.0), 0.1, set()
    for log in advance(make(name, multipliers=multipliers, **RHO), made_up(60)):
        odds = rho / (1 - rho) * multipliers[log["rho_action"]]
        rho = min(max(odds / (1 + odds), RHO_LIMITS[0]), RHO_LIMITS[1])
        assert log["rho"] == pytest.approx(rho)
        seen.add(log["rho_action"])
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("agent", ["ppo", "reinforce", "a2c", "q-learning", "rainbow"])
def test_the_policy_has_a_head_for_rho_and_sees_it(agent):
    curriculum = make("learned", agent=agent, **RHO)
    states = []
    observe = curriculum.state.observe
    curriculum.state.observe = lambda *seen: states.append(observe(*seen)) or states[-1]
    logs = advance(curriculum, made_up(20))
    assert curriculum.num_heads == 31
    assert curriculum.state.size == make("learned").state.size + 1
    assert [state_S[-2].item() for state_S in states] == pytest.approx([0.1, *(log["rho"] for log in logs[:-1])])
    assert curriculum.agent.act(states[-1]).shape == (31,)


def test_an_adapted_rho_is_the_share_of_triplets_that_are_really_flipped(batch, generator):
    embeddings, labels = batch
    curriculum = make("random actions", multipliers=(0.5, 2.0), **RHO)

    def share(rounds=150):
        flipped = [draw_triplets(embeddings, labels, curriculum.rule, generator=generator) for _ in range(rounds)]
        return statistics.fmean(
            (labels[negatives] == labels[anchors]).double().mean().item() for anchors, _, negatives in flipped
        )

    assert share() == pytest.approx(0.1, abs=0.02)
    seen = []
    for metrics in made_up(12):
        seen.append(curriculum.advance(metrics, 0.5)["rho"])
        assert share() == pytest.approx(seen[-1], abs=0.03)  # three standard errors of 4800 draws are 0.021
    assert max(seen) - min(seen) > 0.1


def test_a_replay_repeats_rho_too_also_after_a_break(finished_run):
    run = finished_run("source", steps=range(30, 300, 30), num_steps=300, multipliers=[0.5, 2.0], **RHO)
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    rho = {event["step"]: event["rho"] for event in events if event["event"] == "adaptation"}
    curriculum, resumed = (make("replayed", run=str(run.path)) for _ in range(2))
    assert curriculum.distribution.rho == 0.1
    for step, share in rho.items():
        curriculum.advance({}, step / 300)
        resumed.load_state_dict(curriculum.state_dict())
        assert curriculum.distribution.rho == resumed.distribution.rho == share
    assert make("last distribution", run=str(run.path)).rule.distribution.rho == rho[270]
    assert len(set(rho.values())) > 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"adapt_rho": True}, "adapt_rho starts from bins.rho, which is not set: give a share"),
        ({"adapt_rho": True, "bins": {"rho": 0.0}}, "between 0.01 and 0.6, such as bins.rho=0.1"),
        ({"adapt_rho": True, "bins": {"rho": 0.9}}, "between 0.01 and 0.6"),
        ({"adapt_rho": "yes"}, "curriculum.options.adapt_rho must be true or false"),
        ({"reward_form": "diference"}, "there is no reward_form 'diference'; did you mean difference"),
        ({"state": ["distances", "fall"]}, "name recall, nmi or soft-recall too"),
        ({"bins": {"bound": -1.0}}, "from 0.001 to 50, such as 1"),
        ({"agent_options": {"trust": -1.0}}, "the agent's trust must be a number of at least 0"),
        ({"agent": "a2c", "agent_options": {"trust": 1.0}}, "no option 'curriculum.options.agent_options.trust'"),
    ],
)
@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_options_that_make_no_sense_are_refused_with_words(name, options, words):
    with pytest.raises(UserError) as refused:
        make(name, **options)
    assert words in str(refused.value)
