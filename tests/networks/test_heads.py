"""Heads that start from the features of the training images: against naive sums and scikit-learn."""

import json

import numpy as np
import pytest
import torch
from killing import run_until_killed
from sklearn.decomposition import PCA
from torch.nn import functional as F

from pads.autoconfig import resolve_auto
from pads.build import start_network
from pads.check import check
from pads.config import Config, Network, with_settings
from pads.data.loading import load_views
from pads.errors import UserError
from pads.evaluate import evaluate
from pads.metrics import compute_metrics
from pads.model import load
from pads.networks import HEADS, PooledFeatures, make_head
from pads.networks.heads import covariance_within, find_leading_directions, shrink
from pads.recipes import RECIPES
from pads.runs.checkpoint import load_state
from pads.runs.watch import nobody
from pads.start import start_heads
from pads.train import resume, train

CLOSED_FORMS = [name for name in HEADS if name != "random"]


@pytest.fixture
def features():
    """Features of 12 classes x 7 images, some directions loud within a class and others between classes."""
    noise = np.random.default_rng(0)
    between, within = np.linspace(3, 0.2, 10), np.linspace(0.2, 4, 10)
    labels = np.repeat(np.arange(12), 7)
    values = noise.normal(size=(12, 10))[labels] * between + noise.normal(size=(84, 10)) * within + 5
    return torch.tensor(values, dtype=torch.float32), torch.tensor(labels)


def apply(head, features):
    return features.double() @ head.weight_DF.T + head.bias_D


def distances(embeddings):
    return torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist")


@pytest.mark.parametrize("dim", [3, 10])
def test_pca_is_scikit_learns_with_the_centring_in_the_bias(features, dim):
    values, labels = features
    oracle = PCA(dim, svd_solver="full").fit(values.double().numpy())
    ours = apply(make_head("pca", values, labels, dim, 0.5), values)
    theirs = torch.tensor(oracle.transform(values.double().numpy()))
    torch.testing.assert_close(ours.abs(), theirs.abs(), rtol=1e-8, atol=1e-8)
    assert ours.mean(0).abs().max() < 1e-9


def test_the_covariance_within_classes_is_that_of_a_naive_loop(features):
    values, labels = (each.numpy() for each in features)
    total = np.zeros((10, 10))
    for label in set(labels):
        own = values[labels == label].astype(np.float64)
        for row in own:
            total += np.outer(row - own.mean(0), row - own.mean(0))
    np.testing.assert_allclose(covariance_within(*features).numpy(), total / len(values), rtol=1e-10)
    shuffled = torch.randperm(84, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        covariance_within(features[0][shuffled], features[1][shuffled] + 40), covariance_within(*features)
    )


@pytest.mark.parametrize("shrinkage", [0.1, 0.5, 1.0])
def test_whitening_gives_the_distances_of_the_inverse_of_the_covariance_within(features, shrinkage):
    """In all dimensions it is a Mahalanobis distance, up to one factor: no root, rotation or sign matters."""
    values, labels = features
    within = covariance_within(values, labels).numpy()
    mixed = (1 - shrinkage) * within + shrinkage * np.trace(within) / 10 * np.eye(10)
    apart = values.double().numpy()[:, None] - values.double().numpy()[None]
    naive = np.sqrt(np.maximum(np.einsum("ijk,kl,ijl->ij", apart, np.linalg.inv(mixed), apart), 0))
    ours = distances(apply(make_head("whitening", values, labels, 10, shrinkage), values)).numpy()
    off = ~np.eye(84, dtype=bool)
    ratio = ours[off] / naive[off]
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-8)


def test_fewer_dimensions_of_whitening_are_the_directions_in_which_the_whitened_features_vary_most(features):
    values, labels = features
    whole, cut = (apply(make_head("whitening", values, labels, dim, 0.5), values) for dim in (10, 4))
    oracle = PCA(4, svd_solver="full").fit_transform(whole.numpy())
    ratio = np.abs(cut.numpy()) / np.abs(oracle)
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-6)


