"""What every agent must do: act in range, learn without end or nan, and go on from a file as if never stopped."""

import json
import math

import pytest
import torch

from pads.agents import AGENTS, Transition
from pads.config import call
from pads.errors import UserError

every_agent = pytest.mark.parametrize("name", AGENTS)
NUM_STATES, NUM_BINS, NUM_ACTIONS = 7, 5, 3


def make(name, seed=0, **options):
    shape = {"state_size": NUM_STATES, "num_bins": NUM_BINS, "num_actions": NUM_ACTIONS}
    return call(AGENTS[name], options, "agent_options", **shape, seed=seed)


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


@every_agent
def test_every_agent_acts_in_range_before_and_after_it_has_learnt(name):
    agent = make(name)
    for _ in range(2):
        for _ in range(30):
            actions_K = agent.act(torch.rand(NUM_STATES, generator=torch.Generator().manual_seed(1)))
            assert actions_K.shape == (NUM_BINS,)
            assert actions_K.dtype == torch.int64
            assert not actions_K.requires_grad
            assert 0 <= actions_K.min() <= actions_K.max() < NUM_ACTIONS
        live(agent, 20)


@every_agent
def test_what_every_agent_logs_is_finite_and_fits_into_json(name):
    for _, log, entropies in live(make(name), 100):
        assert log
        json.dumps(log, allow_nan=False)
        assert all(type(value) is float for value in log.values())
        assert len(entropies) == NUM_BINS
        assert all(0 <= entropy <= math.log(NUM_ACTIONS) + 1e-6 for entropy in entropies)


@every_agent
def test_every_agent_goes_on_from_a_file_bit_for_bit(name, round_trip, same):
    agent, other = make(name, seed=0), make(name, seed=5)
    for num_steps in (0, 7, 6):  # 13 updates: the old policy of PPO is in between two copies
        live(agent, num_steps)
        other.load_state_dict(round_trip(agent.state_dict()))
        assert same(other.state_dict(), agent.state_dict())
        assert live(other, 9, seed=3) == live(agent, 9, seed=3)
        assert same(other.state_dict(), agent.state_dict())


@every_agent
def test_a_saved_state_is_not_touched_by_what_comes_after(name, round_trip, same):
    agent = make(name)
    live(agent, 4)
    state = agent.state_dict()
    then = round_trip(state)
    live(agent, 4)
    assert same(state, then)
    assert not same(agent.state_dict(), then)


@every_agent
def test_the_seed_of_every_agent_is_all_the_chance_there_is(name):
    before = torch.get_rng_state()
    assert live(make(name, seed=1), 5) == live(make(name, seed=1), 5)
    assert live(make(name, seed=1), 5) != live(make(name, seed=2), 5)
    assert torch.equal(torch.get_rng_state(), before)


@every_agent
def test_every_agent_refuses_a_misspelt_option_and_the_policy_of_another_shape(name):
    with pytest.raises(
        UserError, match=r"no option 'agent_options\.learning_rat'; did you mean agent_options\.learning_rate"
    ):
        make(name, learning_rat=0.1)
    state = call(
        AGENTS[name], {}, "", state_size=NUM_STATES, num_bins=NUM_BINS + 1, num_actions=NUM_ACTIONS
    ).state_dict()
    with pytest.raises(UserError, match="does not fit"):
        make(name).load_state_dict(state)
