"""Training an embedding network with an adaptive sampling of negatives: start reading here.

The loop in `fit` is Algorithm 1 of the paper. Names end in dimensions: B batch, D embedding, N images.
"""

from __future__ import annotations

import functools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pads.config import Config, Optimiser, build, lookup
from pads.curricula import Curriculum, build_curriculum
from pads.data import DATASETS, class_batches
from pads.data.augment import check_crop
from pads.data.views import Views, load_views
from pads.errors import UserError
from pads.evaluate import evaluate, raw_pixels
from pads.losses import LOSSES
from pads.networks import BACKBONES, EmbeddingNetwork, build_backbone, find_weights, load_weights, seeded
from pads.runs import RunFolder, next_free
from pads.sampling import BinDistribution, Triplets, bin_distribution, draw_triplets, triplet_statistics
from pads.sampling.triplets import check_draw
from pads.speed import CapturedStep, float32_rounding

Watch = Callable[[str, int, Mapping[str, Any]], None]
"""Called with (kind of event, step, values) as the run goes on; it looks, and nothing depends on it."""


def train(config: Config, run: Path | str | None = None, *, watch: Watch | None = None) -> RunFolder:
    """Trains from the start into a new run folder, `runs/RECIPE-SEED` unless told otherwise."""
    watch = watch or nobody
    check(config)
    path = run or next_free("runs", f"{config.recipe or 'run'}-{config.seed}")
    RunFolder(path).check_new()
    views = load_views(config, pick_device(config.device), watch)  # first, so that bad data leaves no empty run behind
    folder = RunFolder.create(path, config)
    try:
        with folder:
            return fit(config, folder, views, watch)
    except UserError:
        folder.remove_if_unused()  # a start that failed leaves nothing in the way of the next
        raise


def resume(run: RunFolder | Path | str, *, watch: Watch | None = None) -> RunFolder:
    """Goes on where a run was stopped, bit for bit; a finished run is left as it is."""
    watch = watch or nobody
    folder = RunFolder.open(run.path if isinstance(run, RunFolder) else run)
    if folder.is_finished:
        return folder
    with folder:
        config = folder.config
        return fit(config, folder, load_views(config, pick_device(config.device), watch), watch)


