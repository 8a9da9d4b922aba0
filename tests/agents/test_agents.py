"""What holds for every agent: it samples its policy, learns, repeats, and continues from a saved state."""

import copy
import json
import math

import pytest
import torch
from safetensors.torch import load, save
from torch.distributions import Categorical

from pads.agents import AGENTS, BASELINES, PPO, Reinforce, Transition
from pads.errors import UserError

torch.set_num_threads(1)

POLICY_GRADIENT_AGENTS = {"ppo": PPO, "reinforce": Reinforce}
VARIANTS = [
    *((name, {}) for name in AGENTS if name not in POLICY_GRADIENT_AGENTS),
    *((name, {"baseline": baseline}) for name in POLICY_GRADIENT_AGENTS for baseline in BASELINES),
    *((name, {"baseline": "critic", "critic_target": "metric"}) for name in POLICY_GRADIENT_AGENTS),
]
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=["-".join([name, *options.values()]) for name, options in VARIANTS]
)
S, K, A = 6, 5, 3


def transitions(num, seed=0):
    """Unrelated random transitions, for tests where it does not matter what is learnt."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        states = torch.randn(2, S, generator=generator)
        actions_K = torch.randint(A, (K,), generator=generator)
        reward = float(torch.randint(-1, 2, (), generator=generator))
        yield Transition(states[0], actions_K, reward, states[1], float(torch.rand((), generator=generator)))


def weights(agent):
    return torch.cat([weight.detach().flatten() for weight in agent.network.parameters()])


# Acting


@every_variant
def test_one_action_is_drawn_for_each_bin(name, options):
    agent = AGENTS[name](S, K, A, **options)
    actions = torch.stack([agent.act(torch.zeros(S)) for _ in range(60)])
    assert actions.shape == (60, K) and actions.dtype == torch.int64
    assert actions.unique().tolist() == [0, 1, 2]
    assert all(len(actions[:, k].unique()) > 1 for k in range(K))


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_actions_follow_each_bins_own_distribution(name):
    agent = AGENTS[name](1, 2, 3, seed=4)
    with torch.no_grad():
        agent.network.policy.weight.zero_()
        agent.network.policy.bias.copy_(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]).log().flatten())
    actions = torch.stack([agent.act(torch.zeros(1)) for _ in range(3000)])
    shares_KA = torch.stack([(actions == action).float().mean(0) for action in range(3)], 1)
    # Three standard errors of a share of 3000 draws are below 0.03.
    torch.testing.assert_close(shares_KA, torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]), atol=0.03, rtol=0)
    both_first = (actions == torch.tensor([0, 2])).all(1).float().mean()
    assert both_first == pytest.approx(0.7 * 0.8, abs=0.03)  # the bins are independent


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_entropy_is_that_of_each_bins_distribution(name):
    agent = AGENTS[name](1, 2, 2)
    with torch.no_grad():
        agent.network.policy.weight.zero_()
        agent.network.policy.bias.copy_(torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log().flatten())
    expected_K = [math.log(2), -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))]
    assert agent.entropy(torch.zeros(1)).tolist() == pytest.approx(expected_K)


# Learning


RIGHT_CK = torch.tensor([[0, 1, 2, 0, 1], [2, 0, 0, 1, 2]])


def play_bandit(agent, num_steps, reward_is_earned=True):
    """Two contexts; the reward says whether more bins were right than those of a rival who has 0 to 5 right by luck."""
    rivals = torch.Generator().manual_seed(0)
    contexts = torch.eye(2)
    for step in range(num_steps):
        context = step % 2
        actions_K = agent.act(contexts[context])
        num_right = int((actions_K == RIGHT_CK[context]).sum())
        rival, coin = torch.randint(K + 1, (2,), generator=rivals).tolist()
        shown = num_right if reward_is_earned else coin
        reward = float((shown > rival) - (shown < rival))
        agent.learn(Transition(contexts[context], actions_K, reward, contexts[1 - context], num_right / K))
    draws = [(agent.act(contexts[c]) == RIGHT_CK[c]).float().mean() for c in (0, 1) for _ in range(100)]
    return float(torch.stack(draws).mean())


# Values are learnt from rewards that are mostly luck: they need twice the time, and memory and exploration to match.
PATIENT = {name: {"epsilon_steps": 1000, "buffer_size": 2000} for name in ("q-learning", "rainbow")}


@every_variant
def test_every_agent_solves_a_contextual_bandit(name, options):
    # Chance is 1/3; whoever ignores the context reaches 1/2, as no bin has the same right action in both.
    agent = AGENTS[name](2, K, A, learning_rate=0.001, seed=0, **options, **PATIENT.get(name, {}))
    assert play_bandit(agent, 2000 if name in PATIENT else 1000) > 0.85


@pytest.mark.parametrize("name", AGENTS)
def test_nothing_is_learnt_from_a_reward_that_is_luck(name):
    agent = AGENTS[name](2, K, A, learning_rate=0.001, seed=0)
    assert play_bandit(agent, 300, reward_is_earned=False) < 0.55


def reference_learner(name, agent, *, baseline, critic_target):
    """The update written out afresh, on a copy of the agent's network: yields after each transition it is sent."""
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
        if name == "ppo":
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


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
@pytest.mark.parametrize(
    ("baseline", "critic_target"),
    [("none", "return"), ("moving average", "return"), ("critic", "return"), ("critic", "metric")],
)
def test_learning_is_that_of_the_update_written_out_afresh(name, baseline, critic_target):
    agent = AGENTS[name](S, K, A, baseline=baseline, critic_target=critic_target)
    reference = reference_learner(name, agent, baseline=baseline, critic_target=critic_target)
    next(reference)
    start = weights(agent)
    for transition in transitions(13):
        agent.learn(transition)
        network = reference.send(transition)
        expected = torch.cat([weight.detach().flatten() for weight in network.parameters()])
        torch.testing.assert_close(weights(agent), expected, rtol=1e-4, atol=1e-5)
    assert (weights(agent) - start).abs().max() > 0.01


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
@pytest.mark.parametrize("reward", [-1.0, 1.0])
def test_a_reward_makes_the_chosen_actions_likelier_and_a_punishment_less_likely(name, reward):
    agent = AGENTS[name](S, K, A, baseline="none")
    transition = next(transitions(1))._replace(reward_t=reward)

    def chosen():
        logits_KA = agent.network(transition.state_tm1)[0].detach()
        return Categorical(logits=logits_KA).log_prob(transition.actions_tm1)

    before = chosen()
    agent.learn(transition)
    assert ((chosen() - before) * reward > 0).all()


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_first_gain_is_the_reward_itself_with_the_moving_average(name):
    agent = AGENTS[name](S, K, A, baseline="moving average", average_rate=0.1)
    first, second, third = [t._replace(reward_t=r) for t, r in zip(transitions(3), (1.0, -1.0, 1.0), strict=True)]
    assert agent.learn(first)["advantage"] == 1.0  # nothing before
    assert agent.learn(second)["advantage"] == -2.0  # -1 - 1
    assert agent.learn(third)["advantage"] == pytest.approx(1 - (0.9 * 1 + 0.1 * -1))


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_critic_learns_the_expected_reward(name):
    agent = AGENTS[name](S, K, A, baseline="critic", learning_rate=0.003)
    transition = next(transitions(1))
    for step in range(400):
        agent.learn(transition._replace(reward_t=0.0 if step % 4 else 1.0))
    assert agent.network(transition.state_tm1)[1].item() == pytest.approx(0.25, abs=0.1)


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_a_critic_of_the_metric_level_leaves_the_bare_sign_as_advantage(name):
    """authors-code.md, finding 5: V(s) ≈ V(s') ≈ e, so that r + 0.99 V(s') - V(s) ≈ r - 0.01 e."""
    agent = AGENTS[name](S, K, A, baseline="critic", critic_target="metric", learning_rate=0.003)
    generator = torch.Generator().manual_seed(0)
    state_S, gaps = torch.rand(S, generator=generator), []
    for _ in range(300):
        reward = float(torch.randint(2, (), generator=generator)) * 2 - 1
        actions_K = agent.act(state_S)
        log = agent.learn(Transition(state_S, actions_K, reward, state_S, metric_t=0.6))
        gaps.append(abs(log["advantage"] - reward))
    assert sum(gaps[-50:]) / 50 == pytest.approx(0.006, abs=0.002)
    assert agent.network(state_S)[1].item() == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_the_policy_loss_does_not_move_the_critic(name):
    agent = AGENTS[name](S, K, A, baseline="critic", value_weight=0.0)
    before = agent.network.value.weight.clone()
    for transition in transitions(4):
        agent.learn(transition)
    assert torch.equal(agent.network.value.weight, before)


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_a_critic_of_the_metric_needs_the_metric(name):
    agent = AGENTS[name](S, K, A, baseline="critic", critic_target="metric")
    with pytest.raises(AssertionError, match="metric_t"):
        agent.learn(next(transitions(1))._replace(metric_t=math.nan))


