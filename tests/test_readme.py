"""What the README shows is run from there: its commands on a folder of made-up photos, its snippets as they stand."""

import csv
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pads
from pads.cli import main, make_parser
from pads.studies.statistics import difference, mean_and_sd, paired_difference

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def snippet(name: str) -> str:
    found = re.search(rf"<!-- snippet: {name} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no snippet {name!r}"
    return found.group(1)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A working folder with photos/ and photos.csv, small enough for the README's commands to take seconds."""
    noise = np.random.default_rng(0)
    rows = []
    for label in range(16):
        folder = tmp_path / "photos" / f"item-{label:02d}"
        folder.mkdir(parents=True)
        colour = noise.integers(0, 255, (1, 1, 3))
        for number in range(4):
            pixels = np.clip(colour + noise.normal(0, 50, (30, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.jpg")
            test = label >= 13
            split = "validation" if test else "train"
            rows.append([label, split, f"photos/item-{label:02d}/{number}.jpg", test or "", test or ""])
    with (tmp_path / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["label", "split", "path", "is_query", "is_gallery"], *rows])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands() -> list[str]:
    lines = [line.partition("  #")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    inline = re.findall(r"`(pads train csv [^`]+)`", README)
    return [line for line in (*lines, *inline) if line.startswith("pads ")]


def test_the_first_two_commands_are_make_demo_and_make_test():
    first = [line.split("#")[0].strip() for line in blocks("bash")[0].splitlines()]
    assert first == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in makefile
    assert "\ntest:" in makefile
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_every_pads_command_of_the_readme_runs(photos, capsys):
    """Shortened to two epochs where they train: how well they do is not for made-up photos to say."""
    verbs = {"train", "evaluate", "report", "index", "search", "export"}
    assert verbs <= {command.split()[1] for command in commands()}
    for command in commands():
        words = shlex.split(command)[1:]
        if words[0] == "train" and "--resume" not in words:
            words += ["--set", "num_epochs=2"]
        with pytest.raises(SystemExit) as left:
            main(words)
        assert not left.value.code, f"{command}\n{left.value.code}"
        assert capsys.readouterr().out, f"{command} says nothing"
    assert (photos / "runs" / "photos" / "metrics.json").exists()


def test_the_loop_of_the_readme_learns():
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(8, 3 * 8 * 8, generator=generator)  # what tells classes apart, also those never trained on
    centres = 0.35 * torch.randn(40, 8, generator=generator) @ directions

    def draw(classes, copies):
        labels = classes.repeat_interleave(copies)
        images = centres[labels] + 2 * torch.randn(len(labels), centres.shape[1], generator=generator)
        return images.view(-1, 3, 8, 8), labels

    batches = [draw(torch.randperm(30, generator=generator)[:12], 2) for _ in range(120)]
    held_out = [draw(torch.arange(30, 40), 6)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 32))
    untrained = pads.evaluate(network, held_out)["recall@1"]
    exec(compile(snippet("own loop"), "README.md", "exec"), {"batches": batches, "network": network})
    assert pads.evaluate(network, held_out)["recall@1"] > untrained + 0.3


def test_the_training_snippet_of_the_readme_runs(photos):
    names: dict = {}
    exec(compile(snippet("train"), "README.md", "exec"), names)
    assert names["run"].is_finished
    assert torch.allclose(names["vectors"].norm(dim=1), torch.ones(2))


def test_the_readme_is_read_in_a_minute():
    assert len(README.splitlines()) <= 130


RESULTS = re.findall(r"^\| \[.*?\]\((results/[^)]+)\).*? \| (.+) \|$", README, re.MULTILINE)


def test_the_table_of_results_has_four_rows():
    assert len(RESULTS) == 4


@pytest.mark.parametrize(("folder", "cells"), RESULTS, ids=[folder for folder, _ in RESULTS])
def test_a_row_of_results_is_what_its_folder_says(folder, cells):
    with (ROOT / folder / "seeds.csv").open() as file:
        rows = list(csv.DictReader(file))
    baseline, ours = (
        {int(row["seed"]): 100 * float(row["selected_recall@1"]) for row in rows if row["recipe"].endswith(arm)}
        for arm in ("udist", "pads")
    )
    values = [mean_and_sd([*arm.values()]) for arm in (baseline, ours)]
    found = [*values, difference(paired_difference(ours, baseline)), str(len(ours))]
    assert [cell.strip() for cell in cells.split("|")][:4] == found


def test_the_readme_of_the_wheel_has_no_link_that_breaks_elsewhere_and_no_command_that_is_none():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / project["readme"]).read_text()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links and all(link.startswith("https://") for link in links)
    assert set(project["urls"].values()) <= set(links)
    for line in re.findall(r"^pads (.*)$", text, re.MULTILINE):
        make_parser().parse_args(shlex.split(line, comments=True))
    extras = re.search(r"Extras: (.*?)\.", text)[1]
    assert set(re.findall(r"`(\w+)`", extras)) == set(project["optional-dependencies"]) - {"dev", "docs"}
