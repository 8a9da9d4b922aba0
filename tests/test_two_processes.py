"""Several processes train as one does, and one that dies takes nothing with it.

The processes are forks of this one, connected by gloo as torchrun would connect them; the last tests use torchrun itself.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pads.autoconfig import resolve_auto
from pads.build import build_network, own_device
from pads.check import check
from pads.config import Config, with_settings
from pads.data import roles
from pads.data.batches import rank_share
from pads.data.loading import load_views
from pads.data.manifest import read_manifest
from pads.errors import UserError
from pads.evaluate import embed, evaluate
from pads.losses import MarginLoss, TripletLoss
from pads.networks import EmbeddingNetwork, build_backbone
from pads.recipes import RECIPES
from pads.runs import RunFolder, SilentFolder
from pads.runs.checkpoint import load_state
from pads.runtime import team as team_module
from pads.runtime.team import ALONE, Deserted, Team, expect_answers, join_team, num_processes, share_batch_norms
from pads.sampling import Triplets
from pads.train import nobody, resume, train

loop = sys.modules["pads.train"]  # `pads.train` is the function

SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0.2",
    "data.selection_share=0.2",
    "network.embedding_dim=16",
    "network.frozen_batch_norm=true",
    "optimiser.learning_rate=1e-5",  # as in the paper: a larger one makes a large difference of the smallest rounding
    "num_epochs=5",
    "adapt_every=3",
    "log_every=1",
    "threads=1",
    "device=cpu",
]


@pytest.fixture(scope="module")
def photos(noisy_photos) -> Path:
    """Pictures of different shapes, enough for four roles."""
    return noisy_photos(14, sizes=[(20, width) for width in range(20, 32, 2)])


@pytest.fixture(scope="module")
def config(photos) -> Config:
    own = ["recipe=folder-pads", f"data.root={photos}"]
    config = with_settings(RECIPES["folder-pads"](), [*own, *SETTINGS])
    return resolve_auto(config, torch.device("cpu"), nobody)


# -- processes ---------------------------------------------------------------------------------------------------------


class Ended(Exception):
    """How a process ended that did not return."""


def start(size: int, function: Callable[[int], Any], folder: Path) -> list[int]:
    """Forks `size` processes that each call function(rank); what it returns is found by `ends`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            signal.alarm(180)
            try:
                result: Any = function(rank)
            except BaseException as error:
                result = Ended(f"{type(error).__name__}: {error}", traceback.format_exc())
            (folder / f"{os.getpid()}.pickle").write_bytes(pickle.dumps(result))
            os._exit(0)
        children.append(child)
    return children


def ends(children: list[int], folder: Path) -> list[Any]:
    """What each process returned, or how it ended."""
    results = []
    for child in children:
        _, status = os.waitpid(child, 0)
        path = folder / f"{child}.pickle"
        results.append(pickle.loads(path.read_bytes()) if path.exists() else Ended(f"signal {os.WTERMSIG(status)}"))
    return results


def together(size: int, function: Callable[[int], Any], folder: Path) -> list[Any]:
    """function(rank) in each of `size` processes; all must return."""
    results = ends(start(size, function, folder), folder)
    for result in results:
        assert not isinstance(result, Ended), result.args[-1]
    return results


def in_a_team(function: Callable[[Team], Any]) -> Callable[[int], Any]:
    def connected(rank: int) -> Any:
        with join_team() as team:
            assert (team.rank, team.size) == (rank, num_processes())
            return function(team)

    return connected


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [event for event in lines if event["event"] == kind]


# -- the same run ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_one(config, tmp_path_factory) -> Path:
    return train(config, tmp_path_factory.mktemp("runs") / "one").path


@pytest.fixture(scope="module")
def by_two(config, tmp_path_factory) -> tuple[Path, list[dict[str, Any]]]:
    """The run of two processes, and the last state that each of them would have saved."""
    folder = tmp_path_factory.mktemp("runs")
    return folder / "two", together(2, lambda rank: trained_state(config, folder / "two"), folder)