@every_variant
def test_what_is_logged_is_plain_finite_numbers(name, options):
    agent = AGENTS[name](S, K, A, **options)
    for transition in transitions(7):
        log = agent.learn(transition)
        assert all(type(value) is float and math.isfinite(value) for value in log.values())
    assert "policy_entropy" in log
    if name in POLICY_GRADIENT_AGENTS:
        assert ("value_loss" in log) == (agent.baseline == "critic")
        assert ("ratio_clipped" in log) == (name == "ppo")
        assert {"policy_loss", "advantage", "average_reward"} <= log.keys()


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_logged_entropy_is_the_mean_over_bins_before_the_step(name):
    agent = AGENTS[name](S, K, A)
    transition = next(transitions(1))
    expected = agent.entropy(transition.state_tm1).mean().item()
    assert agent.learn(transition)["policy_entropy"] == pytest.approx(expected)


# PPO's old policy


@pytest.mark.parametrize("every", [1, 3, 5])
def test_old_policy_is_copied_after_every_so_many_updates_and_is_the_first_policy_before(every):
    agent = PPO(S, K, A, old_policy_every=every)
    expected = weights(agent)
    for count, transition in enumerate(transitions(12), 1):
        agent.learn(transition)
        if count % every == 0:
            expected = weights(agent)
        old = torch.cat([weight.detach().flatten() for weight in agent.old_network.parameters()])
        assert torch.equal(old, expected)
        assert torch.equal(old, weights(agent)) == (count % every == 0)


