"""REINFORCE, A2C and PPO: their equalities, their updates written out afresh, episodes, and PPO's old policy."""

import copy
import math

import pytest
import torch
from torch.distributions import Categorical

from pads.agents import AGENTS, Transition
from pads.agents.agent import CRITIC_TARGETS
from pads.agents.policy_gradient import a2c, ppo, reinforce

torch.set_num_threads(1)

every_agent = pytest.mark.parametrize("name", ["ppo", "reinforce", "a2c"])
both = pytest.mark.parametrize("name", ["ppo", "reinforce"])  # A2C is REINFORCE, as the first test shows
with_critic = pytest.mark.parametrize("make", [ppo, a2c])
every_target = pytest.mark.parametrize("critic_target", CRITIC_TARGETS)


# -- one agent ---------------------------------------------------------------------------------------------------------


@every_target
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a2c_is_reinforce_with_the_critic_as_its_baseline_bit_for_bit(
    critic_target, length, seed, sizes, walk, weights
):
    options = {"critic_target": critic_target, "episode_length": length, "seed": seed}
    ours, theirs = a2c(*sizes, **options), reinforce(*sizes, baseline="critic", **options)
    for transition in walk(12, seed):
        assert ours.learn(transition) == theirs.learn(transition)
        assert torch.equal(ours.act(transition.state_t), theirs.act(transition.state_t))
        assert torch.equal(weights(ours), weights(theirs))


@pytest.mark.parametrize("baseline", ["none", "moving average", "critic"])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_with_an_old_policy_that_is_always_new_is_reinforce_bit_for_bit(
    baseline, length, seed, sizes, walk, weights
):
    options = {"baseline": baseline, "episode_length": length, "seed": seed}
    ours, theirs = ppo(*sizes, old_policy_every=1, **options), reinforce(*sizes, **options)
    start = weights(ours)
    for transition in walk(12, seed):
        log, expected = ours.learn(transition), theirs.learn(transition)
        if log:
            assert log.pop("ratio_clipped") == 0
            # PPO's loss has a ratio, which is 1, where REINFORCE's has a log probability; their gradients are the same.
            assert log.pop("policy_loss") == pytest.approx(-log["advantage"], abs=1e-6)
            expected.pop("policy_loss")
        assert log == expected
        assert torch.equal(ours.act(transition.state_t), theirs.act(transition.state_t))
        assert torch.equal(weights(ours), weights(theirs))
    assert not torch.equal(weights(ours), start)


# -- the policy --------------------------------------------------------------------------------------------------------


def with_policy(name, probs_KA):
    """An agent whose policy has these probabilities in every state."""
    agent = AGENTS[name](1, len(probs_KA), len(probs_KA[0]), seed=4)
    with torch.no_grad():
        agent.network.policy.weight.zero_()
        agent.network.policy.bias.copy_(torch.tensor(probs_KA).log().flatten())
    return agent


@both
def test_actions_follow_each_bins_own_distribution(name):
    probs_KA = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]
    agent = with_policy(name, probs_KA)
    actions = torch.stack([agent.act(torch.zeros(1)) for _ in range(3000)])
    shares_KA = torch.stack([(actions == action).float().mean(0) for action in range(3)], 1)
    # Three standard errors of a share of 3000 draws are below 0.03.
    torch.testing.assert_close(shares_KA, torch.tensor(probs_KA), atol=0.03, rtol=0)
    both_likeliest = (actions == torch.tensor([0, 2])).all(1).float().mean()
    assert both_likeliest == pytest.approx(0.7 * 0.8, abs=0.03)  # the bins are independent


@both
def test_entropy_is_that_of_each_bins_distribution(name):
    agent = with_policy(name, [[0.5, 0.5], [0.25, 0.75]])
    expected_K = [math.log(2), -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))]
    assert agent.entropy(torch.zeros(1)).tolist() == pytest.approx(expected_K)


@both
@pytest.mark.parametrize("reward", [-1.0, 1.0])
def test_a_reward_makes_the_chosen_actions_likelier_and_a_punishment_less_likely(name, reward, sizes, walk):
    agent = AGENTS[name](*sizes, baseline="none")
    transition = walk(1)[0]._replace(reward_t=reward)

    def chosen():
        logits_KA = agent.network(transition.state_tm1)[0].detach()
        return Categorical(logits=logits_KA).log_prob(transition.actions_tm1)

    before = chosen()
    agent.learn(transition)
    assert ((chosen() - before) * reward > 0).all()


# -- the update --------------------------------------------------------------------------------------------------------