def trained_state(config: Config, run: Path) -> dict[str, Any]:
    """Trains and returns the state of every part at its last save."""
    states: dict[str, Any] = {}
    save = loop.save

    def seen(run: RunFolder, parts: Any, generator: torch.Generator, *others: Any) -> None:
        states.update(pickle.loads(pickle.dumps({name: part.state_dict() for name, part in parts.items()})))
        states["generator"] = generator.get_state().clone()
        save(run, parts, generator, *others)

    loop.save = seen
    train(config, run)
    return states


def assert_alike(run: Path, reference: Path, tolerance: float = 1e-5) -> None:
    """The same events, with the same losses but for rounding, the same actions and the same distributions."""
    for name in ("training", "adaptation", "selection"):
        ours, theirs = events(run, name), events(reference, name)
        assert [event["step"] for event in ours] == [event["step"] for event in theirs]
        assert len(ours) > 4
        for mine, other in zip(ours, theirs, strict=True):
            if name == "training":
                assert mine["loss"] == pytest.approx(other["loss"], abs=tolerance)
                assert mine["drawn"] == other["drawn"]
            if name == "adaptation":
                assert mine["actions"] == other["actions"]
                assert mine["reward"] == other["reward"]
                assert mine["distribution"] == pytest.approx(other["distribution"], abs=1e-12)
            if name == "selection":
                assert mine["recall@1"] == other["recall@1"]
    for row, figures in json.loads((reference / "metrics.json").read_text())["test"].items():
        assert json.loads((run / "metrics.json").read_text())["test"][row] == pytest.approx(figures, abs=1e-4)


def test_two_processes_have_the_losses_the_actions_and_the_bins_of_one(by_one, by_two):
    assert len(events(by_one, "training")) >= 20
    assert_alike(by_two[0], by_one)


def test_two_processes_start_from_the_head_of_one(config, tmp_path):
    config = replace(config, network=replace(config.network, head="whitening"), num_epochs=1)
    by_one = train(config, tmp_path / "one")
    first, second = together(2, lambda rank: trained_state(config, tmp_path / "two"), tmp_path)
    assert all(torch.equal(first["network"][name], second["network"][name]) for name in first["network"])
    for name, head in RunFolder(tmp_path / "two").load_start().items():
        torch.testing.assert_close(head, by_one.load_start()[name], rtol=1e-4, atol=1e-4)