def test_ratio_is_one_right_after_a_copy_so_the_loss_is_minus_the_advantage():
    agent = PPO(S, K, A, baseline="none", old_policy_every=5)
    transition = next(transitions(1))._replace(reward_t=1.0)
    logs = [agent.learn(transition) for _ in range(11)]
    at_one = [log["policy_loss"] == -1.0 for log in logs]
    assert at_one == [count in (0, 5, 10) for count in range(11)]
    assert all(logs[count]["ratio_clipped"] == 0 for count in (0, 5, 10))


def test_between_two_copies_no_bin_is_rewarded_far_beyond_the_clip():
    agent = PPO(S, K, A, baseline="none", old_policy_every=1000, learning_rate=0.003)
    free = PPO(S, K, A, baseline="none", old_policy_every=1000, learning_rate=0.003, clip=100.0)
    transition = next(transitions(1))._replace(reward_t=1.0)
    for _ in range(40):
        log = agent.learn(transition)
        free.learn(transition)
    assert log["ratio_clipped"] == 1.0 and log["policy_loss"] == pytest.approx(-1.2)
    assert free.entropy(transition.state_tm1).mean() < 0.3 < agent.entropy(transition.state_tm1).mean()


# Repeating and continuing


@every_variant
def test_the_same_seed_gives_the_same_agent_and_another_seed_another(name, options):
    def history(seed):
        agent = AGENTS[name](S, K, A, seed=seed, **options)
        actions = [agent.act(transition.state_tm1) for transition in transitions(10) if agent.learn(transition)]
        return torch.stack(actions), weights(agent)

    actions, final = history(3)
    again_actions, again_final = history(3)
    other_actions, other_final = history(4)
    assert torch.equal(actions, again_actions) and torch.equal(final, again_final)
    assert not torch.equal(actions, other_actions) and not torch.equal(final, other_final)


@every_variant
def test_the_global_random_stream_is_neither_used_nor_moved(name, options):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    agent = AGENTS[name](S, K, A, **options)
    for transition in transitions(3):
        agent.act(transition.state_tm1)
        agent.entropy(transition.state_tm1)
        agent.learn(transition)
    assert torch.equal(torch.get_rng_state(), before)


def through_files(state):
    """Tensors as safetensors, numbers as JSON, as a checkpoint is written; refuses anything else."""
    tensors, numbers = {}, {}

    def collect(prefix, value):
        if isinstance(value, dict):
            assert value and all(type(key) is str for key in value)
            for key, item in value.items():
                collect(f"{prefix}/{key}", item)
        elif isinstance(value, torch.Tensor):
            tensors[prefix] = value
        else:
            assert type(value) in (int, float)
            numbers[prefix] = value

    collect("", state)
    nested = {}
    for path, value in [*load(save(tensors)).items(), *json.loads(json.dumps(numbers)).items()]:
        *folders, leaf = path.split("/")[1:]
        inner = nested
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[leaf] = value
    return nested


