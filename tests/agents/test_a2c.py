"""A2C, and episodes of more than one step, which it shares with the other policy-gradient agents."""

import math

import pytest
import torch
from torch.distributions import Categorical

from pads.agents import A2C, AGENTS, Reinforce, Transition
from pads.errors import UserError

torch.set_num_threads(1)

S, K, A = 6, 5, 3
policy_gradient_agents = pytest.mark.parametrize("name", ["ppo", "reinforce", "a2c"])


def walk(num, seed=0):
    """Random transitions, each from the state where the last one ended."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(num + 1, S, generator=generator)
    actions = torch.randint(A, (num, K), generator=generator)
    rewards = torch.randint(-1, 2, (num,), generator=generator).tolist()
    metrics = torch.rand(num, generator=generator).tolist()
    for step in range(num):
        yield Transition(states[step], actions[step], float(rewards[step]), states[step + 1], metrics[step])


def weights(agent):
    return torch.cat([weight.detach().flatten() for weight in agent.network.parameters()])


def tensors(state):
    return [leaf for value in state.values() for leaf in (tensors(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("critic_target", ["return", "bootstrapped return", "metric"])
def test_a2c_is_reinforce_with_the_critic_as_its_baseline(critic_target, length):
    options = {"critic_target": critic_target, "episode_length": length, "seed": 3}
    ours, theirs = A2C(S, K, A, **options), Reinforce(S, K, A, baseline="critic", **options)
    for transition in walk(12):
        assert ours.learn(transition).items() <= theirs.learn(transition).items()
        assert torch.equal(ours.act(transition.state_t), theirs.act(transition.state_t))
    assert torch.equal(weights(ours), weights(theirs))


def test_a_step_of_a2c_is_the_update_written_out_afresh():
    agent, twin = A2C(S, K, A, episode_length=2, discount=0.5), A2C(S, K, A)
    first, second = walk(2)
    first, second = first._replace(reward_t=1.0), second._replace(reward_t=-1.0)
    optimiser = torch.optim.Adam(twin.network.parameters(), lr=0.01)
    loss = 0
    for transition, return_ in ((first, 1 - 0.5), (second, -1.0)):  # 1 + 0.5 · (-1), and -1
        logits_KA, value = twin.network(transition.state_tm1)
        log_probs_K = Categorical(logits=logits_KA).log_prob(transition.actions_tm1)
        loss = loss - (return_ - value.detach()) * log_probs_K.mean() / 2 + 0.5 * (value - return_) ** 2 / 2
    loss.backward()
    optimiser.step()
    assert agent.learn(first) == {}
    agent.learn(second)
    torch.testing.assert_close(weights(agent), weights(twin), rtol=1e-4, atol=1e-5)


def test_bootstrapped_return_goes_on_with_what_the_critic_expects():
    agent = A2C(S, K, A, critic_target="bootstrapped return", discount=0.5)
    transition = next(walk(1))
    value_tm1, value_t = (agent.network(state)[1].item() for state in (transition.state_tm1, transition.state_t))
    log = agent.learn(transition)
    gap = transition.reward_t + 0.5 * value_t - value_tm1
    assert (log["advantage"], log["value_loss"]) == (pytest.approx(gap), pytest.approx(gap**2))


@policy_gradient_agents
def test_an_agent_learns_at_the_end_of_an_episode_and_only_there(name):
    agent = AGENTS[name](S, K, A, episode_length=4)
    before = weights(agent)
    for step, transition in enumerate(walk(12), 1):
        log = agent.learn(transition)
        assert bool(log) == (step % 4 == 0) == (not torch.equal(weights(agent), before))
        before = weights(agent)


@pytest.mark.parametrize("name", ["ppo", "reinforce"])
def test_gain_of_an_episode_is_the_mean_return_less_the_average_of_earlier_ones(name):
    agent = AGENTS[name](S, K, A, episode_length=2, discount=0.5, baseline="moving average", average_rate=0.1)
    logs = [agent.learn(t._replace(reward_t=r)) for t, r in zip(walk(4), (0.0, 1.0, 1.0, 0.0), strict=True)]
    assert logs[1]["advantage"] == pytest.approx((0.5 + 1.0) / 2)  # nothing before
    assert logs[3]["advantage"] == pytest.approx((1.0 + 0.0) / 2 - 0.75)
    assert logs[3]["average_reward"] == pytest.approx(0.9 * 0.75 + 0.1 * 0.5)


@policy_gradient_agents
def test_an_episode_does_not_reach_across_a_break_in_the_states(name):
    agent, fresh = (AGENTS[name](S, K, A, episode_length=2) for _ in range(2))
    agent.learn(next(walk(1, seed=1)))  # the end of another run, whose policy goes on in this one
    for transition in walk(4):
        assert agent.learn(transition) == fresh.learn(transition)
    assert torch.equal(weights(agent), weights(fresh))


@policy_gradient_agents
@pytest.mark.parametrize("num_learnt", [0, 5, 8])
def test_a_state_saved_within_an_episode_continues_bit_for_bit(name, num_learnt):
    agent, other = AGENTS[name](S, K, A, episode_length=4, seed=1), AGENTS[name](S, K, A, episode_length=4, seed=2)
    steps = list(walk(16))
    for transition in steps[:num_learnt]:
        agent.learn(transition)
    other.load_state_dict(agent.state_dict())
    for transition in steps[num_learnt:]:
        assert torch.equal(agent.act(transition.state_tm1), other.act(transition.state_tm1))
        assert agent.learn(transition) == other.learn(transition)
    pairs = zip(tensors(agent.state_dict()), tensors(other.state_dict()), strict=True)
    assert all(torch.equal(torch.as_tensor(mine), torch.as_tensor(its)) for mine, its in pairs)


@pytest.mark.parametrize(
    ("option", "value"), [("episode_length", 0), ("critic_target", "level"), ("discount", 1.1), ("learning_rate", -1.0)]
)
def test_an_option_without_meaning_is_refused(option, value):
    with pytest.raises(UserError, match=f"{option} must be"):
        A2C(S, K, A, **{option: value})


def test_a_critic_of_the_metric_needs_the_metric():
    with pytest.raises(AssertionError, match="metric_t"):
        A2C(S, K, A, critic_target="metric").learn(next(walk(1))._replace(metric_t=math.nan))
