"""Training an embedding network with an adaptive sampling of negatives: start reading here.

The loop in `fit` is Algorithm 1 of the paper. Names end in dimensions: B batch, D embedding, N images.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
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
from pads.config import AutoConfig, Config, drop_auto, from_values, set_value, to_dict, value_of
from pads.data.batches import BATCHES, rank_share
from pads.data.benchmark import Benchmark
from pads.data.loading import load_images, load_views
from pads.data.manifest import (
    FILES,
    Manifest,
    check_unchanged,
    describe_manifest,
    format_manifest,
    list_data,
    read_changed,
    read_manifest,
    write_manifest,
)
from pads.data.prepare import Prepared
from pads.data.roles import Views, deal_roles
from pads.errors import UserError
from pads.evaluate import compare_rows, evaluate, metrics_to_report, raw_pixels
from pads.features import freeze_views
from pads.losses import value_and_share
from pads.networks import EmbeddingNetwork, Head, PooledFeatures
from pads.runs import RunFolder, SilentFolder, next_free
from pads.runs.folder import note_threads
from pads.runs.watch import Watch, nobody
from pads.runtime.graphs import CapturedStep
from pads.runtime.precision import float32_rounding, use_threads
from pads.runtime.stopping import stop_requests
from pads.runtime.team import ALONE, Team, join_team
from pads.sampling import DrawnTriplets, divergence_error
from pads.stages import Stage, plan_stages
from pads.start import start_heads

CLEARLY = 0.01
"""By which the start must be ahead of what was trained from it, on the selection split, to be kept instead."""
Record = Callable[[str, int, Mapping[str, Any]], None]
"""Writes an event: its kind, the step, the values."""


def train(
    config: Config | AutoConfig,
    run: Path | str | None = None,
    *,
    watch: Watch | None = None,
    minutes: float | None = None,
) -> RunFolder:
    """Train from the start into a new run folder, `runs/RECIPE-SEED` unless told otherwise.

    minutes: about how long it may take, from the images to the figures; the epochs follow from a step that is measured
    once, and the clock never stops a run.
    """
    if minutes is not None:
        config = leave_epochs(config, minutes)
    check(config)
    with join_team() as team:
        watch = watch if watch and team.leads else nobody
        path = team.lead(lambda: new_path(drop_auto(config), run))
        device = pick_device(drop_auto(config).device, team)
        tell = watch_changes(watch)
        resolved = with_full_paths(team.lead(lambda: resolve_auto(config, device, tell, minutes)))
        # the look at the data comes first, so that bad data leaves no empty run behind
        images = load_images(resolved.data, device, watch, team)
        is_less = images.manifest is not None and images.manifest.source == FILES and bool(images.manifest.bad)
        if team.any(is_less) and isinstance(config, AutoConfig):
            stored = with_store_of(config, resolved)  # not all images can be read: choose again for the others
            resolved = with_full_paths(team.lead(lambda: resolve_auto(stored, device, tell, minutes, images.manifest)))
        views = deal_roles(resolved, images, watch)
        manifest = [format_manifest(images.manifest)] if images.manifest else []
        folder = folder_of(team).create(path, resolved, *manifest)
        if images.manifest:
            watch("note", 0, {"notes": describe_manifest(images.manifest, folder.manifest_path)})
        try:
            with folder:
                return fit_stages(resolved, folder, views, watch, team)
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
            changed: list[Manifest] = []
            known = team.lead(lambda: read_manifest(folder.manifest_path))

            def compare(benchmark: Benchmark, prepared: Prepared | None) -> None:
                if team.leads and known is not None:
                    changed.extend(find_known_changes(folder, config, benchmark, prepared, known, data_changed))

            watch("note", 0, {"notes": note_threads(folder, config)})
            views = load_views(config, pick_device(config.device, team), watch, team, compare, known)
            return fit_stages(config, folder, views, watch, team, *changed)


def find_known_changes(
    run: RunFolder,
    config: Config,
    benchmark: Benchmark,
    prepared: Prepared | None,
    before: Manifest,
    is_known: bool,
) -> list[Manifest]:
    """Refuse images that are not those that the run began with; what the user knows of is one manifest with a sentence."""
    now = list_data(config.data, benchmark, prepared, before)
    changes = check_unchanged(before, now, run.path, is_known=is_known)
    if not changes:
        return []
    step = int(checkpoints[-1].stem.partition("-")[2]) if (checkpoints := run.checkpoints()) else 0
    sentence = f"From step {step} on, the images were not those before: {changes.count()}."
    return [replace(now, changed=(*before.changed, sentence))]


def fit_stages(
    config: Config,
    run: RunFolder,
    views: Views,
    watch: Watch,
    team: Team = ALONE,
    known_changes: Manifest | None = None,
) -> RunFolder:
    """Fit one stage after the other, from the one that the newest checkpoint is in; most runs have a single one."""
    stages = plan_stages(config, views)
    watch_stage = watch_once(watch, stages[-1].last_step)
    begun = team.lead(run.find_stage) if len(stages) > 1 else 0
    if known_changes is not None:
        run.drop_features()  # they are those of other images
    for stage in stages[begun:]:
        fit(stage, run, views, watch_stage, team, known_changes if stage.number == begun else None)
    run.drop_features()
    return run


def fit(
    stage: Stage, run: RunFolder, views: Views, watch: Watch, team: Team = ALONE, known_changes: Manifest | None = None
) -> None:
    """Run the training loop of a stage, from its newest checkpoint or from its start; the last stage ends with the figures."""
    config = stage.config
    own = own_part(config, team)
    with use_threads(config.threads), float32_rounding(config.precision), stop_requests() as stop_requested:
        network, loss_fn, curriculum = build_parts(config, views, team)
        # the images, or their features if that is all that is needed
        shown = freeze_views(config, run, network, views, team)
        heads = start_heads(config, run, network, shown.train, team)
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
        restored = restore(stage, run, parts, generator, selected, team)
        step = stage.first_step if restored is None else restored
        if known_changes is not None:  # not before: images that do not fit what was saved leave the run as it was
            write_manifest(run.manifest_path, known_changes)
        record = recorder(stage, run, watch, step)

        num_steps = stage.last_step
        if network.weights_used and stage.number == 0:
            watch("note", step, {"notes": (str(network.weights_used),)})
        watch("start", step, {"run": str(run.path), "stage": stage, "config": config, "splits": views.sizes()})

        def update_network(pixels_bCHW: Tensor, sizes_B2: Tensor, labels_B: Tensor) -> None:
            """Alg. 1, "Update DML model": I_a and I_p at random from the batch, I_n ~ p(I_n | I_a)."""
            images_bCHW = shown.train.preprocessing.for_training(pixels_bCHW, sizes_B2, generator, own)
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
            save(run, parts, generator, selected, step, stage)
            return f"saved at step {step} of {num_steps}"

        if restored is None:
            measure_start(stage, run, network, heads, shown, selected, record, team)
            if stage.number or not config.num_epochs:
                save_here()  # what a stage starts from is not to be found elsewhere
        network.train()
        captured = config.compiled and views.device.type == "cuda" and team.size == 1
        update = CapturedStep(update_network, generator) if captured else update_network
        first_epoch, num_done = stage.locate(step)
        for epoch in range(first_epoch, config.num_epochs):
            set_learning_rates(optimiser, config.optimiser, epoch)
            shown = shown.at(epoch)
            batches = epoch_batches(config, shown, epoch, stage.steps_per_epoch)[num_done:]
            num_done = 0
            for stored in shown.train.read_batches(batches, own):
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
                    metrics = evaluate(network, shown.reward, curriculum.metrics, team=team)
                    adjustment = curriculum.advance(metrics, progress=stage.progress(step))
                    if adjustment:
                        record("adaptation", step, {**metrics, **adjustment})

            measure_epoch(stage, run, network, shown, epoch + 1, step, selected, record, team)
            if (epoch + 1) % config.checkpoint_every == 0 or epoch + 1 == config.num_epochs:
                save_here()

        if team.any(stop_requested()):
            raise KeyboardInterrupt(f"saved at step {step} of {num_steps}")
        if stage.is_last:
            head = heads.get(config.network.head)
            figures = final_figures(config, run, network, head, views, shown, selected, step, team)
            run.write_json("metrics.json", figures)
            if step and selected.get("epoch") == 0:
                watch("note", step, {"notes": (describe_floor(selected["head"]),)})
            watch("end", step, run.metrics or {})


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


def measure_start(
    stage: Stage,
    run: RunFolder,
    network: EmbeddingNetwork,
    heads: Mapping[str, Head],
    views: Views,
    selected: dict[str, Any],
    record: Record,
    team: Team,
) -> None:
    """Offer what is known before the first step to the selection split: it is the floor that training has to reach.

    The network is left with the head that it starts from.
    """
    if stage.number > 0:  # it starts from the best of the stage before
        return
    for name, head in heads.items():
        network.start_from(head)
        measure_selection(
            stage.config, run, network, views, 0, selected, record, team, **stage.marks, epoch=0, head=name
        )
    if heads:
        network.start_from(heads[stage.config.network.head])


def measure_epoch(
    stage: Stage,
    run: RunFolder,
    network: EmbeddingNetwork,
    views: Views,
    epoch: int,
    step: int,
    selected: dict[str, Any],
    record: Record,
    team: Team,
) -> None:
    """Measure the selection split and keep the network that is best there."""
    config = stage.config
    last = epoch == config.num_epochs
    if last or epoch % config.select_every == 0:
        measure_selection(config, run, network, views, step, selected, record, team, **stage.marks, epoch=epoch)
    if config.test_curve_every and (last or epoch % config.test_curve_every == 0):
        figures = evaluate(network, views.test, metrics_to_report(config), team=team)
        run.append("test_curve.jsonl", {"step": step, "epoch": epoch, **figures})


def measure_selection(
    config: Config,
    run: RunFolder,
    network: EmbeddingNetwork,
    views: Views,
    step: int,
    selected: dict[str, Any],
    record: Record,
    team: Team,
    **about: Any,
) -> None:
    """Measure the selection split, if there is one, and keep the network if none was better; `about` says what it is.

    What is offered at epoch 0 must be clearly better to be kept: a few held-out classes cannot tell smaller differences.
    """
    selection = views.test if config.data.paper_protocol else views.selection
    if not len(selection):
        return
    names = dict.fromkeys(("recall@1", "map@r", config.picked_by))
    metrics = evaluate(network, selection, tuple(names), team=team)
    record("selection", step, {**about, **metrics})
    ahead = CLEARLY if selected.get("epoch") == 0 else 0.0
    if metrics[config.picked_by] > selected.get(config.picked_by, -1.0) - ahead:
        replace_all(selected, {"step": step, **metrics, **about})
        run.save_selected(network.state_dict(), **selected)


def describe_floor(head: str) -> str:
    kept = "the pretrained features as they are" if head == "plain" else "the head that was made from the images"
    return (
        f"Training did not help on the selection split: the run keeps what it started from, {kept}. More images of each class, "
        "or more classes, would help most."
    )


def final_figures(
    config: Config,
    run: RunFolder,
    network: EmbeddingNetwork,
    head: Head | None,
    views: Views,
    shown: Views,
    selected: Mapping[str, Any],
    step: int,
    team: Team,
) -> dict[str, Any]:
    """Measure the test split, once at the end: raw pixels, the untrained network, the last epoch, the selected epoch.

    shown: what the network is shown of the images. Where the backbone came with weights, its pooled features without a head
    are measured, too. The network, whose last state is in the checkpoint, is left with the weights of the selected epoch.
    """
    measure = partial(evaluate, metrics=metrics_to_report(config), team=team, each_query=True)
    figures: dict[str, Any] = {
        "recipe": config.recipe,
        "seed": config.seed,
        "steps": step,
        "protocol": "last"
        if "epoch" not in selected
        else "test-selected"
        if config.data.paper_protocol
        else "selected",
        "selection": dict(selected) if "epoch" in selected else None,
        "splits": views.sizes(),
        "weights": network.weights_used.record() if network.weights_used else None,
        **({"data_changed": changed} if (changed := read_changed(run.manifest_path)) else {}),
        # one run of k-means: thousands of dimensions make it slow, and nobody chooses by this number
        "test": {"raw pixels": measure(raw_pixels, views.test, num_restarts=1)},
    }
    untrained = start_network(config, head).to(views.device)
    if network.weights_used:
        plain = PooledFeatures(untrained, normalise=True)
        figures["test"]["pretrained features"] = measure(plain, shown.test, num_restarts=1)
    figures["test"]["untrained"] = measure(untrained, shown.test)
    figures["test"]["last"] = measure(network, shown.test)
    if "epoch" not in selected or (selected["epoch"] and selected["step"] == step):
        figures["test"]["trained"] = figures["test"]["last"]
    else:
        # into the same network: one that is not compiled would round otherwise, and differ from the test curve
        network.load_state_dict(team.lead(lambda: run.load_network("selected")))
        figures["test"]["trained"] = measure(network, shown.test)
    return {**figures, "compared": compare_rows(figures["test"])}


# -- stopping and going on ---------------------------------------------------------------------------------------------


def save(
    run: RunFolder,
    parts: Mapping[str, Any],
    generator: torch.Generator,
    selected: Mapping[str, Any],
    step: int,
    stage: Stage,
) -> None:
    """Save a checkpoint of everything that a resumed run needs."""
    parts["drawn"].check_finite(step)
    if not all(torch.isfinite(weights).all() for weights in parts["network"].parameters()):
        raise divergence_error(step)
    states = {name: part.state_dict() for name, part in parts.items()}
    about = {"generator": generator.get_state(), "selected": dict(selected), "step": step, **stage.marks}
    run.save_checkpoint(step, {**states, **about})


def restore(
    stage: Stage,
    run: RunFolder,
    parts: Mapping[str, Any],
    generator: torch.Generator,
    selected: dict[str, Any],
    team: Team,
) -> int | None:
    """Put every part back as the newest checkpoint has it; return its step, None if the stage is at its start.

    A stage starts with the best network of the one before, which is the last one if nothing was selected.
    """
    state = team.lead(run.load_to_resume)
    run.cut_back(state["lengths"] if state else {})
    if state is not None and state.get("stage", 0) < stage.number:
        with run.fitting():
            network = team.lead(lambda: run.load_network("selected"))
            parts["network"].load_state_dict(network)
        replace_all(selected, state["selected"])
        state = None
    if state is None:
        team.match(*modules_of(parts))
        return None
    with run.fitting():
        for name, part in parts.items():
            part.load_state_dict(state[name])
        match_layouts(parts["optimiser"])
        generator.set_state(state["generator"])
    replace_all(selected, state["selected"])
    return int(state["step"])


# -- small things ------------------------------------------------------------------------------------------------------


def replace_all(values: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Put these values in place of all that are there."""
    values.clear()
    values.update(others)


