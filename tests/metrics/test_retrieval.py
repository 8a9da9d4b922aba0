import math

import pytest
import torch

from pads.metrics.retrieval import map_at_r, r_precision, recall_at

torch.set_num_threads(1)

MATCHES = torch.tensor(
    [
        [1, 0, 1, 0],  # R = 3
        [0, 1, 0, 0],  # R = 2
        [0, 0, 0, 1],  # R = 1
        [0, 0, 0, 0],  # R = 0: the only image of its class
    ]
).bool()
NUM_RELEVANT = torch.tensor([3, 2, 1, 0])


@pytest.mark.parametrize("k, expected", [(1, 1 / 4), (2, 2 / 4), (3, 2 / 4), (4, 3 / 4), (100, 3 / 4)])
def test_recall_counts_queries_with_a_match_among_the_k_nearest(k, expected):
    assert recall_at(MATCHES, k).item() == pytest.approx(expected)


def test_r_precision_by_hand():
    # among the R nearest: 2 of 3, 1 of 2, 0 of 1; the query without a relevant image is left out
    assert r_precision(MATCHES, NUM_RELEVANT).item() == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)


def test_map_at_r_by_hand():
    # first query: precision 1/1 at rank 1 and 2/3 at rank 3, over R = 3; second: 1/2 at rank 2, over R = 2; third: none
    assert map_at_r(MATCHES, NUM_RELEVANT).item() == pytest.approx(((1 + 2 / 3) / 3 + (1 / 2) / 2 + 0) / 3)


def test_map_at_r_tells_apart_what_r_precision_does_not():
    # two matches among R = 4: the earlier they come, the better
    early, late = torch.tensor([[1, 1, 0, 0]]).bool(), torch.tensor([[0, 0, 1, 1]]).bool()
    relevant = torch.tensor([4])
    assert r_precision(early, relevant) == r_precision(late, relevant) == 0.5
    assert map_at_r(early, relevant).item() == pytest.approx((1 + 1) / 4)
    assert map_at_r(late, relevant).item() == pytest.approx((1 / 3 + 2 / 4) / 4)


def test_random_matches_agree_with_a_naive_loop():
    generator = torch.Generator().manual_seed(0)
    matches_QK = torch.rand(50, 12, generator=generator) < 0.4
    num_relevant_Q = torch.randint(0, 13, (50,), generator=generator)
    precisions, averages = [], []
    for row, relevant in zip(matches_QK.tolist(), num_relevant_Q.tolist(), strict=True):
        if relevant:
            precisions.append(sum(row[:relevant]) / relevant)
            averages.append(sum(sum(row[: i + 1]) / (i + 1) for i in range(relevant) if row[i]) / relevant)
    assert r_precision(matches_QK, num_relevant_Q).item() == pytest.approx(sum(precisions) / len(precisions))
    assert map_at_r(matches_QK, num_relevant_Q).item() == pytest.approx(sum(averages) / len(averages))


def test_without_any_relevant_image_there_is_no_number():
    assert math.isnan(map_at_r(MATCHES[3:], NUM_RELEVANT[3:]).item())
    assert math.isnan(r_precision(MATCHES[3:], NUM_RELEVANT[3:]).item())