def test_one_run_folder_is_written_with_the_same_files(by_one, by_two):
    assert sorted(path.name for path in by_one.iterdir()) == sorted(path.name for path in by_two[0].iterdir())
    assert (by_one / "config.json").read_bytes() == (by_two[0] / "config.json").read_bytes()
    assert json.loads((by_two[0] / "environment.json").read_text())["processes"] == 2
    assert json.loads((by_one / "environment.json").read_text())["processes"] == 1
    assert len(RunFolder.open(by_two[0]).checkpoints()) == 2


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """The places where two nested states differ by a single bit."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [where]
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        return [place for key in a for place in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, list | tuple):
        assert len(a) == len(b), where
        return [place for i in range(len(a)) for place in differences(a[i], b[i], f"{where}.{i}")]
    return [] if a == b else [where]


def test_all_processes_end_with_the_same_bits(by_two):
    """Weights, boundaries of the loss, optimiser, policy, what was drawn, random numbers."""
    first, second = by_two[1]
    assert set(first) == {"network", "loss", "optimiser", "curriculum", "drawn", "generator"}
    assert differences(first, second) == []
    assert first["loss"]["beta"].unique().numel() > 1  # they have learned


def test_two_processes_distil_as_one_does(config, tmp_path):
    heads = ["distillation.name=s2sd", "distillation.options.dims=[12, 20]", "distillation.options.feature_delay=4"]
    config = with_settings(config, [*heads, "num_epochs=5"])
    alone = train(config, tmp_path / "one").path
    first, second = together(2, lambda rank: trained_state(config, tmp_path / "two"), tmp_path)
    assert_alike(tmp_path / "two", alone, tolerance=1e-4)  # the divergences have a weight of 50
    assert differences(first, second) == []
    assert first["distillation"]["num_steps"] == len(events(alone, "training"))


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(config, by_one, tmp_path, sizes):
    run = tmp_path / "run"

    def stopped(rank: int) -> str:
        stop_after(7, signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt) as stop:
            train(config, run)
        return str(stop.value)

    said = together(sizes[0], stopped, tmp_path)
    assert said[0] == "saved at step 7 of 20"
    assert not (run / "metrics.json").exists()
    together(sizes[1], lambda rank: resume(run) and None, tmp_path)
    assert_alike(run, by_one)


def stop_after(step: int, number: int, rank: int = 0) -> None:
    """The process of that rank gets a signal in the middle of a step."""
    before(Team, "sum_gradients", step, lambda: os.environ["RANK"] == str(rank) and os.kill(os.getpid(), number))


def before(owner: Any, name: str, call: int, act: Callable[[], Any]) -> None:
    """From now on, act() comes before that call of owner.name."""
    original, calls = getattr(owner, name), [0]

    def acting(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            act()
        return original(*arguments, **options)

    setattr(owner, name, acting)


def test_a_signal_that_one_process_hears_stops_all_at_the_same_step(config, by_two, tmp_path):
    run = tmp_path / "run"

    def stopped(rank: int) -> str:
        stop_after(11, signal.SIGINT, rank=1)
        with pytest.raises(KeyboardInterrupt) as stop:
            train(config, run)
        return str(stop.value)

    assert together(2, stopped, tmp_path) == ["saved at step 11 of 20"] * 2
    together(2, lambda rank: resume(run) and None, tmp_path)
    assert_the_same(run, by_two[0])


def assert_the_same(run: Path, reference: Path) -> None:
    """To the bit."""
    for name in ("events.jsonl", "metrics.json"):
        assert (run / name).read_bytes() == (reference / name).read_bytes(), name
    ours, theirs = (RunFolder.open(path).checkpoints()[-1] for path in (run, reference))
    assert differences(load_state(ours), load_state(theirs)) == []


# -- a process that dies -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(config) -> Config:
    """Batch norms that learn their statistics, a boundary that paces itself, and a rate that moves them."""
    pace = ["loss.options.margin=-0.1", "loss.options.rise=0.6", "loss.options.pace=0.05"]  # some triplets cost nothing
    return with_settings(config, ["network.frozen_batch_norm=false", "optimiser.learning_rate=1e-3", *pace])


@pytest.fixture(scope="module")
def live_by_two(live, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    together(2, lambda rank: train(live, folder / "run") and None, folder)
    assert events(folder / "run", "training")[7]["violation_share"] < 1  # the step that is killed moves the boundary
    return folder / "run"


@pytest.mark.parametrize(
    ("killed", "where", "calls", "saved"),
    [
        (1, "sum_gradients", 8, 7),  # the middle of a step: the others have drawn their random numbers already
        (1, "any", 11, 8),  # between two steps; the first two calls are of the reading of images
        (1, "on_first", 7, None),  # in a measurement, after which the policy would have acted: the last epoch counts
        (0, "gather", 8, None),  # the writer itself
    ],
)
def test_a_killed_process_ends_the_run_and_what_was_saved_goes_on_to_the_bit(
    live, live_by_two, tmp_path, killed, where, calls, saved
):
    run = tmp_path / "run"

    def deadly(rank: int) -> None:
        if rank == killed:
            before(Team, where, calls, lambda: os.kill(os.getpid(), signal.SIGKILL))
        train(live, run)

    started = time.monotonic()
    results = ends(start(2, deadly, tmp_path), tmp_path)
    assert time.monotonic() - started < 90
    assert results[killed].args == ("signal 9",)
    survivor = results[1 - killed].args[0]
    assert survivor.startswith("Deserted: another process of this run has ended or does not answer (")
    if saved is not None:
        assert survivor.endswith(f"; saved at step {saved} of 20")
        assert RunFolder.open(run).checkpoints()[-1].name == f"step-{saved:08d}.safetensors"
    together(2, lambda rank: resume(run) and None, tmp_path)
    assert_the_same(run, live_by_two)


def test_a_process_that_hangs_is_given_up_after_a_while(config, tmp_path):
    def hangs(rank: int) -> None:
        team_module.TIMEOUT = timedelta(seconds=5)
        if rank == 1:
            before(Team, "gather", 4, lambda: time.sleep(8))
        train(config, tmp_path / "run")

    first, second = ends(start(2, hangs, tmp_path), tmp_path)
    assert first.args[0].startswith("Deserted: another process of this run has ended or does not answer (")
    assert first.args[0].endswith("; saved at step 3 of 20")
    assert second.args[0].startswith("Deserted: ")


def test_an_exchange_that_fails_says_so_in_one_sentence():
    gloo = (
        "[/somewhere/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:46464. This is typically ..."
    )
    with pytest.raises(Deserted) as deserted, expect_answers():
        raise RuntimeError(gloo + "\nsecond line")
    why = "Connection closed by peer [127.0.0.1]:46464"
    assert str(deserted.value) == f"another process of this run has ended or does not answer ({why})"


# -- the mathematics, in float64 ---------------------------------------------------------------------------------------

LOSSES = {
    "margin": lambda: MarginLoss(num_classes=4, beta=0.7),
    "margin, one beta": lambda: MarginLoss(beta=0.7),
    "triplet": lambda: TripletLoss(margin=0.1),
    "sum of triplets": lambda: TripletLoss(margin=0.1, reduction="sum"),
}


def gradients(loss: str, team: Team) -> dict[str, torch.Tensor]:
    """Of the loss by every parameter, with batch norms at work, and what those remember."""
    torch.manual_seed(0)
    network = EmbeddingNetwork(build_backbone("small"), 8).double().train()
    loss_fn = LOSSES[loss]().double()
    images, labels = torch.randn(8, 3, 16, 16, dtype=torch.float64), torch.arange(4).repeat_interleave(2)
    draws = torch.Generator().manual_seed(1)
    triplets = Triplets(torch.arange(8), torch.arange(8) ^ 1, torch.randint(0, 8, (8,), generator=draws))
    if team.size > 1:
        share_batch_norms(network.modules())
    own = rank_share(np.arange(8), team.rank, team.size, 2)
    network.forward = forward_in_float64(network)  # its own would go to float32
    embeddings = team.gather(network(images[own]))
    assert embeddings.shape == (8, 8)
    loss_fn(embeddings, labels, triplets).backward()
    team.sum_gradients(network, loss_fn)
    named = {
        f"{kind}.{name}": p.grad
        for kind, part in (("network", network), ("loss", loss_fn))
        for name, p in part.named_parameters()
    }
    return {**named, **dict(network.named_buffers())}


def forward_in_float64(network: EmbeddingNetwork) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda images: nn.functional.normalize(network.embedding(network.backbone(images)), dim=1)


@pytest.mark.parametrize("size", [2, 4])
def test_the_sum_of_the_processes_gradients_is_the_gradient_of_one(tmp_path, size):
    """For every loss, whatever it divides by, and through batch norms over the whole batch."""
    results = together(size, in_a_team(lambda team: {loss: gradients(loss, team) for loss in LOSSES}), tmp_path)
    for loss in LOSSES:
        expected = gradients(loss, ALONE)
        assert len(expected) > 30
        for result in results:
            for name, value in expected.items():
                torch.testing.assert_close(result[loss][name], value, rtol=1e-9, atol=1e-12, msg=f"{loss}: {name}")


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_each_process_embeds_its_part_and_all_hear_the_figures_of_the_whole(config, tmp_path, monkeypatch):
    """18 test images in batches of 4 are five batches: for six processes, one has nothing to do."""
    monkeypatch.setitem(roles.EVALUATION_BATCH, "cpu", 4)
    network, names = build_network(config), ("recall@1", "map@r", "nmi", "intra")
    view = load_views(config, torch.device("cpu"), nobody).test
    expected, embeddings = evaluate(network, view, names), embed(network, view)[0]
    assert len(view) == 18

    def measured(team: Team) -> tuple[int, dict[str, float], torch.Tensor]:
        view = load_views(config, torch.device("cpu"), nobody, team).test
        own = embed(network, view.batches(team))
        return len(own[0]), evaluate(network, view, names, team=team), team.on_first(*own)[0]

    for size, shares in ((2, [8, 10]), (6, [0, 4, 4, 4, 4, 2])):
        results = together(size, in_a_team(measured), tmp_path)
        assert [share for share, _, _ in results] == shares
        assert [figures for _, figures, _ in results] == [expected] * size
        assert torch.equal(results[0][2], embeddings)


def test_images_are_decoded_by_one_process_of_a_machine_and_leave_no_file(config, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def loaded(team: Team) -> tuple[int, torch.Tensor]:
        decoded = []
        watch = lambda kind, step, values: decoded.append(step) if kind == "decoding" else None
        if team.rank == 1:  # the first must not take the file away from under one that is late
            before(np, "load", 1, lambda: time.sleep(1))
        views = load_views(config, torch.device("cpu"), watch, team)
        return len(decoded), views.train.store.pixels.clone()

    folder = tmp_path / "results"
    folder.mkdir()
    (first, pixels), (second, others) = together(2, in_a_team(loaded), folder)
    assert (first, second) == (84, 0)
    assert torch.equal(pixels, others)
    assert torch.equal(pixels, load_views(config, torch.device("cpu"), nobody).train.store.pixels)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_bad_images_are_told_by_the_process_that_reads_them(photos, config, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "class-03" / "1.png").write_bytes(b"nothing")
    bad = replace(config, data=replace(config.data, root=str(tmp_path / "photos"), strict=True))
    first, second = ends(start(2, lambda rank: train(bad, tmp_path / "run"), tmp_path), tmp_path)
    assert "1.png" in first.args[0]
    assert first.args[0].startswith("UserError: 1 of 84 images cannot be used")
    assert second.args[0].startswith("Deserted: ")
    assert not (tmp_path / "run").exists()


def test_both_processes_do_without_an_image_that_cannot_be_read(photos, config, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "class-03" / "1.png").write_bytes(b"nothing")
    settings = replace(config, data=replace(config.data, root=str(tmp_path / "photos")), num_epochs=1)
    together(2, lambda rank: train(settings, tmp_path / "run").path, tmp_path)
    (bad,) = read_manifest(tmp_path / "run" / "data.jsonl").bad
    assert bad.path == "class-03/1.png"
    sizes = RunFolder.open(tmp_path / "run").metrics["splits"]
    assert sum(size["images"] for size in sizes.values()) == 83


# -- small things ------------------------------------------------------------------------------------------------------


def test_alone_nothing_is_connected():
    with join_team() as team:
        assert team is ALONE
    rows = torch.randn(3, 2, requires_grad=True)
    assert team.gather(rows) is rows
    assert team.on_first(rows)[0] is rows
    assert team.lead(lambda: 5) == 5
    assert [team.any(flag) for flag in (True, False)] == [True, False]
    assert team.share(7) == slice(0, 7)
    assert not torch.distributed.is_initialized()


def test_the_shares_of_a_row_of_things_are_in_order_and_complete():
    for size in (1, 2, 3, 8):
        for num in (0, 1, 5, 8, 17):
            taken = [i for rank in range(size) for i in range(num)[Team(rank, size).share(num)]]
            assert taken == list(range(num))


def test_a_number_of_processes_that_does_not_fit_is_refused_with_those_that_do(config, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError) as refused:
        check(config)
    assert str(refused.value) == (
        "the 4 classes of a batch cannot be dealt out to 3 processes: start 1, 2 or 4, or set data.classes_per_batch to a "
        "multiple of 3."
    )


def test_somebody_elses_process_group_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(UserError, match="in use already"), join_team():
        pass


def test_every_process_has_a_gpu_of_its_own_or_none(monkeypatch):
    team = Team(rank=5, size=8, local_rank=1)
    assert own_device("auto", team) == own_device("cpu", team) == "cpu"
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert own_device("auto", team) == own_device("cuda", team) == "cuda:1"
    assert chosen == [1, 1]
    with pytest.raises(UserError, match="cannot be shared"):
        own_device("cuda:0", team)
    with pytest.raises(UserError, match="start at most 2"):
        own_device("auto", replace(team, local_rank=2))


def test_a_folder_in_the_hands_of_the_others_writes_nothing(config, tmp_path):
    folder = SilentFolder.create(tmp_path / "run", config)
    with folder:
        folder.append("events.jsonl", {})
        folder.write_json("metrics.json", {})
        folder.save_checkpoint(1, {})
        folder.save_selected({})
        folder.cut_back({})
        folder.remove_if_unused()
    assert not (tmp_path / "run").exists()


# -- torchrun itself ---------------------------------------------------------------------------------------------------


def torchrun(size: int, *arguments: str) -> subprocess.Popen:
    """In a process group of its own, to which a terminal would send Ctrl-C."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, *arguments], env=environment, start_new_session=True, **pipes)


