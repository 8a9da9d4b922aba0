"""Training an embedding network with an adaptive sampling of negatives: start reading here.

The loop in `fit` is Algorithm 1 of the paper. Names end in dimensions: B batch, D embedding, N images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pads.autoconfig import resolve_auto
from pads.build import (
    build_distillation,
    build_draw,
    build_optimiser,
    build_parts,
    match_layouts,
    pick_device,
    set_learning_rates,
    start_network,
)
from pads.check import check
from pads.config import AutoConfig, Config, drop_auto
from pads.data.batches import BATCHES, rank_share
from pads.data.benchmark import Benchmark
from pads.data.loading import load_views
from pads.data.manifest import (
    Manifest,
    check_unchanged,
    format_manifest,
    list_data,
    read_changed,
    read_manifest,
    write_manifest,
)
from pads.data.prepare import Prepared
from pads.data.roles import Views
from pads.errors import UserError
from pads.evaluate import evaluate, metrics_to_report, raw_pixels
from pads.losses import value_and_share
from pads.networks import EmbeddingNetwork, Head, PooledFeatures
from pads.runs import RunFolder, SilentFolder, next_free
from pads.runs.watch import Watch, nobody
from pads.runtime.graphs import CapturedStep
from pads.runtime.precision import float32_rounding, use_threads
from pads.runtime.stopping import stop_requests
from pads.runtime.team import ALONE, Team, join_team
from pads.sampling import DrawnTriplets, divergence_error
from pads.start import start_head


def train(config: Config | AutoConfig, run: Path | str | None = None, *, watch: Watch | None = None) -> RunFolder:
    """Train from the start into a new run folder, `runs/RECIPE-SEED` unless told otherwise."""
    check(config)
    with join_team() as team:
        watch = watch if watch and team.leads else nobody
        path = team.lead(lambda: new_path(drop_auto(config), run))
        device = pick_device(drop_auto(config).device, team)
        resolved = with_full_paths(team.lead(lambda: resolve_auto(config, device, watch)))
        manifest: list[str] = []

        def keep(benchmark: Benchmark, prepared: Prepared | None) -> None:
            if team.leads:
                manifest.append(format_manifest(list_data(resolved.data, benchmark, prepared)))

        # first, so that bad data leaves no empty run behind
        views = load_views(resolved, device, watch, team, keep)
        folder = folder_of(team).create(path, resolved, *manifest)
        try:
            with folder:
                return fit(resolved, folder, views, watch, team)
        except UserError:
            folder.remove_if_unused()  # a start that failed leaves nothing in the way of the next
            raise


def resume(run: RunFolder | Path | str, *, watch: Watch | None = None, data_changed: bool = False) -> RunFolder:
    """Resume a run bit for bit where it was stopped; a finished run is left as it is.

    Images that are not those that the run began with are refused, unless `data_changed` says that this is known.
    """
    with join_team() as team:
        watch = watch if watch and team.leads else nobody
        folder = folder_of(team).open(run.path if isinstance(run, RunFolder) else run)
        if team.lead(lambda: folder.is_finished):
            return folder
        with folder:
            config = team.lead(lambda: folder.config)
            check(config)
            known: list[Manifest] = []

            def compare(benchmark: Benchmark, prepared: Prepared | None) -> None:
                if team.leads:
                    known.extend(find_known_changes(folder, config, benchmark, prepared, data_changed))

            views = load_views(config, pick_device(config.device, team), watch, team, compare)
            return fit(config, folder, views, watch, team, *known)


def find_known_changes(
    run: RunFolder, config: Config, benchmark: Benchmark, prepared: Prepared | None, is_known: bool
) -> list[Manifest]:
    """Refuse images that are not those that the run began with; what the user knows of is one manifest with a sentence."""
    before = read_manifest(run.manifest_path)
    if before is None:  # of an earlier version
        return []
    now = list_data(config.data, benchmark, prepared, before)
    changes = check_unchanged(before, now, run.path, is_known=is_known)
    if not changes:
        return []
    step = int(checkpoints[-1].stem.partition("-")[2]) if (checkpoints := run.checkpoints()) else 0
    sentence = f"From step {step} on, the images were not those before: {changes.count()}."
    return [replace(now, changed=(*before.changed, sentence))]


def fit(
    config: Config,
    run: RunFolder,
    views: Views,
    watch: Watch,
    team: Team = ALONE,
    known_changes: Manifest | None = None,
) -> RunFolder:
    """Run the training loop, from the newest checkpoint of the run or from the start, to the final figures."""
    own = own_part(config, team)
    with use_threads(config.threads), float32_rounding(config.precision), stop_requests() as stop_requested:
        network, loss_fn, curriculum = build_parts(config, views, team)
        head = start_head(config, run, network, views.train, team)
        draw = build_draw(config)
        distillation = build_distillation(config, network, views)
        optimiser = build_optimiser(config.optimiser, network, loss_fn, distillation)
        generator = torch.Generator(views.device).manual_seed(config.seed)
        drawn = DrawnTriplets(curriculum.rule, views.device)
        selected: dict[str, Any] = {"step": 0}
        parts = {"network": network, "loss": loss_fn, "optimiser": optimiser, "curriculum": curriculum, "drawn": drawn}
        if distillation is not None:
            parts["distillation"] = distillation
        learners = (network, loss_fn) if distillation is None else distillation.beside(network, loss_fn)
        step = restore(run, parts, generator, selected, team)
        if known_changes is not None:  # not before: images that do not fit what was saved leave the run as it was
            write_manifest(run.manifest_path, known_changes)
        record = recorder(run, watch, config.data.batch_size, step)

        steps_per_epoch = max(1, len(views.train) // config.data.batch_size)
        num_steps = config.num_epochs * steps_per_epoch
        if network.weights_used:
            watch("note", step, {"notes": (str(network.weights_used),)})
        watch("start", step, {"run": str(run.path), "num_steps": num_steps, "config": config, "splits": views.sizes()})

        def update_network(pixels_bCHW: Tensor, sizes_B2: Tensor, labels_B: Tensor) -> None:
            """Alg. 1, "Update DML model": I_a and I_p at random from the batch, I_n ~ p(I_n | I_a)."""
            images_bCHW = views.train.preprocessing.for_training(pixels_bCHW, sizes_B2, generator, own)
            embeddings_bD, *features = as_tuple(network(images_bCHW))
            embeddings_BD = team.gather(embeddings_bD)
            # sampling/triplets.py; who may be a negative (the paper's self-regularisation) is sampling.negatives_from
            triplets = draw(embeddings_BD, labels_B, curriculum.rule, generator=generator)
            loss, share = value_and_share(loss_fn, embeddings_BD, labels_B, triplets)
            if distillation is not None:
                draw_for = lambda head_BT, rule: draw(head_BT, labels_B, rule, generator=generator)
                loss = distillation(loss, embeddings_BD, features, labels_B, draw_for, curriculum.rule, team.gather)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            team.sum_gradients(*learners)
            optimiser.step()
            drawn.add(loss.detach(), share.detach(), embeddings_BD.detach(), labels_B, triplets)

        def save_here() -> str:
            save(run, parts, generator, selected, step)
            return f"saved at step {step} of {num_steps}"

        network.train()
        captured = config.compiled and views.device.type == "cuda" and team.size == 1
        update = CapturedStep(update_network, generator) if captured else update_network
        for epoch in range(step // steps_per_epoch, config.num_epochs):
            set_learning_rates(optimiser, config.optimiser, epoch)
            views = views.at(epoch)
            batches = epoch_batches(config, views, epoch, steps_per_epoch)[step % steps_per_epoch :]
            for stored in views.train.read_batches(batches, own):
                with team.saving(save_here, generator, *modules_of(parts)):
                    if team.any(stop_requested()):
                        raise KeyboardInterrupt(save_here())
                    update(*stored)
                step += 1
                watch("step", step, {})

                if step % config.log_every == 0:
                    record("training", step, {**drawn.summary(step), **summary_of(loss_fn)})

                # Alg. 1, "Update policy": every M steps the metrics on the reward split give state and reward to the
                # curriculum; that of PADS is curricula/learned.py
                if config.adapt_every and step % config.adapt_every == 0:
                    metrics = evaluate(network, views.reward, curriculum.metrics, team=team)
                    adjustment = curriculum.advance(metrics, progress=step / num_steps)
                    if adjustment:
                        record("adaptation", step, {**metrics, **adjustment})

            measure_epoch(config, run, network, views, epoch + 1, step, selected, record, team)
            if (epoch + 1) % config.checkpoint_every == 0 or epoch + 1 == config.num_epochs:
                save_here()

        if team.any(stop_requested()):
            raise KeyboardInterrupt(f"saved at step {step} of {num_steps}")
        run.write_json("metrics.json", final_figures(config, run, network, head, views, selected, step, team))
        watch("end", step, run.metrics or {})
        return run


# -- what the loop is made of ------------------------------------------------------------------------------------------


def summary_of(loss_fn: nn.Module) -> Mapping[str, float]:
    """Return what a loss that changes over the training has come to, for the log."""
    summary = getattr(loss_fn, "summary", None)
    return summary() if summary is not None else {}


def as_tuple(output: Any) -> tuple[Tensor, ...]:
    """Return the embeddings, and the features of a network that gives them in training."""
    return output if isinstance(output, tuple) else (output,)


def modules_of(parts: Mapping[str, Any]) -> list[nn.Module]:
    """Return the parts with weights and buffers, in their order: the network, the loss, what is distilled from."""
    return [part for part in parts.values() if isinstance(part, nn.Module)]


def own_part(config: Config, team: Team) -> slice:
    """Return the rows of the batch that this process embeds: whole classes, all of them if it is alone."""
    rows = rank_share(np.arange(config.data.batch_size), team.rank, team.size, config.data.samples_per_class)
    return slice(rows[0], rows[-1] + 1)


def epoch_batches(config: Config, views: Views, epoch: int, num_batches: int) -> Tensor:
    """Return the batches of an epoch: a function of seed and epoch alone, so that a resumed run finds the same."""
    labels, data = views.train.labels_N.cpu().numpy(), config.data
    sizes = data.classes_per_batch, data.samples_per_class
    indices = BATCHES[data.batches](labels, *sizes, seed=config.seed, epoch=epoch, num_batches=num_batches)
    return torch.as_tensor(indices, device=views.device)


def measure_epoch(
    config: Config,
    run: RunFolder,
    network: EmbeddingNetwork,
    views: Views,
    epoch: int,
    step: int,
    selected: dict[str, Any],
    record: Callable[[str, int, Mapping[str, Any]], None],
    team: Team,
) -> None:
    """Measure the selection split and keep the network that is best there."""
    last = epoch == config.num_epochs
    selection = views.test if config.data.paper_protocol else views.selection
    if len(selection) and (last or epoch % config.select_every == 0):
        names = dict.fromkeys(("recall@1", "map@r", config.picked_by))
        metrics = evaluate(network, selection, tuple(names), team=team)
        record("selection", step, {"epoch": epoch, **metrics})
        if metrics[config.picked_by] > selected.get(config.picked_by, -1.0):
            selected.update(metrics, step=step, epoch=epoch)
            run.save_selected(network.state_dict(), **selected)
    if config.test_curve_every and (last or epoch % config.test_curve_every == 0):
        figures = evaluate(network, views.test, metrics_to_report(config), team=team)
        run.append("test_curve.jsonl", {"step": step, "epoch": epoch, **figures})


def final_figures(
    config: Config,
    run: RunFolder,
    network: EmbeddingNetwork,
    head: Head | None,
    views: Views,
    selected: Mapping[str, Any],
    step: int,
    team: Team,
) -> dict[str, Any]:
    """Measure the test split, once at the end: raw pixels, the untrained network, the last epoch, the selected epoch.

    Where the backbone came with weights, its pooled features without a head are measured, too. The network, whose last
    state is in the checkpoint, is left with the weights of the selected epoch.
    """
    names = metrics_to_report(config)
    figures: dict[str, Any] = {
        "recipe": config.recipe,
        "seed": config.seed,
        "steps": step,
        "protocol": "last" if selected["step"] == 0 else "test-selected" if config.data.paper_protocol else "selected",
        "selection": dict(selected) if selected["step"] else None,
        "splits": views.sizes(),
        "weights": network.weights_used.record() if network.weights_used else None,
        **({"data_changed": changed} if (changed := read_changed(run.manifest_path)) else {}),
        # one run of k-means: thousands of dimensions make it slow, and nobody chooses by this number
        "test": {"raw pixels": evaluate(raw_pixels, views.test, names, team=team, num_restarts=1)},
    }
    untrained = start_network(config, head).to(views.device)
    if network.weights_used:
        plain = PooledFeatures(untrained, normalise=True)
        figures["test"]["pretrained features"] = evaluate(plain, views.test, names, team=team, num_restarts=1)
    figures["test"]["untrained"] = evaluate(untrained, views.test, names, team=team)
    figures["test"]["last"] = evaluate(network, views.test, names, team=team)
    if selected["step"] in (0, step):
        figures["test"]["trained"] = figures["test"]["last"]
    else:
        # into the same network: one that is not compiled would round otherwise, and differ from the test curve
        network.load_state_dict(team.lead(lambda: run.load_network("selected")))
        figures["test"]["trained"] = evaluate(network, views.test, names, team=team)
    return figures


# -- stopping and going on ---------------------------------------------------------------------------------------------


def save(
    run: RunFolder, parts: Mapping[str, Any], generator: torch.Generator, selected: Mapping[str, Any], step: int
) -> None:
    """Save a checkpoint of everything that a resumed run needs."""
    parts["drawn"].check_finite(step)
    if not all(torch.isfinite(weights).all() for weights in parts["network"].parameters()):
        raise divergence_error(step)
    states = {name: part.state_dict() for name, part in parts.items()}
    run.save_checkpoint(step, {**states, "generator": generator.get_state(), "selected": dict(selected), "step": step})


def restore(
    run: RunFolder, parts: Mapping[str, Any], generator: torch.Generator, selected: dict[str, Any], team: Team
) -> int:
    """Put every part back as the newest checkpoint has it; return its step, 0 if there is none."""
    state = team.lead(run.load_to_resume)
    run.cut_back(state["lengths"] if state else {})
    if state is None:
        team.match(*modules_of(parts))
        return 0
    with run.fitting():
        for name, part in parts.items():
            part.load_state_dict(state[name])
        match_layouts(parts["optimiser"])
        generator.set_state(state["generator"])
    selected.update(state["selected"])
    return int(state["step"])


# -- small things ------------------------------------------------------------------------------------------------------


def new_path(config: Config, run: Path | str | None) -> Path:
    path = Path(run) if run else next_free("runs", f"{config.recipe or 'run'}-{config.seed}")
    RunFolder(path).check_new()
    return path


def with_full_paths(config: Config) -> Config:
    """Return the config by which a run finds its images and weights from any folder; names that are no paths stay."""

    def full(place: str | None) -> str | None:
        path = None if place is None else Path(place).expanduser()
        return place if path is None or not path.exists() else str(path.absolute())

    data, network = config.data, config.network
    return replace(
        config, data=replace(data, root=full(data.root)), network=replace(network, weights=full(network.weights))
    )


def folder_of(team: Team) -> type[RunFolder]:
    """Return the kind of folder that a process has: only the first one writes."""
    return RunFolder if team.leads else SilentFolder


def recorder(
    run: RunFolder, watch: Watch, batch_size: int, first_step: int
) -> Callable[[str, int, Mapping[str, Any]], None]:
    """Return what writes an event, tells whoever watches, and keeps the time in a file of its own."""
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
