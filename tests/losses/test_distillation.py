"""S2SD against its formula written out here, and in whole runs."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import pads
from pads.autoconfig import resolve_auto
from pads.build import build_optimiser, make_loss
from pads.check import check
from pads.config import Config, Optimiser, Part, from_json, to_json, with_settings
from pads.errors import UserError
from pads.losses import LOSSES, MarginLoss
from pads.losses.distillation import S2SD, divergence
from pads.networks import BACKBONES, EmbeddingNetwork
from pads.recipes import RECIPES
from pads.runs.checkpoint import load_state
from pads.runs.watch import nobody
from pads.sampling import bin_distribution, draw_triplets
from pads.sampling.rules import BinRule, DistanceWeighted, Random, in_dimension
from pads.train import resume, train

DIMS = (6, 10)
SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0.2",
    "data.selection_share=0.2",
    "network.backbone=small",
    "network.embedding_dim=8",
    "num_epochs=4",
    "adapt_every=3",
    "log_every=2",
    "threads=1",
]
S2SD_SETTINGS = ["distillation.name=s2sd", "distillation.options.dims=[12, 16]", "distillation.options.feature_delay=5"]


@pytest.fixture
def inputs(generator):
    """The base's embeddings of 12 images and the two kinds of features."""
    embeddings = nn.functional.normalize(torch.randn(12, 5, generator=generator), dim=1).requires_grad_()
    features = [torch.rand(12, 7, generator=generator).requires_grad_() for _ in range(2)]
    return embeddings, features, torch.arange(6).repeat_interleave(2)


def made(**options):
    torch.manual_seed(0)
    return S2SD(7, lambda dim: MarginLoss(6, beta=1.0), DIMS, **options)


def call(distillation, inputs, loss=None, seed=1, rule=None):
    embeddings, features, labels = inputs
    generator = torch.Generator().manual_seed(seed)

    def draw(rows, rule):
        return draw_triplets(rows, labels, rule, generator=generator)

    loss = torch.tensor(0.7) if loss is None else loss
    return distillation(loss, embeddings, features, labels, draw, rule or Random(), lambda rows: rows)


def kl_by_loops(student, teacher):
    total = 0.0
    for of_student, of_teacher in zip(student, teacher, strict=True):
        p, q = of_teacher.softmax(0), of_student.softmax(0)
        total += sum((p[i] * (p[i] / q[i]).log()).item() for i in range(len(p)))
    return total / len(student)


def similarities(rows):
    return torch.stack([torch.stack([torch.cosine_similarity(a, b, dim=0) for b in rows]) for a in rows])


def test_the_divergence_agrees_with_loops(generator):
    student, teacher = (torch.randn(5, 5, generator=generator) for _ in range(2))
    assert divergence(student, teacher, 1.0).item() == pytest.approx(kl_by_loops(student, teacher), rel=1e-5)
    assert divergence(student, student, 1.0).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("delay", [0, 1])
def test_the_whole_loss_agrees_with_the_formula(inputs, delay):
    embeddings, (pooled, into_heads), labels = inputs
    distillation = made(weight=20.0, feature_weight=30.0, feature_delay=delay)
    found = call(distillation, inputs).item()
    generator, losses, kls = torch.Generator().manual_seed(1), [], []
    for head, loss_fn in zip(distillation.heads, distillation.losses, strict=True):
        rows = nn.functional.normalize(head(into_heads), dim=1)
        losses.append(loss_fn(rows, labels, draw_triplets(rows, labels, Random(), generator=generator)).item())
        kls.append(kl_by_loops(similarities(embeddings), similarities(rows)))
    of_features = kl_by_loops(similarities(embeddings), similarities(pooled)) if delay == 0 else 0.0
    expected = (0.7 + sum(losses) / 2) / 2 + 20 * sum(kls) / 2 + 30 * of_features
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_features_teach_from_the_step_of_the_delay_on(inputs):
    late, never = made(feature_delay=3), made(feature_weight=0.0)
    differences = [(call(late, inputs) - call(never, inputs)).item() for _ in range(5)]
    assert differences[:3] == [0, 0, 0]
    assert min(differences[3:]) > 0
    assert late.num_steps.item() == 5


