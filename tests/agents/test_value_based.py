"""Q-learning and Rainbow: their equality, their updates written out afresh, what they remember, how they explore."""

import copy
import math

import pytest
import torch

from pads.agents import Transition
from pads.agents.replay import Replay
from pads.agents.value_based import LEAST_PRIORITY, q_learning, rainbow

torch.set_num_threads(1)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"buffer_size": 7, "batch_size": 5, "target_every": 3}], ids=["", "small"])
def test_rainbow_with_one_step_returns_and_no_priorities_is_q_learning_bit_for_bit(seed, options, sizes, walk, weights):
    plain = q_learning(*sizes, seed=seed, **options)
    bare = rainbow(*sizes, seed=seed, return_steps=1, priority_exponent=0.0, **options)
    for transition in walk(30, seed):
        assert torch.equal(plain.act(transition.state_tm1), bare.act(transition.state_tm1))
        assert plain.learn(transition) == bare.learn(transition)
        assert torch.equal(weights(plain), weights(bare))
        assert torch.equal(weights(plain.target_network), weights(bare.target_network))


# -- the update --------------------------------------------------------------------------------------------------------


def test_learning_online_is_the_update_written_out_afresh(sizes, walk, weights):
    """A memory of one is Q-learning without replay."""
    agent = q_learning(*sizes, buffer_size=1, batch_size=1, target_every=3, discount=0.8, learning_rate=0.01)
    network, target = copy.deepcopy(agent.network), copy.deepcopy(agent.network)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    num_bins = sizes[1]
    for count, transition in enumerate(walk(10), 1):
        loss = 0
        for k in range(num_bins):
            best = max(target(transition.state_t)[k].tolist())
            q = network(transition.state_tm1)[k, int(transition.actions_tm1[k])]
            loss = loss + (transition.reward_t + 0.8 * best - q) ** 2 / num_bins
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if count % 3 == 0:
            target.load_state_dict(network.state_dict())
        assert agent.learn(transition)["td_loss"] == pytest.approx(loss.item(), rel=1e-4)
        torch.testing.assert_close(weights(agent), weights(network), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights(agent.target_network), weights(target), rtol=1e-4, atol=1e-5)


def test_a_step_of_rainbow_is_written_out_afresh_and_its_errors_become_the_priorities(sizes, walk):
    agent = rainbow(*sizes, discount=0.5, batch_size=1, learning_rate=0.01)
    with torch.no_grad():
        for weight in agent.target_network.parameters():
            weight.mul_(-1.5)  # so that the two networks differ
    first, second = walk(2)
    q_KA = agent.network(first.state_tm1)
    target_q_KA = agent.target_network(second.state_t)
    errors = []
    for k, action in enumerate(first.actions_tm1.tolist()):
        best = int(target_q_KA[k].argmax())
        return_ = first.reward_t + 0.5 * second.reward_t + 0.25 * target_q_KA[k, best].item()
        errors.append(return_ - q_KA[k, action].item())
    agent.learn(first)
    log = agent.learn(second)
    assert log["td_loss"] == pytest.approx(sum(error**2 for error in errors) / len(errors), rel=1e-4)
    mean = sum(map(abs, errors)) / len(errors)
    assert agent.replay.priorities_N.tolist() == pytest.approx([mean + LEAST_PRIORITY], rel=1e-4)


def test_values_converge_to_the_discounted_sum_of_a_constant_reward():
    agent = q_learning(4, 1, 1, discount=0.5, target_every=5, learning_rate=0.01)
    state_S = torch.ones(4)
    for _ in range(300):
        agent.learn(Transition(state_S, torch.tensor([0]), 1.0, state_S))
    assert agent.network(state_S).item() == pytest.approx(2.0, abs=0.02)  # 1 / (1 - 0.5)


# -- exploring ---------------------------------------------------------------------------------------------------------


def test_actions_follow_the_behaviour_whose_entropy_is_reported(sizes):
    agent = q_learning(*sizes, epsilon_start=0.3, epsilon_end=0.3)
    state_S = torch.ones(sizes[0])
    best_K = agent.network(state_S).argmax(-1)
    share = torch.stack([agent.act(state_S) == best_K for _ in range(2000)]).float().mean()
    assert share == pytest.approx(0.8, abs=0.03)
    expected = -(0.8 * math.log(0.8) + 2 * 0.1 * math.log(0.1))
    assert agent.entropy(state_S).tolist() == pytest.approx([expected] * len(best_K))


def test_entropy_falls_from_that_of_chance_to_none(sizes, walk):
    agent = q_learning(*sizes, epsilon_end=0.0, epsilon_steps=5)
    logs = [agent.learn(transition) for transition in walk(5)]
    assert [log["epsilon"] for log in logs] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert logs[0]["policy_entropy"] == pytest.approx(math.log(3))
    assert agent.entropy(torch.ones(sizes[0])).eq(0).all()


