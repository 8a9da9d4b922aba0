"""What every agent must do: act in range, learn what is rewarded, resume bit for bit, and refuse what has no meaning."""

import inspect
import json
import math

import pytest
import torch

from pads.agents import AGENTS, Transition
from pads.config import call
from pads.errors import UserError

torch.set_num_threads(1)

SIZES = {"state_size": 7, "num_bins": 5, "num_actions": 3}
NUM_STATES, NUM_BINS, NUM_ACTIONS = SIZES.values()
LEARNERS = {
    **{name: (name, {}) for name in AGENTS},
    "ppo, none": ("ppo", {"baseline": "none"}),
    "ppo, moving average": ("ppo", {"baseline": "moving average"}),
    "ppo, metric": ("ppo", {"critic_target": "metric"}),
    "reinforce, moving average": ("reinforce", {"baseline": "moving average"}),
    "reinforce, critic": ("reinforce", {"baseline": "critic"}),
    "reinforce, critic, metric": ("reinforce", {"baseline": "critic", "critic_target": "metric"}),
}
VARIANTS = {
    **LEARNERS,
    "ppo, episodes": ("ppo", {"episode_length": 4}),
    "reinforce, episodes": ("reinforce", {"episode_length": 4}),
    "a2c, episodes": ("a2c", {"episode_length": 4}),
    "rainbow, 3 steps": ("rainbow", {"return_steps": 3, "buffer_size": 8}),
}
every_agent = pytest.mark.parametrize("name", AGENTS)
every_learner = pytest.mark.parametrize(("name", "options"), LEARNERS.values(), ids=LEARNERS)
every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS)


def make(name, seed=0, **options):
    return call(AGENTS[name], options, "agent_options", **SIZES, seed=seed)


def live(agent, num_steps, seed=0):
    """Some policy iterations in a made-up world; what was done and what was logged."""
    generator = torch.Generator().manual_seed(seed)
    state_tm1 = torch.rand(NUM_STATES, generator=generator)
    history = []
    for _ in range(num_steps):
        actions_tm1 = agent.act(state_tm1)
        state_t = torch.rand(NUM_STATES, generator=generator)
        reward_t = float(torch.randint(-1, 2, (), generator=generator))
        log = agent.learn(Transition(state_tm1, actions_tm1, reward_t, state_t, 0.5))
        history.append((actions_tm1.tolist(), log, agent.entropy(state_t).tolist()))
        state_tm1 = state_t
    return history


# -- acting and learning -----------------------------------------------------------------------------------------------


@every_variant
def test_every_agent_draws_one_action_for_each_bin_before_and_after_it_has_learnt(name, options):
    agent = make(name, **options)
    state_S = torch.rand(NUM_STATES, generator=torch.Generator().manual_seed(1))
    for num_learnt in (0, 20):
        live(agent, num_learnt)
        actions = torch.stack([agent.act(state_S) for _ in range(60)])
        assert actions.shape == (60, NUM_BINS)
        assert actions.dtype == torch.int64
        assert not actions.requires_grad
        assert actions.unique().tolist() == [0, 1, 2]
        assert all(len(actions[:, k].unique()) > 1 for k in range(NUM_BINS))


@every_variant
def test_what_every_agent_logs_is_finite_and_fits_into_json(name, options):
    for _, log, entropies in live(make(name, **options), 100):
        json.dumps(log, allow_nan=False)
        assert all(type(value) is float for value in log.values())
        assert len(entropies) == NUM_BINS
        assert all(0 <= entropy <= math.log(NUM_ACTIONS) + 1e-6 for entropy in entropies)
    assert "policy_entropy" in log


RIGHT_CK = torch.tensor([[0, 1, 2, 0, 1], [2, 0, 0, 1, 2]])


def play_bandit(agent, num_steps, reward_is_earned=True):
    """Two contexts; the reward says whether more bins were right than those of a rival who has 0 to 5 right by luck."""
    rivals = torch.Generator().manual_seed(0)
    contexts = torch.eye(2)
    for step in range(num_steps):
        context = step % 2
        actions_K = agent.act(contexts[context])
        num_right = int((actions_K == RIGHT_CK[context]).sum())
        rival, coin = torch.randint(NUM_BINS + 1, (2,), generator=rivals).tolist()
        shown = num_right if reward_is_earned else coin
        reward = float((shown > rival) - (shown < rival))
        agent.learn(Transition(contexts[context], actions_K, reward, contexts[1 - context], num_right / NUM_BINS))
    draws = [(agent.act(contexts[c]) == RIGHT_CK[c]).float().mean() for c in (0, 1) for _ in range(100)]
    return float(torch.stack(draws).mean())


# Values are learnt from rewards that are mostly luck: they need twice the time, and memory and exploration to match.
PATIENT = {name: {"epsilon_steps": 1000, "buffer_size": 2000} for name in ("q-learning", "rainbow")}


@every_learner
def test_every_agent_solves_a_contextual_bandit(name, options):
    # Chance is 1/3; whoever ignores the context reaches 1/2, as no bin has the same right action in both.
    agent = AGENTS[name](2, NUM_BINS, NUM_ACTIONS, learning_rate=0.001, **options, **PATIENT.get(name, {}))
    assert play_bandit(agent, 2000 if name in PATIENT else 1000) > 0.85


@every_agent
def test_nothing_is_learnt_from_a_reward_that_is_luck(name):
    agent = AGENTS[name](2, NUM_BINS, NUM_ACTIONS, learning_rate=0.001)
    assert play_bandit(agent, 300, reward_is_earned=False) < 0.55


