"""What only a GPU can show, run by hand on one: `make gpu`. Every check compares the fast way with the plain one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import pads
from pads.autoconfig import resolve_auto
from pads.build import build_parts, make_curriculum
from pads.config import Config, with_settings
from pads.data.augment import centre_crops, random_resized_crop_boxes, resample
from pads.data.loading import load_views
from pads.data.store import are_turned, compute_kept_sizes
from pads.evaluate import evaluate
from pads.metrics import METRICS, compute_metrics
from pads.metrics.clustering import _starts, class_sums, start_draws
from pads.networks import BACKBONES, EmbeddingNetwork
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.runtime.graphs import CapturedStep
from pads.runtime.precision import float32_rounding
from pads.sampling import draw_triplets
from pads.train import nobody, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler warns of itself
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]

SETTINGS = [
    "network.weights=none",
    "data.image_size=32",
    "data.resize=36",
    "data.store_size=40",
    "data.classes_per_batch=6",
    "data.samples_per_class=2",
    "network.frozen_batch_norm=true",
    "device=cuda",
    "num_epochs=3",
    "adapt_every=5",
    "log_every=1",
    "precision=float32",
]


@pytest.fixture(scope="module")
def photos(noisy_photos) -> Path:
    return noisy_photos(16, 8, sizes=[(40, 56), (56, 40)])


def config(photos: Path, *settings: str) -> Config:
    config = with_settings(RECIPES["folder-pads"](), ["recipe=folder", f"data.root={photos}", *SETTINGS, *settings])
    return resolve_auto(config, torch.device("cuda"), nobody)


def losses(run: RunFolder) -> list[float]:
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "training"]


def results_in(network: EmbeddingNetwork, images: torch.Tensor) -> torch.Tensor:
    """The embeddings and all gradients as one vector."""
    network.zero_grad()
    embeddings = network(images)
    (embeddings * torch.linspace(-1, 1, embeddings.numel(), device="cuda").view_as(embeddings)).sum().backward()
    gradients = (parameter.grad for parameter in network.parameters() if parameter.grad is not None)
    return torch.cat([part.detach().float().flatten() for part in (embeddings, *gradients)])


@pytest.mark.parametrize("name", ["resnet18", "efficientnet-lite0"])
def test_a_folded_network_rounds_no_more_than_the_plain_one(name) -> None:
    torch.manual_seed(0)
    network = EmbeddingNetwork(BACKBONES[name](), 32, frozen_batch_norm=True).cuda().train()
    images = torch.randn(16, 3, 96, 96, device="cuda").to(memory_format=torch.channels_last)
    with float32_rounding("float32"):
        exact = results_in(network, images)
    network.in_bfloat16 = True
    plain = results_in(network, images)
    network.compile(dynamic=False)
    results_in(network, images)
    with torch.profiler.profile(acc_events=True) as profile:
        in_one = results_in(network, images)
    if name == "resnet18":  # there is no such kernel for depthwise convolutions
        assert any("convolve_add_relu" in event.key for event in profile.key_averages())
    error, plain_error = ((found - exact).norm() / exact.norm() for found in (in_one, plain))
    print(f"relative errors of embeddings and gradients: folded {error:.4f}, plain {plain_error:.4f}")
    assert error < 1.25 * plain_error


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("loss.options.rise=0.6", "loss.options.pace=0.5"),
        ("network.backbone=efficientnet-lite0",),
        ("network.head=whitening",),
    ],
)
def test_a_captured_and_compiled_step_trains_as_the_plain_one(photos, tmp_path, settings) -> None:
    plain = train(config(photos, "compiled=false", *settings), tmp_path / "plain")
    captured = train(config(photos, "compiled=true", *settings), tmp_path / "captured")
    assert len(losses(plain)) > 10
    np.testing.assert_allclose(losses(captured)[:10], losses(plain)[:10], rtol=2e-3)


def test_a_resumed_run_ends_as_one_that_was_never_stopped(photos, tmp_path) -> None:
    """Within rounding: convolutions on a GPU add up in no fixed order."""
    settings = config(photos, "compiled=true", "checkpoint_every=1")
    whole = train(settings, tmp_path / "whole")

    class Enough(Exception):
        pass

    def stop(kind, step, values):
        if kind == "step" and step == len(losses(whole)) - 3:
            raise Enough

    with pytest.raises(Enough):
        train(settings, tmp_path / "cut", watch=stop)
    resumed = pads.resume(tmp_path / "cut")
    np.testing.assert_allclose(losses(resumed), losses(whole), rtol=0.05)


@pytest.mark.parametrize("place", ["gpu", "memory"])
def test_images_are_the_same_wherever_the_store_lives(photos, place) -> None:
    here = load_views(config(photos, "device=cpu"), torch.device("cpu"), nobody)
    there = load_views(config(photos, f"data.store_on={place}"), torch.device("cuda"), nobody)
    picked = torch.arange(12).view(2, 6)
    for ours, theirs in zip(there.train.read_batches(picked.cuda()), here.train.read_batches(picked), strict=True):
        assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, theirs, strict=True))


def test_half_precision_crops_are_those_of_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (8, 3, 320, 427), dtype=torch.uint8, generator=generator)
    sizes_B2 = torch.tensor([[500, 375], [375, 500]] * 4)
    boxes_B4 = random_resized_crop_boxes(sizes_B2, generator=generator)
    turned_B, flips_B = sizes_B2[:, 1] > sizes_B2[:, 0], torch.arange(8) % 3 == 0
    plain = resample(pixels, boxes_B4, 224, turned_B=turned_B, flips_B=flips_B)
    fast = resample(pixels.cuda(), boxes_B4.cuda(), 224, turned_B=turned_B.cuda(), flips_B=flips_B.cuda())
    difference = 255 * (fast.cpu() - plain).abs()
    print(f"grey levels: mean {difference.mean():.4f}, largest {difference.max():.3f}")
    assert difference.max() < 0.5


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_centres_on_the_gpu_are_those_of_the_cpu_bit_for_bit(precision: str) -> None:
    """Sums of whole numbers are exact in any order, and in TF32 too, since the weights are multiplied in two parts."""
    pixels = torch.randint(256, (6, 3, 384, 512), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    sizes_B2 = torch.tensor([[500, 375], [375, 500], [384, 384], [333, 500], [1200, 800], [97, 301]])
    kept_B2, turned_B = compute_kept_sizes(sizes_B2, pixels.shape), are_turned(sizes_B2, pixels.shape)
    here = centre_crops(pixels, sizes_B2, kept_B2=kept_B2, turned_B=turned_B)
    with float32_rounding(precision):
        there = centre_crops(pixels.cuda(), sizes_B2.cuda(), kept_B2=kept_B2.cuda(), turned_B=turned_B.cuda())
    assert torch.equal(there.cpu(), here)


def test_evaluation_batches_are_the_same_at_every_pass(photos) -> None:
    """At the first the centres are cut out, later they are kept; compiled, a byte is scaled as on the CPU to rounding."""
    here = load_views(config(photos, "device=cpu"), torch.device("cpu"), nobody).train
    there = load_views(config(photos, "compiled=true"), torch.device("cuda"), nobody).train
    first, second = ([(images, labels) for images, labels in there] for _ in range(2))
    assert all(
        torch.equal(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )
    ours = torch.cat([images[: len(labels)] for images, labels in first]).cpu()
    torch.testing.assert_close(ours, torch.cat([images for images, _ in here]), rtol=1e-5, atol=1e-5)


def test_bfloat16_and_float32_measure_the_same_network_alike(photos) -> None:
    figures = {}
    for precision in ("float32", "bfloat16"):
        settings = config(photos, f"precision={precision}", "network.backbone=resnet50", "compiled=true")
        views = load_views(settings, torch.device("cuda"), nobody)
        network, _, _ = build_parts(settings, views)
        figures[precision] = evaluate(network, views.train, ("map@r", "intra"))
    assert figures["bfloat16"]["map@r"] == pytest.approx(figures["float32"]["map@r"], abs=0.03)
    assert figures["bfloat16"]["intra"] == pytest.approx(figures["float32"]["intra"], rel=0.03)


def test_metrics_on_the_gpu_are_those_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(40).repeat_interleave(12)
    embeddings_ND = torch.randn(40, 32, generator=generator)[labels_N] + torch.randn(480, 32, generator=generator)
    embeddings_ND = torch.nn.functional.normalize(embeddings_ND, dim=1)
    names = ("recall@1", "recall@8", "map@r", "r-precision", "intra", "inter")
    here, there = (compute_metrics(embeddings_ND.to(d), labels_N.to(d), (*names, "nmi")) for d in ("cpu", "cuda"))
    assert {name: there[name] for name in names} == pytest.approx({name: here[name] for name in names}, abs=1e-4)
    assert there["nmi"] == pytest.approx(here["nmi"], abs=0.02)  # other random starts
    again = [compute_metrics(embeddings_ND.cuda(), labels_N.cuda(), (*names, "nmi")) for _ in range(8)]
    assert again == [there] * 8  # as itself, then as one replayed graph


def test_a_replayed_graph_measures_what_it_is_given() -> None:
    """Embeddings of one shape after the other, some of them noise: each has its own figures, not those of the capture."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(50).repeat_interleave(6)
    names = ("recall@1", "recall@4", "map@r", "nmi", "intra", "inter")
    for noise in (0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 0.2, 5.0):
        embeddings_ND = torch.randn(50, 24, generator=generator)[labels_N]
        embeddings_ND = embeddings_ND + noise * torch.randn(300, 24, generator=generator)
        here, there = (compute_metrics(embeddings_ND.to(d), labels_N.to(d), names) for d in ("cpu", "cuda"))
        assert there.pop("nmi") == pytest.approx(here.pop("nmi"), abs=0.05)  # other random starts
        assert there == pytest.approx(here, abs=0.005)