def fit(config: Config, run: RunFolder, views: Views, watch: Watch) -> RunFolder:
    """The training loop, from the newest checkpoint of the run or from the start, to the final figures."""
    with fixed_threads(config.threads), float32_rounding(config.precision), stop_requests() as stop_requested:
        network, loss_fn, curriculum = build_parts(config, views)
        optimiser = build_optimiser(config.optimiser, network, loss_fn)
        generator = torch.Generator(views.device).manual_seed(config.seed)
        drawn = DrawnTriplets(curriculum, views.device)
        selected: dict[str, Any] = {"step": 0, "recall@1": -1.0}
        parts = {"network": network, "loss": loss_fn, "optimiser": optimiser, "curriculum": curriculum, "drawn": drawn}
        step = restore(run, parts, generator, selected)
        record = recorder(run, watch, batch_size(config), step)

        steps_per_epoch = max(1, len(views.train) // batch_size(config))
        num_steps = config.num_epochs * steps_per_epoch
        if network.weights_used:
            watch("note", step, {"notes": (str(network.weights_used),)})
        watch("start", step, {"run": str(run.path), "num_steps": num_steps, "config": config, "splits": views.sizes()})

        def update_network(pixels_BCHW: Tensor, sizes_B2: Tensor, labels_B: Tensor) -> None:
            """Alg. 1, "Update DML model": I_a and I_p at random from the batch, I_n ~ p(I_n | I_a)."""
            embeddings_BD = network(views.train.preprocessing.for_training(pixels_BCHW, sizes_B2, generator))
            triplets = draw_triplets(
                embeddings_BD, labels_B, curriculum.rule, **asdict(config.sampling), generator=generator
            )
            loss = loss_fn(embeddings_BD, labels_B, triplets)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            drawn.add(loss.detach(), embeddings_BD.detach(), labels_B, triplets, loss_fn)

        network.train()
        captured = config.compiled and views.device.type == "cuda"
        update = CapturedStep(update_network, generator) if captured else update_network
        for epoch in range(step // steps_per_epoch, config.num_epochs):
            set_learning_rates(optimiser, config.optimiser, epoch)
            for stored in views.train.stored_batches(epoch_batches(config, views, epoch)[step % steps_per_epoch :]):
                if stop_requested():
                    save(run, parts, generator, selected, step)
                    raise KeyboardInterrupt(f"saved at step {step} of {num_steps}")
                update(*stored)
                step += 1
                watch("step", step, {})

                if step % config.log_every == 0:
                    record("training", step, drawn.summary(step))

                # Alg. 1, "Update policy": every M steps the metrics on the reward split give state and reward
                if config.adapt_every and step % config.adapt_every == 0:
                    metrics = evaluate(network, views.reward, curriculum.metrics)
                    adjustment = curriculum.advance(metrics, progress=step / num_steps)
                    if adjustment:
                        record("adaptation", step, {**metrics, **adjustment})

            measure_epoch(config, run, network, views, epoch + 1, step, selected, record)
            if (epoch + 1) % config.checkpoint_every == 0 or epoch + 1 == config.num_epochs:
                save(run, parts, generator, selected, step)

        if stop_requested():
            raise KeyboardInterrupt(f"saved at step {step} of {num_steps}")
        run.write_json("metrics.json", final_figures(config, run, network, views, selected, step))
        watch("end", step, run.metrics or {})
        return run


# -- what the loop is made of ------------------------------------------------------------------------------------------


def build_network(config: Config) -> EmbeddingNetwork:
    """The network with random weights, for a state dict to be loaded into: the same for the same seed."""
    options = config.network
    with seeded(config.seed):
        backbone = build_backbone(options.backbone, pooling=options.pooling)
        return EmbeddingNetwork(
            backbone,
            options.embedding_dim,
            frozen_batch_norm=options.frozen_batch_norm,
            normalise=options.normalise,
            bfloat16=config.precision == "bfloat16",
        )


def start_network(config: Config) -> EmbeddingNetwork:
    """The network as it is before training: with the weights from elsewhere in its backbone, where there are any."""
    network = build_network(config)
    if config.network.weights is not None:
        weights = find_weights(config.network.weights, config.network.backbone)
        network.weights_used = load_weights(network.backbone, weights)
    return network


def build_parts(config: Config, views: Views) -> tuple[EmbeddingNetwork, nn.Module, Curriculum]:
    network = start_network(config).to(views.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.compiled and views.device.type == "cuda":
        network.compile(dynamic=False)
    loss_fn = build(LOSSES, config.loss, "loss", num_classes=views.train.num_classes).to(views.device)
    curriculum = make_curriculum(config)
    if curriculum.metrics and config.adapt_every and len(views.reward) == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")
    return network, loss_fn, curriculum


def make_curriculum(config: Config) -> Curriculum:
    return build_curriculum(
        config.curriculum, dim=config.network.embedding_dim, recall_at=config.recall_at, seed=config.seed
    )


def build_optimiser(options: Optimiser, network: nn.Module, loss_fn: nn.Module) -> torch.optim.Adam:
    """Adam; the parameters of the loss have a rate of their own and no weight decay."""
    groups: list[dict[str, Any]] = [
        {
            "params": list(network.parameters()),
            "initial_lr": options.learning_rate,
            "weight_decay": options.weight_decay,
        },
        {"params": [p for p in loss_fn.parameters() if p.requires_grad], "initial_lr": options.loss_learning_rate},
    ]
    on_gpu = groups[0]["params"][0].is_cuda
    used = [group for group in groups if group["params"]]
    return torch.optim.Adam(used, lr=options.learning_rate, fused=on_gpu, capturable=on_gpu)


def set_learning_rates(optimiser: torch.optim.Optimizer, options: Optimiser, epoch: int) -> None:
    """Each rate times `factor` for every milestone passed."""
    decay = options.factor ** sum(epoch >= milestone for milestone in options.milestones)
    for group in optimiser.param_groups:
        rate, device = group["initial_lr"] * decay, group["params"][0].device
        if isinstance(group["lr"], Tensor) and group["lr"].device == device:
            group["lr"].fill_(rate)  # in place: a CUDA graph keeps reading it
        else:
            group["lr"] = torch.tensor(rate, device=device) if device.type == "cuda" else rate


def batch_size(config: Config) -> int:
    return config.data.classes_per_batch * config.data.samples_per_class


def epoch_batches(config: Config, views: Views, epoch: int) -> Tensor:
    """The batches of an epoch: a function of seed and epoch alone, so that a resumed run finds the same."""
    labels, data = views.train.labels_N.cpu().numpy(), config.data
    indices = class_batches(labels, data.classes_per_batch, data.samples_per_class, seed=config.seed, epoch=epoch)
    return torch.as_tensor(indices, device=views.device)


class DrawnTriplets:
    """Sums over the steps since the last record: the loss, and what the sampler drew. No host synchronisation to add."""

    names = ("triplets", "below", "above", "positive_is_anchor", "negative_of_class", "distance")

    def __init__(self, curriculum: Curriculum, device: torch.device) -> None:
        self.bins: BinDistribution = getattr(curriculum.rule, "distribution", None) or bin_distribution()
        self.histogram_K = torch.zeros(self.bins.num_bins, device=device)
        self.counts = torch.zeros(len(self.names), device=device)
        self.losses = torch.zeros(3, dtype=torch.float64, device=device)  # steps, loss, share of violations

    def add(
        self, loss: Tensor, embeddings_BD: Tensor, labels_B: Tensor, triplets: Triplets, loss_fn: nn.Module
    ) -> None:
        drawn_K, counts = triplet_statistics(embeddings_BD, labels_B, triplets, self.bins)
        violations = getattr(loss_fn, "violations", None)
        share = violations(embeddings_BD, labels_B, triplets) if violations else torch.zeros_like(loss)
        self.histogram_K += drawn_K
        self.counts += counts
        self.losses += torch.stack([torch.ones_like(loss), loss, share.detach()]).double()

    def check_finite(self, step: int) -> None:
        """Before anything is saved: a network that has become nan must not take the place of one that is good."""
        if not torch.isfinite(self.losses).all():
            raise diverged(step)

    def summary(self, step: int) -> dict[str, Any]:
        """The means since the last call."""
        self.check_finite(step)
        steps, loss, violations = self.losses.tolist()
        counts = dict(zip(self.names, self.counts.tolist(), strict=True))
        triplets = counts["triplets"]
        histogram = (self.histogram_K / triplets).tolist()
        for total in (self.histogram_K, self.counts, self.losses):
            total.zero_()
        return {
            "loss": loss / steps,
            "violation_share": violations / steps,
            "drawn": histogram,
            "below_share": counts["below"] / triplets,
            "above_share": counts["above"] / triplets,
            "positive_is_anchor_share": counts["positive_is_anchor"] / triplets,
            "negative_of_class_share": counts["negative_of_class"] / triplets,
            "negative_distance": counts["distance"] / triplets,
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {"histogram": self.histogram_K, "counts": self.counts, "losses": self.losses}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.histogram_K.copy_(state["histogram"])
        self.counts.copy_(state["counts"])
        self.losses.copy_(state["losses"])


def diverged(step: int) -> UserError:
    return UserError(
        f"the loss or a weight is no longer a finite number (noticed at step {step}): lower optimiser.learning_rate, or "
        "look for broken images. Nothing was saved since; the last good checkpoint is kept."
    )


def measure_epoch(
    config: Config,
    run: RunFolder,
    network: EmbeddingNetwork,
    views: Views,
    epoch: int,
    step: int,
    selected: dict[str, Any],
    record: Callable[[str, int, Mapping[str, Any]], None],
) -> None:
    """Measures the selection split and keeps the network that is best there."""
    last = epoch == config.num_epochs
    selection = views.test if config.data.paper_protocol else views.selection
    if len(selection) and (last or epoch % config.select_every == 0):
        metrics = evaluate(network, selection, ("recall@1", "map@r"))
        record("selection", step, {"epoch": epoch, **metrics})
        if metrics["recall@1"] > selected["recall@1"]:
            selected.update(metrics, step=step, epoch=epoch)
            run.save_selected(network.state_dict(), **selected)
    if config.test_curve_every and (last or epoch % config.test_curve_every == 0):
        run.append(
            "test_curve.jsonl", {"step": step, "epoch": epoch, **evaluate(network, views.test, reported(config))}
        )


def reported(config: Config) -> tuple[str, ...]:
    return (*(f"recall@{k}" for k in config.recall_at), "map@r", "r-precision", "nmi", "intra", "inter")


def final_figures(
    config: Config, run: RunFolder, network: EmbeddingNetwork, views: Views, selected: Mapping[str, Any], step: int
) -> dict[str, Any]:
    """The test split, measured once at the end: raw pixels, the untrained network, the last epoch, the selected epoch."""
    names = reported(config)
    figures: dict[str, Any] = {
        "recipe": config.recipe,
        "seed": config.seed,
        "steps": step,
        "protocol": "last" if selected["step"] == 0 else "test-selected" if config.data.paper_protocol else "selected",
        "selection": dict(selected) if selected["step"] else None,
        "splits": views.sizes(),
        "weights": network.weights_used.record() if network.weights_used else None,
        # one run of k-means: thousands of dimensions make it slow, and nobody chooses by this number
        "test": {"raw pixels": evaluate(raw_pixels, views.test, names, num_restarts=1)},
    }
    figures["test"]["untrained"] = evaluate(start_network(config).to(views.device), views.test, names)
    figures["test"]["last"] = evaluate(network, views.test, names)
    if selected["step"] in (0, step):
        figures["test"]["trained"] = figures["test"]["last"]
    else:
        best = build_network(config).to(views.device)
        best.load_state_dict(run.load_network("selected"))
        figures["test"]["trained"] = evaluate(best, views.test, names)
    return figures


# -- stopping and going on ---------------------------------------------------------------------------------------------


def save(
    run: RunFolder, parts: Mapping[str, Any], generator: torch.Generator, selected: Mapping[str, Any], step: int
) -> None:
    """A checkpoint of everything that a resumed run needs."""
    parts["drawn"].check_finite(step)
    if not all(torch.isfinite(weights).all() for weights in parts["network"].parameters()):
        raise diverged(step)
    states = {name: part.state_dict() for name, part in parts.items()}
    run.save_checkpoint(step, {**states, "generator": generator.get_state(), "selected": dict(selected), "step": step})


def restore(run: RunFolder, parts: Mapping[str, Any], generator: torch.Generator, selected: dict[str, Any]) -> int:
    """Puts every part back as the newest checkpoint has it; returns its step, 0 if there is none."""
    state = run.load_checkpoint()
    run.cut_back(state["lengths"] if state else {})
    if state is None:
        return 0
    with run.fitting():
        for name, part in parts.items():
            part.load_state_dict(state[name])
        generator.set_state(state["generator"])
    selected.update(state["selected"])
    return int(state["step"])


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask the loop to stop between two steps; a second Ctrl-C stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set  # only the main thread may catch signals
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def fixed_threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- small things ------------------------------------------------------------------------------------------------------


def recorder(
    run: RunFolder, watch: Watch, batch_size: int, first_step: int
) -> Callable[[str, int, Mapping[str, Any]], None]:
    """Writes an event, tells whoever watches, and keeps the time in a file of its own."""
    clock = {"step": first_step, "time": time.perf_counter()}

    def record(kind: str, step: int, values: Mapping[str, Any]) -> None:
        run.append("events.jsonl", {"event": kind, "step": step, **values})
        watch(kind, step, values)
        if kind == "training":
            seconds = time.perf_counter() - clock["time"]
            rate = (step - clock["step"]) * batch_size / seconds
            run.append(
                "timing.jsonl", {"step": step, "seconds": round(seconds, 4), "images_per_second": round(rate, 1)}
            )
            clock.update(step=step, time=time.perf_counter())

    return record


def nobody(kind: str, step: int, values: Mapping[str, Any]) -> None:
    """The watch of a run that nobody looks at."""


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} is not there: take `cpu`, or `auto` for what the machine has.") from error
    return torch.device(name)


AT_LEAST = {
    "seed": 0,
    "data.split_seed": 0,
    "data.classes_per_batch": 2,
    "data.samples_per_class": 2,
    "data.image_size": 1,
    "data.store_size": 1,
    "network.embedding_dim": 1,
    "optimiser.learning_rate": 0,
    "optimiser.loss_learning_rate": 0,
    "optimiser.weight_decay": 0,
    "optimiser.factor": 0,
    "num_epochs": 1,
    "adapt_every": 1,
    "log_every": 1,
    "select_every": 1,
    "test_curve_every": 1,
    "checkpoint_every": 1,
    "threads": 1,
}
MOST_THREADS = 1024
"""Far more of them, and torch dies without a word."""


def check(config: Config) -> None:
    """Settings that cannot work are refused before a run folder is made."""
    for name, least in AT_LEAST.items():
        value: Any = functools.reduce(getattr, name.split("."), config)
        most = math.inf if isinstance(value, float) else 2**63
        if value is not None and not least <= value < most:
            null = ", or null for never" if name in ("adapt_every", "test_curve_every") else ""
            raise UserError(f"{name} is {value}: it must be at least {least}{null}.")
    if config.threads is not None and config.threads > MOST_THREADS:
        raise UserError(f"threads is {config.threads}: it must be at most {MOST_THREADS}.")
    if min(config.network.std) <= 0:
        raise UserError(f"network.std is {list(config.network.std)}: each must be above 0.")
    if not config.recall_at or min(config.recall_at) < 1:
        raise UserError(f"recall_at is {list(config.recall_at)}: name at least one k, each at least 1.")
    check_crop(config.data.resize, config.data.image_size)
    check_draw(config.sampling.negatives_from, config.sampling.rho)
    lookup(DATASETS, config.data.name, "data set")
    lookup(BACKBONES, config.network.backbone, "backbone")
    if config.network.weights is not None:
        find_weights(config.network.weights, config.network.backbone)
    build(LOSSES, config.loss, "loss", num_classes=1)
    if make_curriculum(config).metrics and config.adapt_every and config.data.reward_share == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")
