"""The learned curriculum against Algorithm 1 of the paper, with metrics that are made up here."""

import json
import math

import pytest
import torch

import pads
from pads.agents import AGENTS
from pads.agents.state import TrainingState
from pads.autoconfig import resolve_auto
from pads.config import Part, with_settings
from pads.curricula import LearnedCurriculum, build_curriculum
from pads.errors import UserError
from pads.recipes import CODE_BINS, PAPER_BINS, RECIPES
from pads.runs import RunFolder
from pads.runs.watch import nobody
from pads.sampling import bin_distribution
from pads.sampling.distances import pairwise_distances
from pads.sampling.rules import BinRule

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "intra", "inter", "nmi")


def made_up(num, seed=0):
    """Metrics of so many validations, each anywhere between 0 and 1."""
    values = torch.rand(num, len(METRICS), generator=torch.Generator().manual_seed(seed)).tolist()
    return [dict(zip(METRICS, row, strict=True)) for row in values]


def with_levels(*levels):
    """Metrics whose recall@1 + nmi are these."""
    return [{**dict.fromkeys(METRICS, 0.5), "recall@1": level / 2, "nmi": level / 2} for level in levels]


def advance(curriculum, validations):
    return [curriculum.advance(metrics, index / len(validations)) for index, metrics in enumerate(validations)]


class Diary:
    """An agent that writes down what is asked of it, and always takes the same actions."""

    def __init__(self, num_bins, actions):
        self.num_bins, self.actions, self.entries = num_bins, actions, []

    def act(self, state_S):
        self.entries.append(("act", state_S))
        return torch.tensor(self.actions)

    def learn(self, transition):
        self.entries.append(("learn", transition))
        return {"policy_loss": 0.25}

    def entropy(self, state_S):
        return torch.zeros(self.num_bins)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.fixture
def diary(monkeypatch):
    monkeypatch.setitem(AGENTS, "diary", lambda num_bins, actions: Diary(num_bins, actions))

    def make(actions, **options):
        bins = {"num_bins": len(actions), "initial": "uniform"}
        curriculum = LearnedCurriculum(agent="diary", agent_options={"actions": actions}, bins=bins, **options)
        return curriculum, curriculum.agent.entries

    return make


# -- Algorithm 1 -------------------------------------------------------------------------------------------------------


def test_the_first_call_only_acts_and_every_later_one_learns_before_it_acts(diary):
    curriculum, entries = diary([0, 1, 2])
    logs = advance(curriculum, with_levels(1.0, 1.2, 0.9))
    assert [kind for kind, _ in entries] == ["act", "learn", "act", "learn", "act"]
    assert logs[0]["reward"] is None
    assert "policy_loss" not in logs[0]
    assert logs[1]["policy_loss"] == logs[2]["policy_loss"] == 0.25


def test_the_reward_is_the_sign_of_the_change(diary):
    curriculum, entries = diary([0, 1, 2])
    logs = advance(curriculum, with_levels(1.0, 1.2, 1.2, 0.9, 0.9001))
    assert [log["reward"] for log in logs] == [None, 1, 0, -1, 1]
    assert [entry.reward_t for kind, entry in entries if kind == "learn"] == [1, 0, -1, 1]


@pytest.mark.parametrize(("reward", "expected"), [("recall@1", [1, -1]), ("nmi", [-1, 1]), ("recall@1+nmi", [-1, 1])])
def test_the_reward_looks_at_the_metrics_that_it_names(diary, reward, expected):
    changes = [{"recall@1": 0.3, "nmi": 0.8}, {"recall@1": 0.4, "nmi": 0.5}, {"recall@1": 0.3, "nmi": 0.7}]
    curriculum, _ = diary([0, 1, 2], reward=reward)
    logs = advance(curriculum, [{**dict.fromkeys(METRICS, 0.5), **change} for change in changes])
    assert [log["reward"] for log in logs[1:]] == expected


def test_a_transition_joins_the_state_that_was_acted_in_with_what_came_of_it(diary):
    curriculum, entries = diary([2, 0, 1])
    advance(curriculum, made_up(4))
    states = [entry for kind, entry in entries if kind == "act"]
    transitions = [entry for kind, entry in entries if kind == "learn"]
    assert len(transitions) == 3
    for index, transition in enumerate(transitions):
        assert torch.equal(transition.state_tm1, states[index])
        assert torch.equal(transition.state_t, states[index + 1])
        assert transition.actions_tm1.tolist() == [2, 0, 1]