def test_a_metric_of_the_users_own_may_wait_for_the_host(monkeypatch) -> None:
    monkeypatch.setitem(METRICS, "norm", lambda e: e.embeddings_ND.norm(dim=1).mean().item())
    embeddings_ND, labels_N = torch.ones(20, 4, device="cuda"), torch.arange(20, device="cuda") // 2
    for _ in range(8):
        assert compute_metrics(embeddings_ND, labels_N, ("norm", "recall@1"))["norm"] == pytest.approx(2.0)


def test_starts_and_sums_on_the_gpu_are_those_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings_ND = torch.nn.functional.normalize(torch.randn(800, 128, generator=generator), dim=1)
    classes_N = torch.randint(100, (800,), generator=generator)
    draws_CRL = start_draws(100, range(3), torch.device("cpu"))
    here, there = _starts(embeddings_ND, draws_CRL), _starts(embeddings_ND.cuda(), draws_CRL.cuda()).cpu()
    assert torch.equal(here[:, :10], there[:, :10])  # later ones differ once rounding has decided between two images
    ours, theirs = class_sums(embeddings_ND.cuda(), classes_N.cuda(), 100), class_sums(embeddings_ND, classes_N, 100)
    torch.testing.assert_close(ours[0].cpu(), theirs[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(ours[1].cpu(), theirs[1])


def test_a_captured_draw_draws_anew_at_every_replay_and_by_the_rule() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    labels_B = torch.arange(56, device="cuda").repeat_interleave(2)
    embeddings_BD = torch.nn.functional.normalize(torch.randn(112, 16, device="cuda", generator=generator), dim=1)
    rule = make_curriculum(RECIPES["emoji-pads"]()).rule
    draw = CapturedStep(
        lambda _: draw_triplets(embeddings_BD, labels_B, rule, negatives_from="other classes", generator=generator),
        generator,
    )
    drawn = torch.stack([draw(labels_B).negatives.clone() for _ in range(40)])
    assert len(drawn.unique(dim=0)) > 30
    assert (labels_B[drawn] != labels_B).all()