@pytest.mark.parametrize("num_classes", [5, 12, 18, 30])
def test_the_discriminant_is_that_of_naive_loops_over_classes(num_classes):
    """Whitened by the shrunk covariance within, each direction between class means kept by its share of the variance."""
    draw = np.random.default_rng(num_classes)
    labels = np.repeat(np.arange(num_classes), 6)
    values = (
        draw.normal(size=(num_classes, 10))[labels] * np.linspace(2, 0.1, 10) + draw.normal(size=(len(labels), 10)) + 3
    )
    num_images, num_features = values.shape
    own = {label: values[labels == label].mean(0) for label in set(labels)}
    within = sum(np.outer(row - own[label], row - own[label]) for row, label in zip(values, labels, strict=True))
    within = within / (num_images - num_classes)
    mixed = 0.2 * within + 0.8 * np.trace(within) / num_features * np.eye(num_features)
    roots, axes = np.linalg.eigh(mixed)
    whiten = axes @ np.diag(roots**-0.5) @ axes.T
    seen = (values - values.mean(0)) @ whiten
    means = {label: seen[labels == label].mean(0) for label in own}
    noise = sum(((row - means[label]) ** 2).sum() for row, label in zip(seen, labels, strict=True))
    noise = noise / (num_images - num_classes) / num_features
    sizes, directions = np.linalg.eigh(sum(np.outer(means[label], means[label]) for label in labels) / num_images)
    share = {5: 1.0, 12: 1.0, 18: 12 / 18, 30: 0.5}[num_classes]
    sizes = (1 - share) * sizes + share * sizes.sum() / num_features
    whole = seen @ directions @ np.diag(np.sqrt(sizes / (sizes + noise)))
    for dim in (10, 4):
        head = make_head("discriminant", torch.tensor(values), torch.tensor(labels), dim, 0.8)
        ratio = np.abs(values @ head.weight_DF.numpy().T - values.mean(0) @ head.weight_DF.numpy().T)
        ratio = ratio / np.abs(PCA(dim, svd_solver="full").fit_transform(whole))
        np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-6)
        centred = -head.weight_DF.numpy() @ values.mean(0)
        np.testing.assert_allclose(head.bias_D.numpy(), centred * min(1, num_classes / 16), rtol=1e-9, atol=1e-9)


def test_plain_features_are_kept_as_they_are_or_as_well_as_fewer_dimensions_can(features):
    values, labels = features
    torch.testing.assert_close(apply(make_head("plain", values, labels, 10, 0.5), values), values.double())
    cut = apply(make_head("plain", values, labels, 9, 0.5), values)
    left, *_ = np.linalg.svd(values.double().numpy(), full_matrices=False)
    np.testing.assert_allclose(np.abs(np.linalg.svd(cut.numpy())[0][:, :9]), np.abs(left[:, :9]), rtol=1e-6, atol=1e-9)