def test_the_critic_of_the_authors_sees_the_mean_of_the_rewards_metrics(diary):
    curriculum, entries = diary([0, 1, 2])
    advance(curriculum, with_levels(1.0, 1.2))
    assert entries[1][1].metric_t == pytest.approx(0.6)
    curriculum, entries = diary([0, 1, 2], reward="nmi")
    advance(curriculum, with_levels(1.0, 1.2))
    assert entries[1][1].metric_t == pytest.approx(0.6)


def test_the_state_is_made_of_the_metrics_the_distribution_before_the_adjustment_and_the_progress(diary):
    curriculum, entries = diary([0, 1, 2], state=["nmi"], history=3, averages=[2])
    expected = TrainingState(["nmi"], num_bins=3, history=3, averages=[2])
    for metrics, progress in zip(made_up(5), (0.0, 0.1, 0.5, 0.7, 1.0), strict=True):
        before_K = curriculum.distribution.probabilities_K
        curriculum.advance(metrics, progress)
        assert torch.equal(entries[-1][1], expected.observe(metrics, before_K, progress))
        assert entries[-1][1][-1] == pytest.approx(progress)


def test_p_is_multiplied_by_what_was_chosen_and_renormalised_in_numbers(diary):
    # 1/3 each, times 0.8, 1, 1.25: the sum is 3.05; again: 0.64, 1, 1.5625 of 3.2025
    curriculum, _ = diary([0, 1, 2])
    once, twice = advance(curriculum, made_up(2))
    assert once["distribution"] == pytest.approx([0.8 / 3.05, 1 / 3.05, 1.25 / 3.05])
    assert twice["distribution"] == pytest.approx([0.64 / 3.2025, 1 / 3.2025, 1.5625 / 3.2025])
    assert once["actions"] == twice["actions"] == [0, 1, 2]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("multipliers", [(0.8, 1.0, 1.25), (0.5, 2.0), (0.9, 0.95, 1.0, 1.05, 1.1)])
def test_over_fifty_adjustments_p_follows_from_the_actions_that_were_logged(agent, multipliers):
    curriculum = LearnedCurriculum(agent=agent, multipliers=multipliers, bins={"num_bins": 12}, seed=2)
    p = curriculum.distribution.probabilities_K.tolist()
    seen = set()
    for log in advance(curriculum, made_up(50)):
        p = [p_k * multipliers[action] for p_k, action in zip(p, log["actions"], strict=True)]
        p = [p_k / sum(p) for p_k in p]
        seen |= set(log["actions"])
        assert log["distribution"] == pytest.approx(p, rel=1e-9)
        assert sum(log["distribution"]) == pytest.approx(1)
        assert log["perplexity"] == pytest.approx(math.exp(-sum(p_k * math.log(p_k) for p_k in p)))
    assert seen == set(range(len(multipliers)))


def test_in_the_authors_reading_the_weights_are_clipped_and_never_renormalised():
    curriculum = LearnedCurriculum(bins={**CODE_BINS, "clip": [0.4, 2.0]}, seed=1)
    weights = curriculum.distribution.weights_K.tolist()
    for metrics in made_up(30):
        log = curriculum.advance(metrics, 0.5)
        weights = [w * (0.8, 1.0, 1.25)[action] for w, action in zip(weights, log["actions"], strict=True)]
        weights = [min(max(w, 0.4), 2.0) for w in weights]
        assert curriculum.distribution.weights_K.tolist() == pytest.approx(weights, rel=1e-9)
        assert log["distribution"] == pytest.approx([w / sum(weights) for w in weights], rel=1e-9)
        assert log["clipped_share"] == pytest.approx(sum(w in (0.4, 2.0) for w in weights) / 29)
    assert log["clipped_share"] > 0


@pytest.mark.parametrize("bins", [PAPER_BINS, CODE_BINS], ids=["paper", "code"])
def test_what_is_drawn_follows_the_newest_distribution_and_no_older_one(batch, bins):
    embeddings, labels = batch
    pairs = (pairwise_distances(embeddings), labels[:, None] != labels[None, :], torch.zeros(32, dtype=torch.int64))
    curriculum, other = LearnedCurriculum(bins=bins, seed=1), LearnedCurriculum(bins=bins, seed=2)
    seen = [curriculum.rule(*pairs)]
    for metrics in made_up(3):
        log = curriculum.advance(metrics, 0.5)
        assert curriculum.distribution.probabilities_K.tolist() == log["distribution"]
        seen.append(curriculum.rule(*pairs))
        assert torch.equal(seen[-1], BinRule(curriculum.distribution)(*pairs))
        assert not torch.equal(seen[-1], seen[-2])
    other.rule(*pairs)
    other.load_state_dict(curriculum.state_dict())
    assert torch.equal(other.rule(*pairs), seen[-1])