# -- what is remembered ------------------------------------------------------------------------------------------------


def test_two_rewards_and_the_state_after_them_are_remembered(sizes, walk):
    agent = rainbow(*sizes, discount=0.5)
    steps = [t._replace(reward_t=r) for t, r in zip(walk(4), (1.0, -1.0, 1.0, 1.0), strict=True)]
    for transition in steps:
        agent.learn(transition)
    kept = agent.replay.experiences
    assert kept.return_N.tolist() == [0.5, -0.5, 1.5]  # 1 - 0.5, -1 + 0.5, 1 + 0.5
    assert kept.discount_N.tolist() == [0.25] * 3
    assert torch.equal(kept.state_tm1_NS, torch.stack([t.state_tm1 for t in steps[:3]]))
    assert torch.equal(kept.actions_tm1_NK, torch.stack([t.actions_tm1 for t in steps[:3]]))
    assert torch.equal(kept.state_t_NS, torch.stack([t.state_t for t in steps[1:]]))


def test_where_the_states_break_off_the_return_ends_and_the_value_there_goes_on(sizes, walk):
    agent = rainbow(*sizes, discount=0.5, return_steps=3)
    first = [t._replace(reward_t=1.0) for t in walk(2)]
    for transition in (*first, *walk(1, seed=1)):
        agent.learn(transition)
    kept = agent.replay.experiences
    assert (kept.return_N.tolist(), kept.discount_N.tolist()) == ([1.5, 1.0], [0.25, 0.5])
    assert torch.equal(kept.state_t_NS, first[1].state_t.expand(2, -1))
    assert len(agent.unfinished) == 1


def test_a_policy_goes_on_with_returns_of_fewer_steps(sizes, walk):
    agent, shorter = rainbow(*sizes, discount=0.5, return_steps=3), rainbow(*sizes, discount=0.5, return_steps=1)
    steps = [t._replace(reward_t=1.0) for t in walk(4)]
    for transition in steps[:2]:
        agent.learn(transition)
    shorter.load_state_dict(agent.state_dict())
    for transition in steps[2:]:
        shorter.learn(transition)
    assert shorter.replay.experiences.return_N.tolist() == [1.75, 1.5, 1.0, 1.0]
    assert shorter.unfinished == []


def test_the_first_transition_waits_for_the_second(sizes, walk, weights):
    agent = rainbow(*sizes)
    before = weights(agent)
    first, second = walk(2)
    assert agent.learn(first).keys() == {"epsilon", "policy_entropy"}
    assert torch.equal(weights(agent), before)
    assert agent.learn(second).keys() == {"epsilon", "policy_entropy", "td_loss", "td_error", "q_value"}
    assert not torch.equal(weights(agent), before)


def remember(replay, numbers):
    """Adds an experience for each number, which is its state, its action and its return."""
    for number in numbers:
        replay.add(torch.full((4,), float(number)), torch.tensor([number % 3] * 2), float(number), 0.9, torch.ones(4))


def test_memory_keeps_the_last_ones_and_draws_each_of_them_alike():
    replay = Replay(3, 4, 2)
    remember(replay, range(5))
    assert replay.experiences.return_N.tolist() == [2.0, 3.0, 4.0]
    assert replay.experiences.state_tm1_NS[:, 0].tolist() == [2.0, 3.0, 4.0]
    assert replay.experiences.actions_tm1_NK.tolist() == [[2, 2], [0, 0], [1, 1]]
    positions_B, probs_B = replay.draw(3000, torch.Generator().manual_seed(0))
    assert (positions_B.bincount() / 3000).tolist() == pytest.approx([1 / 3] * 3, abs=0.03)
    assert probs_B.unique().tolist() == pytest.approx([1 / 3])
    assert replay.at(positions_B).return_N.tolist() == (positions_B + 2).tolist()


def test_experiences_are_drawn_by_priority_and_new_ones_get_the_highest():
    replay = Replay(10, 4, 2)
    remember(replay, range(3))
    assert replay.priorities_N.tolist() == [1.0, 1.0, 1.0]
    replay.prioritise(torch.tensor([0, 1, 2]), torch.tensor([1.0, 4.0, 9.0]))
    positions_B, probs_B = replay.draw(6000, torch.Generator().manual_seed(0), 0.5)
    assert (positions_B.bincount() / 6000).tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.02)
    torch.testing.assert_close(probs_B, (positions_B + 1) / 6)
    remember(replay, [3])
    assert replay.priorities_N.tolist() == [1.0, 4.0, 9.0, 9.0]