def reference_learner(agent, *, is_ppo, baseline, critic_target):
    """The update of one-step episodes written out afresh, on a copy of the agent's network: yields it after each."""
    network, old = copy.deepcopy(agent.network), copy.deepcopy(agent.network)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    rewards = []
    while True:
        transition = yield network
        logits, value = network(transition.state_tm1)
        next_value = network(transition.state_t)[1]
        log_probs = Categorical(logits=logits).log_prob(transition.actions_tm1)
        average = 0.0
        for count, reward in enumerate(rewards):
            average = reward if count == 0 else 0.95 * average + 0.05 * reward
        rewards.append(transition.reward_t)
        if baseline == "none":
            gain = torch.tensor(transition.reward_t)
        elif baseline == "moving average":
            gain = torch.tensor(transition.reward_t - average)
        elif critic_target == "return":
            gain = transition.reward_t - value.detach()
        else:
            gain = transition.reward_t + 0.99 * next_value.detach() - value.detach()
        if is_ppo:
            with torch.no_grad():
                old_log_probs = Categorical(logits=old(transition.state_tm1)[0]).log_prob(transition.actions_tm1)
            ratios = torch.exp(log_probs - old_log_probs)
            loss = -torch.min(ratios * gain, ratios.clip(0.8, 1.2) * gain).mean()
        else:
            loss = -(gain * log_probs).mean()
        if baseline == "critic":
            target = transition.reward_t if critic_target == "return" else transition.metric_t
            loss = loss + 0.5 * torch.nn.functional.mse_loss(value, torch.tensor(target))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if len(rewards) % 5 == 0:
            old.load_state_dict(network.state_dict())


@both
@pytest.mark.parametrize(
    ("baseline", "critic_target"),
    [("none", "return"), ("moving average", "return"), ("critic", "return"), ("critic", "metric")],
)
def test_learning_is_that_of_the_update_written_out_afresh(name, baseline, critic_target, sizes, walk, weights):
    agent = AGENTS[name](*sizes, baseline=baseline, critic_target=critic_target)
    reference = reference_learner(agent, is_ppo=name == "ppo", baseline=baseline, critic_target=critic_target)
    start = weights(next(reference))
    for transition in walk(13):
        agent.learn(transition)
        torch.testing.assert_close(weights(agent), weights(reference.send(transition)), rtol=1e-4, atol=1e-5)
    assert (weights(agent) - start).abs().max() > 0.01


@both
def test_logged_entropy_is_the_mean_over_bins_before_the_step(name, sizes, walk):
    agent = AGENTS[name](*sizes)
    (transition,) = walk(1)
    expected = agent.entropy(transition.state_tm1).mean().item()
    assert agent.learn(transition)["policy_entropy"] == pytest.approx(expected)


@every_agent
def test_the_log_has_what_the_agent_computes(name, sizes, walk):
    expected = {"policy_loss", "advantage", "average_reward", "policy_entropy"}
    expected |= {"ratio_clipped"} if name == "ppo" else set()
    expected |= {"value_loss"} if name != "reinforce" else set()
    assert AGENTS[name](*sizes).learn(walk(1)[0]).keys() == expected


# -- the moving average ------------------------------------------------------------------------------------------------


@both
def test_first_gain_is_the_reward_itself_with_the_moving_average(name, sizes, walk):
    agent = AGENTS[name](*sizes, baseline="moving average", average_rate=0.1)
    first, second, third = [t._replace(reward_t=r) for t, r in zip(walk(3), (1.0, -1.0, 1.0), strict=True)]
    assert agent.learn(first)["advantage"] == 1.0  # nothing before
    assert agent.learn(second)["advantage"] == -2.0  # -1 - 1
    assert agent.learn(third)["advantage"] == pytest.approx(1 - (0.9 * 1 + 0.1 * -1))


@both
def test_gain_of_an_episode_is_the_mean_return_less_the_average_of_earlier_ones(name, sizes, walk):
    agent = AGENTS[name](*sizes, episode_length=2, discount=0.5, baseline="moving average", average_rate=0.1)
    logs = [agent.learn(t._replace(reward_t=r)) for t, r in zip(walk(4), (0.0, 1.0, 1.0, 0.0), strict=True)]
    assert logs[1]["advantage"] == pytest.approx((0.5 + 1.0) / 2)  # nothing before
    assert logs[3]["advantage"] == pytest.approx((1.0 + 0.0) / 2 - 0.75)
    assert logs[3]["average_reward"] == pytest.approx(0.9 * 0.75 + 0.1 * 0.5)


@both
def test_an_average_reward_of_zero_is_restored_as_zero_and_not_as_none_yet(name, sizes, walk):
    agent, restored = (AGENTS[name](*sizes, baseline="moving average", average_rate=0.1) for _ in range(2))
    first, second = walk(2)
    agent.learn(first._replace(reward_t=0.0))
    restored.load_state_dict(agent.state_dict())
    assert restored.learn(second._replace(reward_t=1.0))["average_reward"] == pytest.approx(0.1)


# -- the critic --------------------------------------------------------------------------------------------------------


@with_critic
def test_critic_learns_the_expected_reward(make, sizes, walk):
    agent = make(*sizes, learning_rate=0.003)
    (transition,) = walk(1)
    for step in range(400):
        agent.learn(transition._replace(reward_t=0.0 if step % 4 else 1.0))
    assert agent.network(transition.state_tm1)[1].item() == pytest.approx(0.25, abs=0.1)