# -- what is logged ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [PAPER_BINS, CODE_BINS], ids=["paper", "code"])
def test_what_is_logged_is_what_protocol_7_asks_for(bins):
    curriculum = LearnedCurriculum(bins=bins)
    for log in advance(curriculum, made_up(3)):
        assert json.loads(json.dumps(log, allow_nan=False)) == log
        assert {"distribution", "policy_entropies", "perplexity", "clipped_share", "actions", "reward"} <= log.keys()
        num_bins = bins["num_bins"]
        assert len(log["distribution"]) == len(log["policy_entropies"]) == len(log["actions"]) == num_bins
        assert set(log["actions"]) <= {0, 1, 2}
        assert all(0 <= entropy <= math.log(3) + 1e-6 for entropy in log["policy_entropies"])
        assert 1 <= log["perplexity"] <= num_bins
        assert 0 <= log["clipped_share"] <= 1
        assert log["reward"] in (None, -1.0, 0.0, 1.0)


def test_the_metrics_asked_for_are_those_of_the_state_and_of_the_reward_each_once():
    assert LearnedCurriculum().metrics == METRICS
    assert LearnedCurriculum(state=["distances"], reward="nmi").metrics == ("intra", "inter", "nmi")
    assert LearnedCurriculum(state=["recall"], recall_at=[1, 10]).metrics == ("recall@1", "recall@10", "nmi")


# -- determinism -------------------------------------------------------------------------------------------------------


def test_the_seed_decides_and_nothing_else():
    logs = [advance(LearnedCurriculum(seed=seed), made_up(10)) for seed in (0, 0, 1)]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


# -- a policy from another run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(noisy_photos):
    return noisy_photos(8, sizes=[(24, 24)])


def tiny(photos, *settings):
    """Two epochs that adapt after every step: seconds."""
    sizes = [
        "network.weights=none",
        "data.image_size=16",
        "data.resize=18",
        "data.store_size=20",
        "network.embedding_dim=8",
        "device=cpu",
    ]
    batches = ["data.classes_per_batch=2", "data.samples_per_class=2", "num_epochs=2", "adapt_every=1"]
    batches += ["data.selection_share=0.1", "data.reward_share=0.15"]
    config = with_settings(RECIPES["folder-pads"](), [f"data.root={photos}", *sizes, *batches, *settings])
    return resolve_auto(config, torch.device("cpu"), nobody)


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    return pads.train(tiny(photos), tmp_path_factory.mktemp("runs") / "trained")


@pytest.fixture(scope="module")
def untaught(photos, tmp_path_factory):
    return pads.train(tiny(photos, "curriculum.name=random"), tmp_path_factory.mktemp("runs") / "untaught")


