"""The model card of a run: the numbers of its metrics.json, how the epoch was picked, and nothing of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pads.config import Config, Network
from pads.publish.card import model_card
from pads.runs import RunFolder

FIGURES = {
    "recall@1": 0.512,
    "recall@2": 0.6,
    "map@r": 0.25,
    "r-precision": 0.3,
    "nmi": 0.7,
    "intra": 1.0,
    "inter": 1.2,
}


def figures(protocol="selected", **more):
    splits = {"train": {"images": 1200, "classes": 40}, "test": {"images": 300, "classes": 10}}
    test = {"raw pixels": FIGURES, "untrained": FIGURES, "last": FIGURES, "trained": {**FIGURES, "recall@1": 0.6789}}
    selection = None if protocol == "last" else {"step": 10, "epoch": 2}
    about = {"recipe": "folder", "seed": 0, "steps": 10, "selection": selection}
    return {**about, "test": test, "splits": splits, "protocol": protocol, "weights": None, **more}


@pytest.fixture
def run(tmp_path):
    config = Config(recipe="folder", network=Network("resnet18", weights=str(tmp_path / "secret" / "start.pth")))
    config = replace(config, data=replace(config.data, name="folder", root=str(tmp_path / "secret")))
    return RunFolder.create(tmp_path / "run", config)


def test_a_card_has_the_figures_in_percent_and_the_sizes_of_the_splits(run):
    run.write_json("metrics.json", figures())
    card = model_card(run)
    assert "| trained | 67.9 | 60.0 | 25.0 | 30.0 | 70.0 |" in card
    assert "| | R@1 | R@2 | MAP@R | R-precision | NMI |" in card
    assert "300 test images of 10 classes" in card
    assert "1,200 images of 40 classes" in card


@pytest.mark.parametrize(
    ("protocol", "words"), [("selected", "once"), ("test-selected", "**test-selected**"), ("last", "the last epoch")]
)
def test_a_card_says_how_the_epoch_was_picked(run, protocol, words):
    run.write_json("metrics.json", figures(protocol))
    assert words in model_card(run)


def test_a_card_names_the_weights_by_their_checksum_and_no_folder_of_the_machine(run, tmp_path):
    run.write_json(
        "metrics.json", figures(weights={"file": "start.pth", "sha256": "ab12", "tensors": 3, "left_out": 1})
    )
    card = model_card(run)
    assert "start.pth (sha256 ab12)" in card
    assert str(tmp_path) not in card
    assert "secret" not in card


def test_a_card_of_an_unfinished_run_says_so(run):
    card = model_card(run)
    assert "not finished" in card
    assert "started from: start.pth" in card


def test_a_card_begins_with_the_header_that_the_hub_reads_and_ends_with_the_licence(run):
    card = model_card(run)
    assert card.startswith("---\nlibrary_name: pads\n")
    assert card.count("---\n") == 2
    assert card.rpartition("## ")[2].startswith("Licence")
