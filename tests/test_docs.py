"""Everything that the pages show is real: links lead somewhere, commands are accepted, code runs.

The code of docs/in-your-loop.md, faq.md, searching.md and export.md runs in tests/adapters, tests/search and tests/publish,
that of the README in test_readme.py.
"""

import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

import pads
from pads.check import check
from pads.cli import make_parser
from pads.config import with_settings
from pads.search.serve import server
from pads.studies import STUDIES

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def lines(page: Path) -> list[str]:
    """The commands of a page; a line that ends in a backslash goes on."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


COMMANDS = [pytest.param(line, id=f"{page.stem}: {line[:60]}") for page in PAGES for line in lines(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one(line):
    check_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "pads trian folder",
        "pads train foldr --data photos/",
        "pads train folder --set num_epoch=3",
        "pads train folder --set loss.options.bta=1",
        "pads train folder --set curriculum.name=sofhard",
        "pads study control",
        "pads search index --presicion 0.9",
        'pip install "pads-dml[severs]"',
        "pip install torchmetric",
        "make demos",
        "python tools/no_such_tool.py",
        "curl http://127.0.0.1:8420/api/serach",
        "padz train folder",
    ],
)
def test_a_misspelt_command_is_noticed(line):
    with pytest.raises((AssertionError, KeyError, SystemExit, pads.UserError)):
        check_command(line)


def check_command(line):
    words = shlex.split(line, comments=True)
    while "=" in words[0]:  # settings of the environment
        words = words[1:]
    if words[0] == "torchrun":
        words = words[words.index("pads") :]
    assert words[0] in KINDS
    KINDS[words[0]](words)


def is_pads(words):
    options = make_parser().parse_args(words[1:])
    assert callable(options.command)
    if words[1] == "train" and options.recipe is not None:
        settings = [setting for setting in options.set or [] if "timm:" not in setting]  # timm is not installed here
        check(with_settings(pads.RECIPES[options.recipe](), settings))
    if words[1] == "study" and options.study is not None:
        assert options.study in {*STUDIES, "claims"}


def is_installed(words):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[1] == "install"
    for word in words[2:]:
        name, _, inside = word.rstrip("]").partition("[")
        assert name in ("pads-dml", ".", "lightning", "torchmetrics", "timm", "torchvision")
        assert set(filter(None, inside.split(","))) <= set(extras)


def is_made(words):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words[1:] if "=" not in word} <= set(targets)


def is_script(words):
    assert (ROOT / words[1]).is_file() or words[1] == "-m"


def is_answered(words):
    """The server that `pads serve` starts has this address, for this kind of request."""
    method, address = "post" if "-F" in words else "get", urlsplit(words[-1])
    assert address.port == make_parser().parse_args(["serve", "x.index"]).port
    assert f'@app.{method}("{address.path}")' in inspect.getsource(server)


def is_theirs(words):
    """Other people's commands, each looked up once by hand."""
    assert tuple(words[:2]) in {("npm", "pack"), ("hf", "auth"), ("ray", "start")}


KINDS = {"pads": is_pads, "pip": is_installed, "make": is_made, "python": is_script, "curl": is_answered}
KINDS |= dict.fromkeys(("npm", "ray", "hf"), is_theirs)


# -- what a beginner types ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with photos/ of 12 things, and what the commands of the first page make of it."""
    folder, rng = tmp_path_factory.mktemp("desk"), np.random.default_rng(0)
    for label in range(12):
        (folder / "photos" / f"item-{label:02d}").mkdir(parents=True)
        colour = rng.integers(0, 255, (1, 1, 3))
        for number in range(3):
            pixels = np.clip(colour + rng.normal(0, 50, (30, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / f"item-{label:02d}" / f"{number}.jpg")
    for line in lines(ROOT / "docs" / "start.md"):
        words = shlex.split(line, comments=True)
        if words[0] == "pads" and "--weights" not in words:  # a network to download from is not there
            short = ["--set", "num_epochs=2"] if words[1] == "train" else []
            done = subprocess.run([sys.executable, "-m", *words, *short], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    return folder


def test_the_first_page_leaves_a_run_a_report_and_an_index(desk):
    assert (desk / "runs" / "photos" / "metrics.json").exists()
    assert (desk / "runs" / "photos" / "report.html").exists()
    assert len(pads.Index.open(desk / "photos.index").paths) == 36


@pytest.mark.parametrize("name", ["start", "adding-a-part"])
def test_the_code_of_a_page_runs(name, desk, monkeypatch):
    monkeypatch.chdir(desk)
    before, namespace = dict(pads.NEGATIVE_RULES), {}
    try:
        for code in blocks(ROOT / "docs" / f"{name}.md", "python"):
            exec(code, namespace)
    finally:
        pads.NEGATIVE_RULES.clear()
        pads.NEGATIVE_RULES.update(before)
    assert namespace.get("vectors") is not None or namespace["run"].is_finished


def test_training_on_a_folder_ends_with_an_index_of_it(desk):
    index = pads.Index.open(desk / "runs" / "photos" / "images-index")
    assert len(index.paths) == 36
    assert index.labels[0] == "item-00"