def weights_of(curriculum):
    return {name: weight.clone() for name, weight in curriculum.agent.network.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_policy_starts_as_the_run_left_it_and_the_distribution_starts_afresh(trained):
    saved = trained.load_checkpoint()["curriculum"]
    curriculum = LearnedCurriculum(policy=str(trained.path), seed=7)
    assert same(weights_of(curriculum), saved["agent"]["network"])
    assert not same(weights_of(curriculum), weights_of(LearnedCurriculum(seed=7)))
    assert curriculum.distribution.probabilities_K.tolist() == bin_distribution().probabilities_K.tolist()
    assert saved["weights"].tolist() != bin_distribution().weights_K.tolist()
    assert curriculum.previous is None


def test_a_policy_goes_on_learning_unless_it_is_frozen(trained):
    for freeze in (False, True):
        curriculum = LearnedCurriculum(policy=str(trained.path), freeze=freeze)
        before = weights_of(curriculum)
        logs = advance(curriculum, made_up(8))
        assert same(weights_of(curriculum), before) == freeze
        assert ("policy_loss" in logs[-1]) != freeze
        assert logs[-1]["reward"] in (-1, 0, 1)
        assert logs[-1]["distribution"] != logs[-2]["distribution"]  # frozen, it still acts


def test_a_run_can_be_trained_with_the_policy_of_another(photos, trained, tmp_path):
    config = tiny(photos, f"curriculum.options.policy={trained.path}", "curriculum.options.freeze=true", "num_epochs=1")
    run = pads.train(config, tmp_path / "frozen")
    assert same(
        run.load_checkpoint()["curriculum"]["agent"]["network"],
        trained.load_checkpoint()["curriculum"]["agent"]["network"],
    )


def test_a_policy_is_refused_if_there_is_none_or_it_does_not_fit(photos, trained, untaught, tmp_path):
    with pytest.raises(
        UserError, match="has no trained policy: name a run that was trained with the learned curriculum"
    ):
        LearnedCurriculum(policy=str(untaught.path))
    with pytest.raises(UserError, match="has no trained policy"):
        LearnedCurriculum(policy=str(RunFolder.create(tmp_path / "just begun", tiny(photos)).path))
    with pytest.raises(UserError, match="does not exist"):
        LearnedCurriculum(policy=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="is not a run folder"):
        LearnedCurriculum(policy=str(photos))
    with pytest.raises(UserError, match="the saved policy does not fit"):
        LearnedCurriculum(policy=str(trained.path), bins={"num_bins": 5})
    with pytest.raises(UserError, match="of another kind of agent"):
        LearnedCurriculum(policy=str(trained.path), agent="reinforce")


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"freeze": True}, "name the run it comes from with policy=RUN"),
        ({"multipliers": [1.0]}, "multipliers are [1.0]: give at least two positive factors"),
        ({"multipliers": []}, "give at least two positive factors"),
        ({"multipliers": [0.8, 0.0]}, "give at least two positive factors"),
        ({"multipliers": [0.8, -1.25]}, "give at least two positive factors"),
        ({"reward": "recal@1"}, "there is no reward 'recal@1'; did you mean recall@1"),
        ({"agent": "pppo"}, "there is no agent 'pppo'; did you mean ppo"),
        ({"agent": "sarsa"}, "there is no agent 'sarsa'"),
        ({"agent_options": {"clp": 0.1}}, "did you mean curriculum.options.agent_options.clip"),
        ({"agent_options": {"clip": -1}}, "clip must be a number above 0, not -1"),
        ({"state": ["recall", "colour"]}, "has no part 'colour'; choose from recall, distances, nmi"),
        ({"state": []}, "composition is empty"),
        ({"history": 0}, "must be whole numbers of at least 1"),
        ({"bins": {"num_bin": 5}}, "did you mean curriculum.options.bins.num_bins"),
        ({"bins": {"num_bins": 0}}, "num_bins is 0"),
        ({"bins": {"interval": [0.5, 0.5]}}, "lambda_min < lambda_max"),
        ({"bins": {"initial": "U[3, 4]"}}, "no bin lies there"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options, words):
    with pytest.raises(UserError) as refused:
        LearnedCurriculum(**options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"multipliers": 2}, "curriculum.options.multipliers must be a list, not 2"),
        ({"multipliers": ["small", "large"]}, "curriculum.options.multipliers must be a list"),
        ({"bins": 30}, "curriculum.options.bins must be a group of options or null, not 30"),
        ({"bins": {"num_bins": "many"}}, "curriculum.options.bins.num_bins must be a whole number, not 'many'"),
        ({"state": "recall"}, "curriculum.options.state must be a list, not 'recall'"),
        ({"freeze": "yes"}, "curriculum.options.freeze must be true or false, not 'yes'"),
        ({"agent": 1}, "curriculum.options.agent must be a text, not 1"),
        ({"agent_options": {"hidden_size": 1.5}}, "agent_options.hidden_size must be a whole number, not 1.5"),
        ({"rewards": "nmi"}, "did you mean curriculum.options.reward"),
    ],
)
def test_what_a_user_sets_is_refused_by_its_full_name(options, words):
    with pytest.raises(UserError) as refused:
        build_curriculum(Part("learned", options), dim=8, recall_at=(1, 2, 4, 8), seed=0)
    assert words in str(refused.value)


def test_a_metric_that_is_missing_or_no_number_never_reaches_the_policy():
    curriculum = LearnedCurriculum()
    with pytest.raises(UserError, match="the policy needs the metrics nmi"):
        curriculum.advance({name: 0.5 for name in METRICS if name != "nmi"}, 0.0)
    with pytest.raises(UserError, match="intra is nan on the reward split"):
        curriculum.advance({**dict.fromkeys(METRICS, 0.5), "intra": math.nan}, 0.0)


def test_an_adjustment_takes_one_thread_and_leaves_the_others_as_they_were(monkeypatch):
    curriculum = LearnedCurriculum(state=["recall"])
    seen, before = [], torch.get_num_threads()
    act = curriculum.agent.act
    monkeypatch.setattr(curriculum.agent, "act", lambda state: [seen.append(torch.get_num_threads()), act(state)][1])
    torch.set_num_threads(2)
    try:
        curriculum.advance(dict.fromkeys(curriculum.metrics, 0.5), 0.0)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
