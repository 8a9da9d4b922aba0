"""The formulas against numbers worked out by hand and against scalar loops."""

import math

import pytest
import torch

from pads.agents.objectives import (
    categorical_entropy,
    clipped_policy_loss,
    discounted_returns,
    epsilon_greedy,
    importance_weights,
    linear_schedule,
    moving_average,
    policy_gradient_loss,
    priority_probabilities,
    q_targets,
    select_log_probs,
    select_values,
    share_clipped,
    td_loss,
    value_loss,
)

torch.set_num_threads(1)


# -- policy gradient ---------------------------------------------------------------------------------------------------


def test_log_probability_of_a_chosen_action_is_the_log_of_its_softmax():
    # softmax of (log 1, log 2, log 5) is (1, 2, 5) / 8; of equal logits, thirds.
    logits_KA = torch.tensor([[0.0, math.log(2), math.log(5)], [7.0, 7.0, 7.0]])
    expected_K = torch.tensor([math.log(5 / 8), math.log(1 / 3)])
    torch.testing.assert_close(select_log_probs(logits_KA, torch.tensor([2, 0])), expected_K)


def test_actions_of_another_shape_than_the_bins_are_refused():
    with pytest.raises(AssertionError):
        select_log_probs(torch.zeros(3, 2), torch.zeros(1, dtype=torch.int64))


def test_entropy_is_log_of_the_actions_when_uniform_and_zero_when_certain():
    logits_KA = torch.tensor([[0.0, 0.0, 0.0], [0.0, 200.0, 0.0], [math.log(1), math.log(3), -200.0]])
    # The last bin is left with two actions, of probabilities 1/4 and 3/4.
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    torch.testing.assert_close(categorical_entropy(logits_KA), torch.tensor([math.log(3), 0.0, quarter]))


def test_returns_are_the_rewards_to_come_discounted_by_how_long_they_take():
    # Backwards: 4, then 0 + 0.5 · 4 = 2, then 1 + 0.5 · 2 = 2.
    assert discounted_returns([1.0, 0.0, 4.0], 0.5) == [2.0, 2.0, 4.0]
    assert discounted_returns([1.0, 0.0, 4.0], 0.0) == [1.0, 0.0, 4.0]


def test_returns_are_those_of_the_definition():
    rewards, discount, value = [0.3, -1.0, 1.0, 0.0, 1.0], 0.9, 2.0
    for start, return_ in enumerate(discounted_returns(rewards, discount, value)):
        rest = rewards[start:]
        expected = sum(discount**step * reward for step, reward in enumerate(rest)) + discount ** len(rest) * value
        assert return_ == pytest.approx(expected)


def test_moving_average_begins_at_the_first_reward_and_then_moves_by_its_rate():
    first = moving_average(None, 1.0, 0.1)
    second = moving_average(first, -1.0, 0.1)  # 0.9 · 1 + 0.1 · (-1) = 0.8
    third = moving_average(second, 0.0, 0.1)  # 0.9 · 0.8 = 0.72
    assert (first, second, third) == (1.0, pytest.approx(0.8), pytest.approx(0.72))


def test_moving_average_of_zero_is_not_mistaken_for_none_yet():
    assert moving_average(0.0, 1.0, 0.05) == pytest.approx(0.05)


def test_policy_gradient_loss_is_minus_the_gain_times_the_mean_log_probability():
    # -0.5 · (-1 - 3) / 2 = 1
    assert policy_gradient_loss(torch.tensor([-1.0, -3.0]), 0.5).item() == pytest.approx(1.0)


@pytest.mark.parametrize("gain", [-1.3, 0.0, 0.7])
def test_gradient_of_the_policy_loss_is_the_softmax_gradient(gain):
    """∂/∂logit_ka of -G/K Σ_k log π(a_k) is -G/K (1[a = a_k] - π_k(a))."""
    generator = torch.Generator().manual_seed(1)
    logits_KA = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    actions_K = torch.tensor([0, 2, 1, 1])
    policy_gradient_loss(select_log_probs(logits_KA, actions_K), gain).backward()
    one_hot_KA = torch.eye(3, dtype=torch.float64)[actions_K]
    expected_KA = -gain / 4 * (one_hot_KA - logits_KA.detach().softmax(-1))
    torch.testing.assert_close(logits_KA.grad, expected_KA)


def _clipped_loss_of_scalars(log_probs, old_log_probs, gain, clip):
    total = 0.0
    for new, old in zip(log_probs, old_log_probs, strict=True):
        ratio = math.exp(new) / math.exp(old)
        total += min(ratio * gain, min(max(ratio, 1 - clip), 1 + clip) * gain)
    return -total / len(log_probs)