def leave_epochs(config: Config | AutoConfig, minutes: float) -> AutoConfig:
    """Leave the epochs to be chosen from the time that there is."""
    if not 0 < minutes < math.inf:
        raise UserError(f"{minutes:g} minutes are no time to train in: give a number above 0.")
    auto = config.auto if isinstance(config, AutoConfig) else frozenset({"num_epochs", "optimiser.milestones"})
    if "num_epochs" not in auto:
        raise UserError("the epochs follow from the minutes: give one of them, --minutes or num_epochs.")
    return AutoConfig(drop_auto(config), auto)


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


def with_store_of(config: AutoConfig, resolved: Config) -> Config | AutoConfig:
    """Return a config that is still to be chosen, with the shape of the pixels that were decoded already."""
    values = to_dict(config)
    for key in config.auto & {"data.store_size"}:
        set_value(values, key, value_of(resolved, key))
    return from_values(values)


def folder_of(team: Team) -> type[RunFolder]:
    """Return the kind of folder that a process has: only the first one writes."""
    return RunFolder if team.leads else SilentFolder


def recorder(stage: Stage, run: RunFolder, watch: Watch, first_step: int) -> Record:
    """Return what writes an event, tells whoever watches, and keeps the time in a file of its own."""
    clock = {"step": first_step, "time": time.perf_counter()}

    def record(kind: str, step: int, values: Mapping[str, Any]) -> None:
        run.append("events.jsonl", {"event": kind, "step": step, **stage.marks, **values})
        watch(kind, step, values)
        if kind == "training":
            seconds = time.perf_counter() - clock["time"]
            rate = (step - clock["step"]) * stage.config.data.batch_size / seconds
            run.append(
                "timing.jsonl", {"step": step, "seconds": round(seconds, 4), "images_per_second": round(rate, 1)}
            )
            clock.update(step=step, time=time.perf_counter())

    return record


def watch_changes(watch: Watch) -> Watch:
    """Return one that tells of each choice and each note once: of a second look at the images, only what is new."""
    told: set[Any] = set()

    def look(kind: str, step: int, values: Mapping[str, Any]) -> None:
        name = {"chosen": "choices", "note": "notes"}[kind]
        key_of: Callable[[Any], Any] = (lambda row: row[:2]) if kind == "chosen" else (lambda note: note)
        new = tuple(each for each in values[name] if key_of(each) not in told)
        told.update(map(key_of, new))
        if new:
            watch(kind, step, {name: new})

    return look


def watch_once(watch: Watch, num_steps: int) -> Watch:
    """Return a watch that hears of the start of a run once: the stages that follow are told as such."""
    begun: list[str] = []

    def watch_stages(kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "start":
            kind = "stage" if begun else "start"
            begun.append(kind)
            values = {**values, "num_steps": num_steps}
        watch(kind, step, values)

    return watch_stages