def test_whitening_finds_what_noise_within_the_classes_hides(features):
    values, labels = features
    found = {}
    for name in CLOSED_FORMS:
        embeddings = F.normalize(apply(make_head(name, values, labels, 10, 0.5), values), dim=1).float()
        found[name] = compute_metrics(embeddings, labels, ("map@r",))["map@r"]
    assert min(found["discriminant"], found["whitening"]) > found["pca"] > found["plain"]


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_a_head_is_the_same_whatever_the_signs_of_the_eigenvectors(features, name, monkeypatch):
    head = make_head(name, *features, 6, 0.5)
    eigh = torch.linalg.eigh
    turned = lambda matrix: (eigh(matrix)[0], eigh(matrix)[1] * torch.tensor([-1.0, 1.0] * 5))
    monkeypatch.setattr(torch.linalg, "eigh", turned)
    again = make_head(name, *features, 6, 0.5)
    torch.testing.assert_close(head.weight_DF, again.weight_DF, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(head.bias_D, again.bias_D, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CLOSED_FORMS)
@pytest.mark.parametrize("dim", [4, 10])
def test_rows_have_unit_length_on_average_so_that_a_rate_means_the_same(features, name, dim):
    head = make_head(name, *features, dim, 0.5)
    assert head.weight_DF.shape == (dim, 10) and head.bias_D.shape == (dim,)
    assert head.weight_DF.square().sum(1).mean().item() == pytest.approx(1)


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_features_that_do_not_vary_or_are_few_give_finite_heads(name):
    for values in (torch.ones(6, 8), torch.zeros(6, 8), torch.arange(16.0).view(2, 8)):
        head = make_head(name, values, torch.arange(len(values)) // 2, 5, 0.5)
        assert head.weight_DF.isfinite().all() and head.bias_D.isfinite().all()
    assert torch.equal(shrink(torch.zeros(3, 3), 0.5), torch.eye(3, dtype=torch.float32))


def test_leading_directions_are_orthonormal_and_largest_first(generator):
    root = torch.randn(9, 9, generator=generator, dtype=torch.float64)
    covariance = root @ root.T
    rows = find_leading_directions(covariance, 5)
    torch.testing.assert_close(rows @ rows.T, torch.eye(5, dtype=torch.float64))
    variances = (rows @ covariance @ rows.T).diagonal()
    assert (variances.diff() < 0).all()
    assert (rows.gather(1, rows.abs().argmax(1, keepdim=True)) > 0).all()


def test_what_cannot_be_is_refused_in_one_sentence(features):
    values, labels = features
    with pytest.raises(UserError, match="at most 10, or take --set network"):
        make_head("pca", values, labels, 11, 0.5)
    with pytest.raises(UserError, match="no finite numbers"):
        make_head("whitening", values / 0, labels, 4, 0.5)
    with pytest.raises(UserError, match="did you mean whitening"):
        check(Config(network=Network("small", head="whitning")))
    for shrinkage in (0.0, 1.5, float("nan")):
        with pytest.raises(UserError, match="shrinkage is"):
            check(Config(network=Network("small", head="whitening", shrinkage=shrinkage)))


# -- in a run ----------------------------------------------------------------------------------------------------------

SETTINGS = [
    "network.weights=null",
    "network.backbone=small",
    "network.embedding_dim=24",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.selection_share=0.2",
    "num_epochs=2",
    "log_every=2",
    "threads=1",
]


@pytest.fixture(scope="module")
def photos(noisy_photos):
    return noisy_photos(14, sizes=[(20, 24)])


def make_config(photos, *settings):
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}", *SETTINGS, *settings])
    return resolve_auto(config, torch.device("cpu"), nobody)


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    return train(make_config(photos, "network.head=whitening"), tmp_path_factory.mktemp("runs") / "whole")


def test_the_head_of_a_run_is_made_from_the_train_role_alone(photos, run):
    views = load_views(run.config, torch.device("cpu"), nobody)
    network = start_network(run.config).eval()
    with torch.no_grad():
        pooled = torch.cat([PooledFeatures(network)(images) for images, _ in views.train])
    head = make_head("whitening", pooled, views.train.labels_N, 24, run.config.network.shrinkage)
    weight, bias = run.load_start()["whitening"]
    torch.testing.assert_close(weight, head.weight_DF.float())
    torch.testing.assert_close(bias, head.bias_D.float())


def test_untrained_is_the_network_with_that_head(photos, run):
    views = load_views(run.config, torch.device("cpu"), nobody)
    network = start_network(run.config)
    start_heads(run.config, run, network, views.train)
    figures = evaluate(network, views.test, ("recall@1", "map@r"))
    assert {name: run.metrics["test"]["untrained"][name] for name in figures} == figures
    random = evaluate(start_network(run.config), views.test, ("map@r",))
    assert figures["map@r"] != random["map@r"]


@pytest.mark.parametrize("call", [1, 9])
def test_a_run_killed_before_or_after_its_first_checkpoint_ends_the_same_to_the_bit(run, tmp_path, call):
    run_until_killed(lambda: train(run.config, tmp_path / "run"), torch.optim.Adam, "step", call)
    if call == 1:
        (tmp_path / "run" / "start.safetensors").unlink()  # made anew, to the same bits
    again = resume(tmp_path / "run")
    for name in ("events.jsonl", "metrics.json"):
        assert (again.path / name).read_bytes() == (run.path / name).read_bytes()
    ours, theirs = (load_state(each.checkpoints()[-1])["network"] for each in (again, run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_damaged_start_is_refused_by_name_and_one_of_another_shape_too(photos, tmp_path):
    config = make_config(photos, "network.head=pca", "num_epochs=1")
    for number, spoil in enumerate(
        (
            lambda run: run.start_path.write_bytes(b"x"),
            lambda run: run.save_start({"pca": (torch.ones(3, 3), torch.ones(3))}),
        )
    ):
        run = train(config, tmp_path / str(number))
        (run.path / "metrics.json").unlink()
        spoil(run)
        with pytest.raises(UserError, match=r"start\.safetensors|does not fit"):
            resume(run.path)


def test_a_head_starts_in_any_recipe_and_loads_as_ever(photos, tmp_path):
    config = make_config(
        photos,
        "network.head=pca",
        "network.embedding_dim=128",
        "distillation.name=s2sd",
        "distillation.options.dims=[16]",
        "num_epochs=1",
    )
    run = train(config, tmp_path / "run")
    assert json.loads(run.config_path.read_text())["network"]["head"] == "pca"
    assert load(run).embed(next(photos.rglob("*.png"))).shape == (1, 128)