def test_heads_are_teachers_only(inputs):
    """The divergence moves the base and neither the heads nor the pooled features."""
    embeddings, (pooled, into_heads), _ = inputs
    distillation = made(feature_delay=0)
    for loss_fn in distillation.losses:
        loss_fn.forward = lambda *_: torch.zeros(())
    call(distillation, inputs).backward()
    assert embeddings.grad.abs().sum() > 0
    assert pooled.grad is None
    assert into_heads.grad is None
    assert all(parameter.grad is None for parameter in distillation.heads.parameters())


def test_every_head_has_its_own_loss_which_learns(inputs):
    distillation = made()
    call(distillation, inputs).backward()
    boundaries = [loss_fn.beta for loss_fn in distillation.losses]
    assert boundaries[0] is not boundaries[1]
    assert all(parameter.grad is not None for parameter in distillation.parameters())
    assert inputs[1][1].grad.abs().sum() > 0


@pytest.mark.parametrize("name", LOSSES)
def test_heads_work_around_every_loss(name, inputs):
    config = Config(loss=Part(name))
    distillation = S2SD(7, lambda dim: make_loss(config, 6, dim), DIMS)
    loss = call(distillation, inputs)
    loss.backward()
    assert loss.isfinite()
    for loss_fn, dim in zip(distillation.losses, DIMS, strict=True):
        if hasattr(loss_fn, "proxies"):
            assert loss_fn.proxies.shape == (6, dim)


def test_each_head_draws_by_the_rule_in_its_own_dimension(inputs):
    drawn_by = []

    def draw(rows, rule):
        drawn_by.append((rows.shape[1], rule.dim))
        return draw_triplets(rows, inputs[2], rule)

    made()(torch.tensor(0.0), *inputs, draw, DistanceWeighted(5, cutoff=0.6), lambda rows: rows)
    assert drawn_by == [(6, 6), (10, 10)]


def test_a_rule_in_another_dimension_is_that_rule_of_that_dimension(batch):
    embeddings, labels = batch
    distances = torch.cdist(embeddings, embeddings)
    candidates, positives = labels[:, None] != labels[None, :], torch.arange(32)
    of_128, of_512 = DistanceWeighted(128, cutoff=0.6), DistanceWeighted(512, cutoff=0.6)
    moved = in_dimension(of_128, 512)
    assert moved == of_512
    weights = [rule(distances, candidates, positives) for rule in (of_128, moved)]
    assert not torch.allclose(*weights)
    bins = BinRule(bin_distribution())
    assert (
        in_dimension(bins, 12) is bins
    )  # what a CUDA graph has captured goes on reading the tensors of the base's rule
    assert in_dimension(Random(), 12) == Random()


