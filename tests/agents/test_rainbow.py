"""Rainbow: what it remembers, what it draws, and how far it looks; without its extensions it is Q-learning."""

import pytest
import torch

from pads.agents import QLearning, Rainbow, Transition
from pads.agents.objectives import double_values, draw_probabilities, importance_weights
from pads.agents.rainbow import LEAST_PRIORITY
from pads.agents.replay import Replay
from pads.errors import UserError

torch.set_num_threads(1)

S, K, A = 4, 2, 3


def walk(num, seed=0):
    """Random transitions, each from the state where the last one ended."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(num + 1, S, generator=generator)
    actions = torch.randint(A, (num, K), generator=generator)
    rewards = torch.randint(-1, 2, (num,), generator=generator).tolist()
    for step in range(num):
        yield Transition(states[step], actions[step], float(rewards[step]), states[step + 1])


def weights(agent):
    return torch.cat([weight.detach().flatten() for weight in agent.network.parameters()])


def test_probabilities_and_importance_weights_worked_out_by_hand():
    # Roots of 1, 4 and 9 are 1, 2 and 3: sixths.
    probs_N = draw_probabilities(torch.tensor([1.0, 4.0, 9.0]), 0.5)
    torch.testing.assert_close(probs_N, torch.tensor([1.0, 2.0, 3.0]) / 6)
    # 1 / (3 · P) = 2, 1 and 2/3; over the largest: 1, 1/2, 1/3. With an exponent of 1/2, their roots.
    torch.testing.assert_close(importance_weights(probs_N, 3, 1.0), torch.tensor([1.0, 1 / 2, 1 / 3]))
    torch.testing.assert_close(importance_weights(probs_N, 3, 0.5), torch.tensor([1.0, 1 / 2, 1 / 3]).sqrt())
    assert importance_weights(probs_N, 3, 0.0).tolist() == [1.0, 1.0, 1.0]


def test_with_full_correction_a_weighted_draw_has_the_plain_mean():
    values_N, probs_N = torch.tensor([1.0, 10.0, 4.0]), draw_probabilities(torch.tensor([1.0, 4.0, 9.0]), 1.0)
    weights_N = importance_weights(probs_N, 3, 1.0)
    expectation = (probs_N * weights_N * values_N).sum() / (probs_N * weights_N).sum()
    assert expectation.item() == pytest.approx(5.0)


def test_double_values_take_the_action_of_one_network_and_the_value_of_the_other():
    q_KA, target_q_KA = torch.tensor([[1.0, 2.0], [5.0, 4.0]]), torch.tensor([[7.0, 6.0], [3.0, 9.0]])
    assert double_values(q_KA, target_q_KA).tolist() == [6.0, 3.0]
    assert double_values(target_q_KA, target_q_KA).tolist() == [7.0, 9.0]  # the plain maximum


def test_experiences_are_drawn_by_priority_and_new_ones_get_the_highest():
    replay = Replay(10, S, K)
    for number in range(3):
        replay.add(torch.zeros(S), torch.zeros(K).long(), float(number), 0.9, torch.zeros(S))
    assert replay.priorities_N.tolist() == [1.0, 1.0, 1.0]
    replay.prioritise(torch.tensor([0, 1, 2]), torch.tensor([1.0, 4.0, 9.0]))
    positions_B, probs_B = replay.draw(6000, torch.Generator().manual_seed(0), 0.5)
    assert (positions_B.bincount() / 6000).tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.02)
    torch.testing.assert_close(probs_B, (positions_B + 1) / 6)
    replay.add(torch.zeros(S), torch.zeros(K).long(), 3.0, 0.9, torch.zeros(S))
    assert replay.priorities_N.tolist() == [1.0, 4.0, 9.0, 9.0]


def test_two_rewards_and_the_state_after_them_are_remembered():
    agent = Rainbow(S, K, A, discount=0.5)
    steps = [t._replace(reward_t=r) for t, r in zip(walk(4), (1.0, -1.0, 1.0, 1.0), strict=True)]
    for transition in steps:
        agent.learn(transition)
    kept = agent.replay.experiences
    assert kept.return_N.tolist() == [0.5, -0.5, 1.5]  # 1 - 0.5, -1 + 0.5, 1 + 0.5
    assert kept.discount_N.tolist() == [0.25] * 3
    assert torch.equal(kept.state_tm1_NS, torch.stack([t.state_tm1 for t in steps[:3]]))
    assert torch.equal(kept.actions_tm1_NK, torch.stack([t.actions_tm1 for t in steps[:3]]))
    assert torch.equal(kept.state_t_NS, torch.stack([t.state_t for t in steps[1:]]))


def test_where_the_states_break_off_the_return_ends_and_the_value_there_goes_on():
    agent = Rainbow(S, K, A, discount=0.5, return_steps=3)
    first = [t._replace(reward_t=1.0) for t in walk(2)]
    for transition in (*first, next(walk(1, seed=1))):
        agent.learn(transition)
    kept = agent.replay.experiences
    assert (kept.return_N.tolist(), kept.discount_N.tolist()) == ([1.5, 1.0], [0.25, 0.5])
    assert torch.equal(kept.state_t_NS, first[1].state_t.expand(2, S))
    assert len(agent.unfinished) == 1


def test_the_first_transition_waits_for_the_second():
    agent = Rainbow(S, K, A)
    before = weights(agent)
    first, second = walk(2)
    assert agent.learn(first).keys() == {"epsilon", "policy_entropy"}
    assert torch.equal(weights(agent), before)
    assert "td_loss" in agent.learn(second)
    assert not torch.equal(weights(agent), before)


@pytest.mark.parametrize("double", [False, True])
def test_a_step_is_the_update_written_out_afresh_and_its_errors_become_the_priorities(double):
    agent = Rainbow(S, K, A, discount=0.5, batch_size=1, double=double, learning_rate=0.01)
    with torch.no_grad():
        for weight in agent.target_network.parameters():
            weight.mul_(-1.5)  # so that the two networks prefer different actions
    first, second = walk(2)
    q_KA, next_q_KA = agent.network(first.state_tm1), agent.network(second.state_t)
    target_q_KA = agent.target_network(second.state_t)
    errors = []
    for k in range(K):
        best = int((next_q_KA if double else target_q_KA)[k].argmax())
        return_ = first.reward_t + 0.5 * second.reward_t + 0.25 * target_q_KA[k, best].item()
        errors.append(return_ - q_KA[k, first.actions_tm1[k]].item())
    agent.learn(first)
    log = agent.learn(second)
    assert log["td_loss"] == pytest.approx(sum(error**2 for error in errors) / K, rel=1e-4)
    mean = sum(map(abs, errors)) / K
    assert agent.replay.priorities_N.tolist() == pytest.approx([mean + LEAST_PRIORITY], rel=1e-4)


def test_without_its_extensions_it_is_q_learning():
    plain, bare = QLearning(S, K, A, seed=3), Rainbow(S, K, A, return_steps=1, priority_exponent=0.0, seed=3)
    for transition in walk(30):
        assert torch.equal(plain.act(transition.state_tm1), bare.act(transition.state_tm1))
        assert plain.learn(transition) == pytest.approx(bare.learn(transition))
    torch.testing.assert_close(weights(plain), weights(bare))


def test_the_memory_stays_within_its_bound():
    agent = Rainbow(S, K, A, buffer_size=5)
    for transition in walk(20):
        agent.learn(transition)
    assert len(agent.replay) == 5
    assert all(len(column) == 5 for column in agent.replay.state_dict().values())


@pytest.mark.parametrize("num_learnt", [0, 1, 15])
def test_a_restored_agent_draws_and_learns_on_bit_for_bit(num_learnt):
    options = {"buffer_size": 8, "return_steps": 3, "double": True}
    agent, other = Rainbow(S, K, A, seed=1, **options), Rainbow(S, K, A, seed=2, **options)
    steps = list(walk(30))
    for transition in steps[:num_learnt]:
        agent.learn(transition)
    other.load_state_dict(agent.state_dict())
    for transition in steps[num_learnt:]:
        assert torch.equal(agent.act(transition.state_tm1), other.act(transition.state_tm1))
        assert agent.learn(transition) == other.learn(transition)
    assert torch.equal(agent.replay.priorities_N, other.replay.priorities_N)
    assert torch.equal(weights(agent), weights(other))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("return_steps", 0),
        ("priority_exponent", -0.1),
        ("importance_start", 1.1),
        ("importance_steps", 0),
        ("double", 2),
    ],
)
def test_an_option_without_meaning_is_refused(option, value):
    with pytest.raises(UserError, match=f"{option} must be"):
        Rainbow(S, K, A, **{option: value})