@with_critic
def test_a_critic_of_the_metric_level_leaves_the_bare_sign_as_advantage(make, sizes):
    """authors-code.md, finding 5: V(s) ≈ V(s') ≈ e, so that r + 0.99 V(s') - V(s) ≈ r - 0.01 e."""
    agent = make(*sizes, critic_target="metric", learning_rate=0.003)
    generator = torch.Generator().manual_seed(0)
    state_S, gaps = torch.rand(sizes[0], generator=generator), []
    for _ in range(300):
        reward = float(torch.randint(2, (), generator=generator)) * 2 - 1
        log = agent.learn(Transition(state_S, agent.act(state_S), reward, state_S, metric_t=0.6))
        gaps.append(abs(log["advantage"] - reward))
    assert sum(gaps[-50:]) / 50 == pytest.approx(0.006, abs=0.002)
    assert agent.network(state_S)[1].item() == pytest.approx(0.6, abs=0.1)


@with_critic
def test_the_policy_loss_does_not_move_the_critic(make, sizes, walk):
    agent = make(*sizes, value_weight=0.0)
    before = agent.network.value.weight.clone()
    for transition in walk(4):
        agent.learn(transition)
    assert torch.equal(agent.network.value.weight, before)


@with_critic
def test_a_critic_of_the_metric_needs_the_metric(make, sizes, walk):
    with pytest.raises(AssertionError, match="metric_t"):
        make(*sizes, critic_target="metric").learn(walk(1)[0]._replace(metric_t=math.nan))


@with_critic
def test_bootstrapped_return_goes_on_with_what_the_critic_expects(make, sizes, walk):
    agent = make(*sizes, critic_target="bootstrapped return", discount=0.5)
    (transition,) = walk(1)
    value_tm1, value_t = (agent.network(state)[1].item() for state in (transition.state_tm1, transition.state_t))
    log = agent.learn(transition)
    gap = transition.reward_t + 0.5 * value_t - value_tm1
    assert (log["advantage"], log["value_loss"]) == (pytest.approx(gap), pytest.approx(gap**2))


# -- episodes ----------------------------------------------------------------------------------------------------------


@every_agent
def test_an_agent_learns_at_the_end_of_an_episode_and_only_there(name, sizes, walk, weights):
    agent = AGENTS[name](*sizes, episode_length=4)
    before = weights(agent)
    for step, transition in enumerate(walk(12), 1):
        log = agent.learn(transition)
        assert bool(log) == (step % 4 == 0) == (not torch.equal(weights(agent), before))
        before = weights(agent)


def test_the_update_of_an_episode_is_the_mean_over_its_steps_written_out_afresh(sizes, walk, weights):
    agent, twin = a2c(*sizes, episode_length=2, discount=0.5), a2c(*sizes)
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


@every_agent
def test_an_episode_does_not_reach_across_a_break_in_the_states(name, sizes, walk, weights):
    agent, fresh = (AGENTS[name](*sizes, episode_length=2) for _ in range(2))
    agent.learn(walk(1, seed=1)[0])  # the end of another run, whose policy goes on in this one
    for transition in walk(4):
        assert agent.learn(transition) == fresh.learn(transition)
    assert torch.equal(weights(agent), weights(fresh))


def test_a_policy_goes_on_with_episodes_of_another_length(sizes, walk):
    agent, shorter = ppo(*sizes, episode_length=4), ppo(*sizes, episode_length=2)
    steps = walk(6)
    for transition in steps[:3]:
        agent.learn(transition)
    shorter.load_state_dict(agent.state_dict())
    assert [bool(shorter.learn(transition)) for transition in steps[3:]] == [True, False, True]


# -- PPO's old policy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3, 5])
def test_old_policy_is_copied_after_every_so_many_updates_and_is_the_first_policy_before(every, sizes, walk, weights):
    agent = ppo(*sizes, old_policy_every=every)
    expected = weights(agent)
    for count, transition in enumerate(walk(12), 1):
        agent.learn(transition)
        if count % every == 0:
            expected = weights(agent)
        assert torch.equal(weights(agent.old_network), expected)
        assert torch.equal(weights(agent.old_network), weights(agent)) == (count % every == 0)


def test_ratio_is_one_right_after_a_copy_so_the_loss_is_minus_the_advantage(sizes, walk):
    agent = ppo(*sizes, baseline="none", old_policy_every=5)
    transition = walk(1)[0]._replace(reward_t=1.0)
    logs = [agent.learn(transition) for _ in range(11)]
    at_one = [log["policy_loss"] == -1.0 for log in logs]
    assert at_one == [count in (0, 5, 10) for count in range(11)]
    assert all(logs[count]["ratio_clipped"] == 0 for count in (0, 5, 10))


def test_between_two_copies_no_bin_is_rewarded_far_beyond_the_clip(sizes, walk):
    agent = ppo(*sizes, baseline="none", old_policy_every=1000, learning_rate=0.003)
    free = ppo(*sizes, baseline="none", old_policy_every=1000, learning_rate=0.003, clip=100.0)
    transition = walk(1)[0]._replace(reward_t=1.0)
    for _ in range(40):
        log = agent.learn(transition)
        free.learn(transition)
    assert log["ratio_clipped"] == 1.0 and log["policy_loss"] == pytest.approx(-1.2)
    assert free.entropy(transition.state_tm1).mean() < 0.3 < agent.entropy(transition.state_tm1).mean()