def test_heads_learn_at_the_rate_of_the_network_and_their_losses_at_that_of_the_loss():
    network = EmbeddingNetwork(BACKBONES["small"](), 8)
    distillation = S2SD(128, lambda dim: MarginLoss(6), DIMS)
    options = Optimiser(learning_rate=1e-5, loss_learning_rate=1e-3, weight_decay=4e-4, head_factor=3)
    groups = build_optimiser(options, network, MarginLoss(6), distillation).param_groups
    rates = {id(p): (group["initial_lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in distillation.heads.parameters()} == {(1e-5, 4e-4)}
    assert {rates[id(p)] for p in distillation.losses.parameters()} == {(1e-3, 0)}
    assert len(rates) == sum(len(list(part.parameters())) for part in (network, distillation)) + 1


@pytest.mark.parametrize("name", BACKBONES)
def test_a_network_gives_its_features_in_training_alone(name, generator):
    torch.manual_seed(0)
    network = EmbeddingNetwork(BACKBONES[name](), 8, frozen_batch_norm=True).train()
    images = torch.randn(2, 3, 64, 64, generator=generator)
    names, plain = network.state_dict().keys(), network(images)
    network.give_features()
    embeddings, pooled, of_both = network(images)
    assert torch.equal(embeddings, plain)
    assert pooled.shape == of_both.shape == (2, network.embedding.in_features)
    assert torch.equal(nn.functional.normalize(network.embedding(pooled), dim=1), plain)
    assert (of_both > pooled).any()
    assert torch.equal(network.eval()(images), plain)
    assert network.state_dict().keys() == names


def test_a_network_without_maps_is_refused():
    backbone = nn.Flatten()
    backbone.num_features = 12
    with pytest.raises(UserError, match="its own pooling"):
        EmbeddingNetwork(backbone, 4).give_features()


def test_the_compiled_network_is_one_graph_with_its_features():
    network = EmbeddingNetwork(BACKBONES["small"](), 8, frozen_batch_norm=True, bfloat16=True)
    network.give_features()
    network.train().compile(dynamic=False, backend="aot_eager", fullgraph=True)
    embeddings, _, of_both = network(torch.randn(4, 3, 32, 32))
    (embeddings.sum() + of_both.sum()).backward()
    assert network.backbone.conv1.weight.grad.isfinite().all()
    with torch.no_grad():
        assert network.eval()(torch.randn(4, 3, 32, 32)).shape == (4, 8)


def test_a_step_looks_at_no_value_on_the_host():
    """A CUDA graph refuses whoever waits for a number; tensors without values refuse it here."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        distillation = S2SD(7, lambda dim: MarginLoss(6, rise=0.6, pace=0.1), DIMS)
        features = [torch.randn(12, 7, requires_grad=True) for _ in range(2)]
        rows = torch.randn(12, 5, requires_grad=True)
        indices = tuple(torch.randint(12, (12,)) for _ in range(3))
        labels = torch.randint(6, (12,))
        distillation(rows.sum(), rows, features, labels, lambda *_: indices, Random(), lambda rows: rows).backward()
        assert features[1].grad is not None


# -- whole runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(noisy_photos) -> Config:
    photos = noisy_photos(14, sizes=[(20, 24)])
    config = with_settings(RECIPES["folder-pads"](), [f"data.root={photos}", *SETTINGS, *S2SD_SETTINGS])
    return replace(resolve_auto(config, torch.device("cpu"), nobody), recipe="folder-pads")


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["curriculum.name=distance-weighted", "loss.options.rise=0.6", "loss.options.pace=0.5"],
        ["curriculum.name=distance-weighted", "loss.name=proxy-anchor"],
    ],
    ids=["pads", "self-paced", "proxy-anchor"],
)
def test_a_run_with_heads_resumes_bit_for_bit(config, tmp_path, settings):
    config = with_settings(config, settings)
    whole = train(config, tmp_path / "whole")

    def interrupt(kind, step, values):
        if kind == "step" and step == 7:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(config, tmp_path / "run", watch=interrupt)
    resumed = resume(tmp_path / "run")
    for name in ("events.jsonl", "metrics.json"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    ours, theirs = (load_state(run.checkpoints()[-1])["distillation"] for run in (resumed, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert ours["num_steps"].item() == json.loads((whole.path / "metrics.json").read_text())["steps"]
    assert any(name.startswith("heads.1") for name in ours)


def test_what_is_selected_and_loaded_is_the_base_network_alone(config, tmp_path):
    plain = with_settings(config, ["distillation.name=none", "num_epochs=1"])
    runs = {
        name: train(settings, tmp_path / name)
        for name, settings in (("s2sd", with_settings(config, ["num_epochs=1"])), ("none", plain))
    }
    states = {name: run.load_network("selected") for name, run in runs.items()}
    assert states["s2sd"].keys() == states["none"].keys()
    assert runs["s2sd"].selected_path.stat().st_size == pytest.approx(
        runs["none"].selected_path.stat().st_size, rel=0.01
    )
    assert "distillation" not in load_state(runs["none"].checkpoints()[-1])
    model = pads.load(runs["s2sd"])
    assert not model.network.gives_features
    for checkpoint in ("selected", "last"):
        assert pads.load(runs["s2sd"], checkpoint=checkpoint).network(torch.zeros(1, 3, 16, 16)).shape == (1, 8)
    assert not all(torch.equal(states["s2sd"][name], states["none"][name]) for name in states["none"])


def test_a_config_with_a_distillation_survives_a_file_and_bad_options_are_refused(config):
    assert from_json(to_json(config)) == config
    check(config)
    with pytest.raises(UserError, match=r"did you mean distillation\.options\.weight"):
        check(with_settings(config, ["distillation.options.weigth=3"]))
    with pytest.raises(UserError, match="at least one head"):
        check(with_settings(config, ["distillation.options.dims=[]"]))
    with pytest.raises(UserError, match="no distillation 's2s'"):
        check(with_settings(config, ["distillation.name=s2s"]))


def test_a_loss_over_all_pairs_is_refused_with_a_curriculum_that_adapts(config):
    with pytest.raises(UserError, match="forms its own pairs"):
        check(with_settings(config, ["loss.name=multi-similarity"]))