@pytest.mark.parametrize("clip", [0.1, 0.2, 1.5])
@pytest.mark.parametrize("gain", [-2.0, -0.3, 0.0, 0.9])
def test_clipped_loss_is_that_of_a_scalar_loop(gain, clip):
    generator = torch.Generator().manual_seed(2)
    new_K, old_K = -torch.rand(2, 29, generator=generator, dtype=torch.float64) * 2
    expected = _clipped_loss_of_scalars(new_K.tolist(), old_K.tolist(), gain, clip)
    assert clipped_policy_loss(new_K, old_K, gain, clip).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_clipped_loss_of_three_bins_worked_out_by_hand():
    # Ratios 2, 0.5 and 1, ε 0.2. Gain 1: min(2, 1.2) = 1.2, min(0.5, 0.8) = 0.5, 1. Gain -1: -2, -0.8, -1.
    new_K, old_K = torch.tensor([0.8, 0.2, 0.3]).log(), torch.tensor([0.4, 0.4, 0.3]).log()
    assert clipped_policy_loss(new_K, old_K, 1.0, 0.2).item() == pytest.approx(-(1.2 + 0.5 + 1.0) / 3)
    assert clipped_policy_loss(new_K, old_K, -1.0, 0.2).item() == pytest.approx((2.0 + 0.8 + 1.0) / 3)
    assert share_clipped(new_K, old_K, 0.2).item() == pytest.approx(2 / 3)


@pytest.mark.parametrize(("gain", "stopped"), [(1.0, [True, False, False]), (-1.0, [False, True, False])])
def test_only_a_bin_that_has_moved_too_far_in_the_favoured_direction_gets_no_gradient(gain, stopped):
    new_K = torch.tensor([0.8, 0.2, 0.3]).log().requires_grad_()
    clipped_policy_loss(new_K, torch.tensor([0.4, 0.4, 0.3]).log(), gain, 0.2).backward()
    assert (new_K.grad == 0).tolist() == stopped


@pytest.mark.parametrize("gain", [-1.0, 0.4])
def test_at_ratio_one_the_clipped_loss_has_the_gradient_of_the_policy_gradient(gain):
    values_K = torch.tensor([-0.2, -1.0, -2.5])
    clipped_K, plain_K = values_K.clone().requires_grad_(), values_K.clone().requires_grad_()
    clipped_policy_loss(clipped_K, values_K, gain, 0.2).backward()
    policy_gradient_loss(plain_K, gain).backward()
    torch.testing.assert_close(clipped_K.grad, plain_K.grad)


def test_value_loss_is_the_squared_error():
    assert value_loss(torch.tensor(0.5), -1.0).item() == pytest.approx(2.25)


# -- action values -----------------------------------------------------------------------------------------------------


def test_targets_and_loss_of_two_bins_worked_out_by_hand():
    q_BKA = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 4.0]]])
    q_BK = select_values(q_BKA, torch.tensor([[1, 2]]))
    assert q_BK.tolist() == [[2.0, 4.0]]
    # 1 + 0.5 · 6 = 4 and 1 + 0.5 · 2 = 2, so the errors are 2 and -2, and the mean of their squares 4.
    targets_BK = q_targets(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([[6.0, 2.0]]))
    assert targets_BK.tolist() == [[4.0, 2.0]]
    assert td_loss(targets_BK - q_BK, torch.ones(1)).item() == 4.0


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


def test_probabilities_and_importance_weights_worked_out_by_hand():
    # Roots of 1, 4 and 9 are 1, 2 and 3: sixths.
    probs_N = priority_probabilities(torch.tensor([1.0, 4.0, 9.0]), 0.5)
    torch.testing.assert_close(probs_N, torch.tensor([1.0, 2.0, 3.0]) / 6)
    # 1 / (3 · P) = 2, 1 and 2/3; over the largest: 1, 1/2, 1/3. With an exponent of 1/2, their roots.
    torch.testing.assert_close(importance_weights(probs_N, 3, 1.0), torch.tensor([1.0, 1 / 2, 1 / 3]))
    torch.testing.assert_close(importance_weights(probs_N, 3, 0.5), torch.tensor([1.0, 1 / 2, 1 / 3]).sqrt())
    assert importance_weights(probs_N, 3, 0.0).tolist() == [1.0, 1.0, 1.0]


def test_with_full_correction_a_weighted_draw_has_the_plain_mean():
    values_N, probs_N = torch.tensor([1.0, 10.0, 4.0]), priority_probabilities(torch.tensor([1.0, 4.0, 9.0]), 1.0)
    weights_N = importance_weights(probs_N, 3, 1.0)
    expectation = (probs_N * weights_N * values_N).sum() / (probs_N * weights_N).sum()
    assert expectation.item() == pytest.approx(5.0)