# -- repeating and resuming --------------------------------------------------------------------------------------------


@every_variant
def test_the_seed_of_every_agent_is_all_the_chance_there_is(name, options, same):
    before = torch.get_rng_state()
    agent, again, other = (make(name, seed=seed, **options) for seed in (1, 1, 2))
    assert live(agent, 10) == live(again, 10)
    assert same(agent.state_dict(), again.state_dict())
    assert live(again, 5) != live(other, 5)
    assert torch.equal(torch.get_rng_state(), before)


@every_variant
@pytest.mark.parametrize("num_learnt", [0, 1, 7, 13])  # within an episode, and between two copies of PPO's old policy
def test_every_agent_resumes_from_a_file_bit_for_bit(name, options, num_learnt, round_trip, same):
    agent, other = make(name, seed=0, **options), make(name, seed=5, **options)
    live(agent, num_learnt)
    live(other, 3, seed=8)  # what it knew before is forgotten
    other.load_state_dict(round_trip(agent.state_dict()))
    assert same(other.state_dict(), agent.state_dict())
    assert live(other, 9, seed=3) == live(agent, 9, seed=3)
    assert same(other.state_dict(), agent.state_dict())


@every_variant
def test_a_saved_state_is_touched_neither_by_who_saved_it_nor_by_who_loaded_it(name, options, round_trip, same):
    agent, other = make(name, **options), make(name, seed=2, **options)
    live(agent, 4)
    state = agent.state_dict()
    then = round_trip(state)
    other.load_state_dict(state)
    for each in (agent, other):
        live(each, 4)
        assert same(state, then)
        assert not same(each.state_dict(), then)


KINDS = {"a2c": "reinforce", "q-learning": "rainbow"}
"""Agents that remember the same things as another, so that each can go on with the policy of the other."""


@every_agent
@pytest.mark.parametrize("saved_by", AGENTS)
def test_every_agent_refuses_the_policy_of_another_kind_of_agent(name, saved_by):
    agent, other = make(name), make(saved_by)
    live(other, 4)
    if KINDS.get(name, name) == KINDS.get(saved_by, saved_by):
        agent.load_state_dict(other.state_dict())
        live(agent, 4)
    else:
        with pytest.raises(UserError, match="of another kind of agent; choose the agent it was trained with"):
            agent.load_state_dict(other.state_dict())


@every_agent
@pytest.mark.parametrize("size", SIZES)
def test_every_agent_refuses_the_policy_of_another_shape(name, size):
    other = AGENTS[name](**{**SIZES, size: 9})
    with pytest.raises(UserError, match="does not fit"):
        make(name).load_state_dict(other.state_dict())


# -- options -----------------------------------------------------------------------------------------------------------

OPTIONS = [(name, option) for name in AGENTS for option in inspect.signature(AGENTS[name]).parameters]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_of_every_agent_is_checked(name, option):
    with pytest.raises(UserError, match=f"the agent's {option} must be .*, not 'nonsense'"):
        AGENTS[name](**{**SIZES, option: "nonsense"})


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("ppo", "num_bins", 0, "at least 1"),
        ("ppo", "hidden_size", 12.5, "whole number"),
        ("ppo", "old_policy_every", 0, "at least 1"),
        ("ppo", "clip", 0.0, "above 0"),
        ("ppo", "clip", None, "above 0"),
        ("reinforce", "baseline", "ema", "'none', 'moving average', 'critic', not 'ema'"),
        ("reinforce", "critic_target", "level", "'return', 'metric', not 'level'"),
        ("reinforce", "learning_rate", 0.0, "above 0"),
        ("reinforce", "learning_rate", math.nan, "above 0"),
        ("reinforce", "average_rate", 0.0, "above 0"),
        ("reinforce", "average_rate", 1.5, "at most 1"),
        ("a2c", "discount", 1.01, "from 0 to 1"),
        ("a2c", "discount", -0.1, "from 0 to 1"),
        ("a2c", "value_weight", -1.0, "at least 0"),
        ("a2c", "episode_length", 0, "at least 1"),
        ("q-learning", "epsilon_start", -0.5, "from 0 to 1"),
        ("q-learning", "epsilon_end", 1.5, "from 0 to 1"),
        ("q-learning", "batch_size", 1.5, "whole number"),
        ("rainbow", "priority_exponent", -0.1, "at least 0"),
        ("rainbow", "importance_start", 1.1, "from 0 to 1"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_it_may_be(name, option, value, message):
    with pytest.raises(UserError, match=f"{option} must be.*{message}"):
        AGENTS[name](**{**SIZES, option: value})


@every_agent
def test_every_agent_refuses_a_misspelt_option(name):
    with pytest.raises(
        UserError, match=r"no option 'agent_options\.learning_rat'; did you mean agent_options\.learning_rate"
    ):
        make(name, learning_rat=0.1)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("reinforce", "clip"),
        ("reinforce", "old_policy_every"),
        ("a2c", "baseline"),
        ("a2c", "average_rate"),
        ("a2c", "clip"),
        ("ppo", "return_steps"),
        ("q-learning", "return_steps"),
        ("q-learning", "priority_exponent"),
        ("q-learning", "episode_length"),
        ("rainbow", "baseline"),
    ],
)
def test_an_agent_refuses_an_option_that_only_others_have(name, option):
    with pytest.raises(UserError, match=rf"no option 'agent_options\.{option}'"):
        make(name, **{option: 1})
