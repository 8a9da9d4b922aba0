"""What holds a policy back: a bonus for its entropy, and trust in the policies that acted."""

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from pads.agents import A2C, AGENTS, PPO, Reinforce, Transition
from pads.agents.objectives import divergence
from pads.errors import UserError

torch.set_num_threads(1)

S, K, A = 4, 6, 3
HAVE_BONUS = {"ppo": PPO, "reinforce": Reinforce, "a2c": A2C}


def play(agent, num_steps, seed=0):
    """States and rewards are chance: there is nothing to learn. Returns the mean entropy after each step."""
    chance = torch.Generator().manual_seed(seed)
    state_S, entropies = torch.randn(S, generator=chance), []
    for _ in range(num_steps):
        actions_K = agent.act(state_S)
        reward = float(torch.randint(2, (), generator=chance)) * 2 - 1
        next_S = torch.randn(S, generator=chance)
        agent.learn(Transition(state_S, actions_K, reward, next_S))
        state_S = next_S
        entropies.append(agent.entropy(state_S).mean().item())
    return entropies


def biased(agent):
    """The same agent with a policy that is nearly sure of its first action."""
    with torch.no_grad():
        agent.network.policy.bias.copy_(torch.tensor([3.0, 0.0, 0.0]).repeat(K))
    return agent


# -- entropy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HAVE_BONUS)
def test_a_bonus_keeps_the_entropy_high_where_there_is_nothing_to_learn(name):
    entropies = {bonus: play(AGENTS[name](S, K, A, seed=1, entropy_bonus=bonus), 300)[-100:] for bonus in (0.0, 1.0)}
    means = {bonus: sum(values) / 100 for bonus, values in entropies.items()}
    uniform = torch.log(torch.tensor(3.0)).item()
    assert means[1.0] > means[0.0]
    assert means[1.0] > 0.97 * uniform


@pytest.mark.parametrize("name", HAVE_BONUS)
def test_a_bonus_brings_a_policy_back_that_was_sure_of_itself(name):
    start = biased(AGENTS[name](S, K, A, seed=1)).entropy(torch.zeros(S)).mean().item()
    assert play(biased(AGENTS[name](S, K, A, seed=1, entropy_bonus=1.0)), 300)[-1] > start + 0.3


def test_the_bonus_is_the_mean_entropy_per_bin_by_its_gradient():
    """With no advantage nothing else moves the policy."""
    agent = biased(PPO(S, K, A, seed=2, entropy_bonus=0.7, baseline="none"))
    state_S = torch.ones(S)
    loss, _ = agent._loss([Transition(state_S, torch.zeros(K).long(), 0.0, state_S)])
    (expected,) = torch.autograd.grad(
        -0.7 * Categorical(logits=agent.network(state_S)[0]).entropy().mean(), agent.network.policy.bias
    )
    (found,) = torch.autograd.grad(loss, agent.network.policy.bias)
    torch.testing.assert_close(found, expected)


# -- trust -------------------------------------------------------------------------------------------------------------


def test_the_divergence_is_that_of_the_policy_that_acted_from_the_other():
    generator = torch.Generator().manual_seed(0)
    acted_KA, other_KA = torch.randn(2, K, A, generator=generator)
    expected_K = kl_divergence(Categorical(logits=acted_KA), Categorical(logits=other_KA))
    torch.testing.assert_close(divergence(acted_KA.log_softmax(-1), other_KA), expected_K)
    assert divergence(acted_KA.log_softmax(-1), acted_KA).tolist() == pytest.approx([0] * K, abs=1e-6)


def distance_moved(trust, num_steps=60):
    """The mean divergence, in fixed states, of the policy 20 steps before from the last one; over the training."""
    agent, states_TS = PPO(S, K, A, seed=3, trust=trust), torch.randn(50, S, generator=torch.Generator().manual_seed(9))
    past, moved = [], []
    for step in range(num_steps):
        past.append(agent.network(states_TS)[0].detach().log_softmax(-1))
        play(agent, 1, seed=step)
        moved.append(divergence(past[max(0, step - 19)], agent.network(states_TS)[0].detach()).mean().item())
    return sum(moved) / num_steps


def test_trust_keeps_the_policy_near_the_policies_that_acted_and_more_of_it_nearer():
    none, some, much = (distance_moved(trust) for trust in (0.0, 3.0, 100.0))
    assert none > 2 * some > 0
    assert some > much > 0


def test_trust_remembers_how_it_really_acted_and_not_how_it_would_now():
    agent = PPO(S, K, A, seed=4, trust=1.0, trust_window=5)
    chance, acted = torch.Generator().manual_seed(1), []
    for _ in range(8):
        state_S = torch.randn(S, generator=chance)
        with torch.no_grad():
            acted.append((state_S, agent.network(state_S)[0].log_softmax(-1)))
        actions_K = agent.act(state_S)
        with torch.no_grad():
            now = [divergence(log_probs_KA, agent.network(state_S)[0]).mean() for state_S, log_probs_KA in acted[-5:]]
        log = agent.learn(Transition(state_S, actions_K, 1.0, torch.randn(S, generator=chance)))
        assert len(agent.acted) == min(len(acted), 5)
        assert log["divergence"] == pytest.approx(float(torch.stack(now).mean()), abs=1e-6)
        for (state_S, log_probs_KA), (expected_S, expected_KA) in zip(agent.acted, acted[-5:], strict=True):
            assert torch.equal(state_S, expected_S)
            torch.testing.assert_close(log_probs_KA, expected_KA)
    assert log["divergence"] > 0


def test_without_trust_nothing_is_remembered_or_logged():
    agent = PPO(S, K, A)
    play(agent, 5)
    assert len(agent.acted) == 0
    assert "acted" not in agent.state_dict()


def test_a_policy_goes_on_bit_for_bit_with_both_and_can_be_carried_between_agents_with_and_without():
    options = {"entropy_bonus": 0.1, "trust": 2.0, "trust_window": 4}
    agent = PPO(S, K, A, seed=1, **options)
    play(agent, 7)
    resumed = PPO(S, K, A, seed=2, **options)
    play(resumed, 3)
    resumed.load_state_dict(agent.state_dict())
    assert play(resumed, 9, seed=5) == play(agent, 9, seed=5)
    plain = PPO(S, K, A)
    plain.load_state_dict(agent.state_dict())
    assert len(plain.acted) == 0
    agent.load_state_dict(plain.state_dict())
    assert len(agent.acted) == 0
    play(agent, 2)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        *((name, "entropy_bonus", -0.1) for name in HAVE_BONUS),
        ("ppo", "trust", -1.0),
        ("ppo", "trust", "much"),
        ("ppo", "trust_window", 0),
    ],
)
def test_weights_that_make_no_sense_are_refused(name, option, value):
    with pytest.raises(UserError, match=f"the agent's {option} must be"):
        AGENTS[name](S, K, A, **{option: value})
