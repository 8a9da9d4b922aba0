"""Q-learning: its formulas by hand, its memory, its target network and how it explores."""

import copy
import math

import pytest
import torch

from pads.agents import QLearning, Transition
from pads.agents.objectives import chosen_values, epsilon_greedy, linear_schedule, q_targets, td_loss
from pads.agents.replay import Replay
from pads.errors import UserError

torch.set_num_threads(1)

S, K, A = 4, 2, 3


def transitions(num, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        states = torch.randn(2, S, generator=generator)
        actions_K = torch.randint(A, (K,), generator=generator)
        yield Transition(states[0], actions_K, float(torch.randint(-1, 2, (), generator=generator)), states[1])


def weights(network):
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def test_targets_and_loss_of_two_bins_worked_out_by_hand():
    q_BKA = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 4.0]]])
    q_BK = chosen_values(q_BKA, torch.tensor([[1, 2]]))
    assert q_BK.tolist() == [[2.0, 4.0]]
    # 1 + 0.5 · 6 = 4 and 1 + 0.5 · 2 = 2, so the errors are 2 and -2, and the mean of their squares 4.
    targets_BK = q_targets(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([[6.0, 2.0]]))
    assert targets_BK.tolist() == [[4.0, 2.0]]
    assert td_loss(targets_BK - q_BK).item() == 4.0


def test_weights_of_the_loss_count_each_experience_by_its_own():
    # Means over bins: (1 + 9) / 2 = 5 and 4; (1 · 5 + 0.5 · 4) / 2 = 3.5.
    errors_BK = torch.tensor([[1.0, -3.0], [2.0, 2.0]])
    assert td_loss(errors_BK, torch.tensor([1.0, 0.5])).item() == 3.5


def test_epsilon_greedy_takes_the_best_but_for_its_share_of_chance():
    probs_KA = epsilon_greedy(torch.tensor([[0.0, 5.0, 1.0], [2.0, 1.0, 0.0]]), 0.3)
    torch.testing.assert_close(probs_KA, torch.tensor([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]]))
    assert epsilon_greedy(torch.tensor([[0.0, 5.0]]), 0.0).tolist() == [[0.0, 1.0]]


def test_a_schedule_goes_straight_from_its_start_to_its_end_and_stays():
    values = [linear_schedule(1.0, 0.2, 4, step) for step in (0, 1, 2, 4, 9)]
    assert values == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


def test_actions_follow_the_behaviour_whose_entropy_is_reported():
    agent = QLearning(S, K, A, epsilon_start=0.3, epsilon_end=0.3)
    state_S = torch.ones(S)
    best_K = agent.network(state_S).argmax(-1)
    share = torch.stack([agent.act(state_S) == best_K for _ in range(2000)]).float().mean()
    assert share == pytest.approx(0.8, abs=0.03)
    expected = -(0.8 * math.log(0.8) + 2 * 0.1 * math.log(0.1))
    assert agent.entropy(state_S).tolist() == pytest.approx([expected] * K)


def test_entropy_falls_from_that_of_chance_to_none():
    agent = QLearning(S, K, A, epsilon_end=0.0, epsilon_steps=5)
    logs = [agent.learn(transition) for transition in transitions(5)]
    assert [log["epsilon"] for log in logs] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert logs[0]["policy_entropy"] == pytest.approx(math.log(3))
    assert agent.entropy(torch.ones(S)).tolist() == [0.0] * K


def test_learning_online_is_the_update_written_out_afresh():
    """A memory of one is Q-learning without replay."""
    agent = QLearning(S, K, A, buffer_size=1, batch_size=1, target_every=3, discount=0.8, learning_rate=0.01)
    network, target = copy.deepcopy(agent.network), copy.deepcopy(agent.network)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for count, transition in enumerate(transitions(10), 1):
        loss = 0
        for k in range(K):
            best = max(target(transition.state_t)[k].tolist())
            q = network(transition.state_tm1)[k, int(transition.actions_tm1[k])]
            loss = loss + (transition.reward_t + 0.8 * best - q) ** 2 / K
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if count % 3 == 0:
            target.load_state_dict(network.state_dict())
        assert agent.learn(transition)["td_loss"] == pytest.approx(loss.item(), rel=1e-4)
        torch.testing.assert_close(weights(agent.network), weights(network), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights(agent.target_network), weights(target), rtol=1e-4, atol=1e-5)


def test_values_converge_to_the_discounted_sum_of_a_constant_reward():
    agent = QLearning(S, 1, 1, discount=0.5, target_every=5, learning_rate=0.01)
    state_S = torch.ones(S)
    for _ in range(300):
        agent.learn(Transition(state_S, torch.tensor([0]), 1.0, state_S))
    assert agent.network(state_S).item() == pytest.approx(2.0, abs=0.02)  # 1 / (1 - 0.5)


def test_memory_keeps_the_last_ones_and_draws_each_of_them_alike():
    replay = Replay(3, S, K)
    for number in range(5):
        replay.add(torch.full((S,), float(number)), torch.tensor([number % A] * K), float(number), 0.9, torch.ones(S))
    assert replay.experiences.return_N.tolist() == [2.0, 3.0, 4.0]
    assert replay.experiences.state_tm1_NS[:, 0].tolist() == [2.0, 3.0, 4.0]
    positions_B, probs_B = replay.draw(3000, torch.Generator().manual_seed(0))
    assert (positions_B.bincount() / 3000).tolist() == pytest.approx([1 / 3] * 3, abs=0.03)
    assert probs_B.unique().tolist() == pytest.approx([1 / 3])
    assert replay.at(positions_B).return_N.tolist() == (positions_B + 2).tolist()


@pytest.mark.parametrize(
    ("option", "value"),
    [("epsilon_end", 1.5), ("epsilon_steps", 0), ("target_every", 0), ("buffer_size", 0), ("batch_size", 1.5)],
)
def test_an_option_without_meaning_is_refused(option, value):
    with pytest.raises(UserError, match=f"{option} must be"):
        QLearning(S, K, A, **{option: value})