@every_variant
@pytest.mark.parametrize("num_learnt", [0, 1, 7])
def test_an_agent_restored_from_files_continues_bit_for_bit(name, options, num_learnt):
    agent = AGENTS[name](S, K, A, seed=1, **options)
    for transition in transitions(num_learnt):
        agent.act(transition.state_tm1)
        agent.learn(transition)
    restored = AGENTS[name](S, K, A, seed=2, **options)
    restored.learn(next(transitions(1, seed=5)))  # what it knew before is forgotten
    restored.load_state_dict(through_files(agent.state_dict()))
    for transition in transitions(8, seed=9):
        assert torch.equal(agent.act(transition.state_tm1), restored.act(transition.state_tm1))
        assert agent.learn(transition) == restored.learn(transition)
    assert torch.equal(weights(agent), weights(restored))


@every_variant
def test_a_saved_state_does_not_change_while_learning_goes_on(name, options):
    agent = AGENTS[name](S, K, A, **options)
    agent.learn(next(transitions(1)))
    saved = agent.state_dict()
    kept = through_files(saved)
    for transition in transitions(6):
        agent.act(transition.state_tm1)
        agent.learn(transition)
    assert_same(saved, kept)


@every_variant
def test_one_saved_state_restores_two_agents_that_do_not_disturb_each_other(name, options):
    agent = AGENTS[name](S, K, A, **options)
    agent.learn(next(transitions(1)))
    saved = agent.state_dict()
    kept = through_files(saved)
    restored = AGENTS[name](S, K, A, seed=2, **options)
    restored.load_state_dict(saved)
    for transition in transitions(6):
        restored.act(transition.state_tm1)
        restored.learn(transition)
    assert_same(saved, kept)


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_an_average_reward_of_zero_is_restored_as_zero_and_not_as_none_yet(name):
    agent, restored = (AGENTS[name](S, K, A, baseline="moving average", average_rate=0.1) for _ in range(2))
    first, second = transitions(2)
    agent.learn(first._replace(reward_t=0.0))
    restored.load_state_dict(agent.state_dict())
    assert restored.learn(second._replace(reward_t=1.0))["average_reward"] == pytest.approx(0.1)


def assert_same(left, right):
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    else:
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


def test_a_saved_policy_of_another_kind_or_size_is_refused():
    with pytest.raises(UserError, match="another kind"):
        PPO(S, K, A).load_state_dict(Reinforce(S, K, A).state_dict())
    with pytest.raises(UserError, match="does not fit"):
        PPO(S, K + 1, A).load_state_dict(PPO(S, K, A).state_dict())


# Options


@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("baseline", "ema", "'none', 'moving average', 'critic', not 'ema'"),
        ("critic_target", "level", "'return', 'metric', not 'level'"),
        ("learning_rate", 0.0, "above 0"),
        ("learning_rate", math.nan, "above 0"),
        ("learning_rate", "fast", "above 0"),
        ("hidden_size", 0, "at least 1"),
        ("hidden_size", 12.5, "whole number"),
        ("discount", 1.01, "from 0 to 1"),
        ("discount", -0.1, "from 0 to 1"),
        ("value_weight", -1.0, "at least 0"),
        ("average_rate", 0.0, "above 0"),
        ("average_rate", 1.5, "at most 1"),
    ],
)
def test_an_option_without_meaning_is_refused_at_once_with_what_it_may_be(name, option, value, message):
    with pytest.raises(UserError, match=f"{option} must be.*{message}"):
        AGENTS[name](S, K, A, **{option: value})


@pytest.mark.parametrize(
    ("option", "value"), [("clip", 0.0), ("clip", -0.2), ("old_policy_every", 0), ("old_policy_every", 2.5)]
)
def test_ppo_refuses_a_clip_or_a_period_without_meaning(option, value):
    with pytest.raises(UserError, match=f"{option} must be"):
        PPO(S, K, A, **{option: value})


@pytest.mark.parametrize("sizes", [(0, 5, 3), (6, 0, 3), (6, 5, 0)])
@pytest.mark.parametrize("name", POLICY_GRADIENT_AGENTS)
def test_sizes_below_one_are_refused(name, sizes):
    with pytest.raises(UserError, match="at least 1"):
        AGENTS[name](*sizes)
