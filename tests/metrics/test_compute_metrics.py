import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

import pads.metrics
from pads.errors import UserError
from pads.metrics import METRICS, check_metric_names, compute_metrics

torch.set_num_threads(1)

ALL_NAMES = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "r-precision", "nmi", "intra", "inter")


def mixture(num_images=500, dimension=16, num_classes=30, noise=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.arange(num_images) % num_classes
    labels_N = labels_N[torch.randperm(num_images, generator=generator)]
    centres_CD = torch.randn(num_classes, dimension, generator=generator)
    embeddings_ND = centres_CD[labels_N] + noise * torch.randn(num_images, dimension, generator=generator)
    return torch.nn.functional.normalize(embeddings_ND, dim=1), labels_N


@pytest.mark.parametrize("noise", [0.5, 1.5, 4.0])
def test_retrieval_agrees_with_pytorch_metric_learning(noise):
    embeddings_ND, labels_N = mixture(noise=noise)
    ours = compute_metrics(embeddings_ND, labels_N, ("recall@1", "r-precision", "map@r"))
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    theirs = AccuracyCalculator(include=include, k="max_bin_count", device=torch.device("cpu")).get_accuracy(
        embeddings_ND, labels_N
    )
    assert list(ours.values()) == pytest.approx([theirs[name] for name in include], abs=1e-6)


def test_query_and_gallery_agree_with_pytorch_metric_learning():
    embeddings_ND, labels_N = mixture()
    is_query_N = torch.arange(500) % 3 == 0
    ours = compute_metrics(
        embeddings_ND, labels_N, ("recall@1", "r-precision", "map@r"), is_query_N=is_query_N, is_gallery_N=~is_query_N
    )
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    theirs = AccuracyCalculator(include=include, k="max_bin_count", device=torch.device("cpu")).get_accuracy(
        embeddings_ND[is_query_N], labels_N[is_query_N], embeddings_ND[~is_query_N], labels_N[~is_query_N]
    )
    assert list(ours.values()) == pytest.approx([theirs[name] for name in include], abs=1e-6)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_overlapping_query_and_gallery_agree_with_a_naive_loop(k):
    embeddings_ND, labels_N = mixture(num_images=90, num_classes=25, noise=3.0)
    generator = torch.Generator().manual_seed(4)
    is_query_N, is_gallery_N = torch.rand(2, 90, generator=generator) < 0.6
    recalls, precisions = [], []
    for query in is_query_N.nonzero().flatten().tolist():
        others = [i for i in is_gallery_N.nonzero().flatten().tolist() if i != query]
        others.sort(key=lambda i: float((embeddings_ND[query] - embeddings_ND[i]).norm()))
        hits = [bool(labels_N[i] == labels_N[query]) for i in others]
        recalls.append(any(hits[:k]))
        if relevant := sum(hits):
            precisions.append(sum(hits[:relevant]) / relevant)
    found = compute_metrics(
        embeddings_ND, labels_N, [f"recall@{k}", "r-precision"], is_query_N=is_query_N, is_gallery_N=is_gallery_N
    )
    assert 0 < len(precisions) < len(recalls)  # a query without a relevant image is among them
    assert found[f"recall@{k}"] == pytest.approx(sum(recalls) / len(recalls))
    assert found["r-precision"] == pytest.approx(sum(precisions) / len(precisions))


def test_a_collapsed_embedding_gets_no_reward():
    labels_N = torch.arange(400) // 20
    found = compute_metrics(torch.ones(400, 8), labels_N, ("recall@1", "nmi"))
    assert found["recall@1"] <= 0.1
    assert found["nmi"] == 0


def test_the_answer_has_the_names_asked_for_in_their_order_as_floats():
    names = ["nmi", "recall@4", "intra", "recall@1"]
    found = compute_metrics(*mixture(), names)
    assert list(found) == names
    assert all(type(value) is float for value in found.values())


def test_asking_for_more_does_not_change_an_answer():
    together = compute_metrics(*mixture(), ALL_NAMES)
    alone = {name: compute_metrics(*mixture(), [name])[name] for name in ALL_NAMES}
    assert together == alone


def test_the_neighbours_are_found_once_and_only_if_needed(monkeypatch):
    depths = []

    def counting(embeddings_ND, k, **flags):
        depths.append(k)
        return original(embeddings_ND, k, **flags)

    original = pads.metrics.nearest_neighbours
    monkeypatch.setattr(pads.metrics, "nearest_neighbours", counting)
    compute_metrics(*mixture(), ALL_NAMES)  # 500 images of 30 classes: at most 17 each, so R is at most 16
    compute_metrics(*mixture(), ("recall@1", "recall@40", "map@r"))
    compute_metrics(*mixture(), ("recall@2", "nmi"))
    compute_metrics(*mixture(), ("nmi", "intra", "inter"))
    assert depths == [16, 40, 2]


def test_nothing_asked_is_answered_without_work():
    assert compute_metrics(torch.full((3, 2), torch.nan), torch.zeros(99), ()) == {}


def test_the_same_question_has_the_same_answer_to_the_last_bit():
    embeddings_ND, labels_N = mixture(noise=2.0)
    assert compute_metrics(embeddings_ND, labels_N, ALL_NAMES) == compute_metrics(embeddings_ND, labels_N, ALL_NAMES)
    assert compute_metrics(embeddings_ND, labels_N, ["nmi"], seed=1) != compute_metrics(
        embeddings_ND, labels_N, ["nmi"], seed=9
    )


def test_labels_are_only_names():
    embeddings_ND, labels_N = mixture()
    names_of_classes = torch.randint(-(2**62), 2**62, (30,), generator=torch.Generator().manual_seed(0))
    renamed = compute_metrics(embeddings_ND, names_of_classes[labels_N], ALL_NAMES)
    assert renamed == pytest.approx(compute_metrics(embeddings_ND, labels_N, ALL_NAMES), abs=1e-6)


def test_the_order_of_the_images_does_not_matter():
    embeddings_ND, labels_N = mixture()
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    names = [name for name in ALL_NAMES if name != "nmi"]  # k-means starts from drawn positions
    shuffled = compute_metrics(embeddings_ND[order], labels_N[order], names)
    assert shuffled == pytest.approx(compute_metrics(embeddings_ND, labels_N, names), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_measured_in_float32(dtype):
    embeddings_ND, labels_N = mixture()
    halves = embeddings_ND.to(dtype)
    assert compute_metrics(halves, labels_N, ALL_NAMES) == compute_metrics(halves.float(), labels_N, ALL_NAMES)


def test_the_autocast_of_a_training_does_not_reach_the_metrics():
    expected = compute_metrics(*mixture(noise=2.0), ALL_NAMES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compute_metrics(*mixture(noise=2.0), ALL_NAMES) == expected


def test_the_matmul_precision_of_a_training_is_put_aside_and_put_back(monkeypatch):
    seen = []

    def watching(*args, **options):
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return original(*args, **options)

    original = torch.addmm
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        monkeypatch.setattr(torch, "addmm", watching)
        compute_metrics(*mixture(), ALL_NAMES)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"ieee"}


def test_a_stranger_adds_a_metric_with_one_line(monkeypatch):
    monkeypatch.setitem(METRICS, "depth", lambda e: e.matches_QK.shape[1])
    monkeypatch.setitem(METRICS, "precision", lambda e, k: e.matches_QK[:, :k].float().mean())
    found = compute_metrics(*mixture(), ["depth", "precision@1", "recall@1"])
    assert found["depth"] == 16  # the neighbours reach the largest R
    assert found["precision@1"] == found["recall@1"]


@pytest.mark.parametrize(
    "name, advice",
    [
        ("recal@1", "recall@1"),
        ("recall", "recall@1"),
        ("recall@0", "recall@1"),
        ("recall@x", "recall@1"),
        ("MAP@R", "map@r"),
        ("nmii", "nmi"),
        ("nmi@3", "nmi"),
        ("quux", "recall@1, map@r, r-precision, nmi"),
    ],
)
def test_an_unknown_metric_is_refused_with_the_nearest_right_ones(name, advice):
    with pytest.raises(UserError, match=f"no metric '{name}'; did you mean .*{advice}"):
        compute_metrics(*mixture(), ["nmi", name])
    with pytest.raises(UserError):
        check_metric_names([name])


def test_embeddings_that_are_not_finite_are_counted_and_refused():
    embeddings_ND, labels_N = mixture()
    embeddings_ND[3, 0] = torch.nan
    embeddings_ND[7] = torch.inf
    with pytest.raises(UserError, match="2 of 500 embeddings are not finite"):
        compute_metrics(embeddings_ND, labels_N, ["intra"])


def test_what_does_not_fit_together_is_refused():
    embeddings_ND, labels_N = mixture()
    for bad in [(embeddings_ND, labels_N[:-1]), (embeddings_ND[0], labels_N), (embeddings_ND[:0], labels_N[:0])]:
        with pytest.raises(UserError, match="one label each"):
            compute_metrics(*bad, ["nmi"])
    with pytest.raises(UserError, match="marks no image"):
        compute_metrics(embeddings_ND, labels_N, ["recall@1"], is_query_N=torch.zeros(500, dtype=torch.bool))