def finished(process: subprocess.Popen) -> tuple[str, str]:
    try:
        return process.communicate(timeout=180)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def arguments_of(photos: Path, run: Path) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", "folder-pads", "--data", str(photos), "--run", str(run), *settings]


def wait_for_steps(run: Path, number: int, process: subprocess.Popen) -> None:
    deadline, path = time.monotonic() + 180, run / "events.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and len(path.read_bytes().splitlines()) >= number:
            return
        time.sleep(0.01)
    raise AssertionError(finished(process))


KILLED = """
import os, signal
from pads.cli import main
from pads.runtime.team import Team

gather, calls = Team.gather, []

def deadly(team, rows):
    calls.append(1)
    if team.rank == 1 and len(calls) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return gather(team, rows)

Team.gather = deadly
main()
"""


def test_torchrun_with_a_killed_process_then_ctrl_c_then_to_the_end(photos, by_two, tmp_path):
    run, script = tmp_path / "run", tmp_path / "killed.py"
    script.write_text(KILLED)
    process = torchrun(2, "--", str(script), *arguments_of(photos, run))
    out, err = finished(process)
    assert process.returncode != 0
    assert out.count("training folder-pads, seed 0") == 1  # only the first process shows what it does
    assert err.count("Stopped: another process of this run has ended or does not answer") == 1
    assert f"; saved at step 5 of 20, go on with: pads train --resume {run}" in err
    assert err.count("Traceback") == 1  # torchrun's own

    process = torchrun(2, "-m", "pads", "train", "--resume", str(run))
    wait_for_steps(run, len((run / "events.jsonl").read_bytes().splitlines()) + 2, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = finished(process)
    if process.returncode != 0:  # on a very quick machine the run may just have ended
        assert re.search(r"Stopped: saved at step \d+ of 20, go on with: pads train --resume", err), err
        assert err.count("Stopped:") == 1

    together(2, lambda rank: resume(run) and None, tmp_path)
    assert_the_same(run, by_two[0])


def test_torchrun_tells_a_mistake_once(photos, tmp_path):
    process = torchrun(
        2, "-m", "--", "pads", *arguments_of(photos, tmp_path / "run"), "--set", "data.classes_per_batch=3"
    )
    out, err = finished(process)
    assert process.returncode != 0
    assert out == ""
    assert err.count("pads: the 3 classes of a batch cannot be dealt out to 2 processes: start 1 or 3") == 1
    assert not (tmp_path / "run").exists()
