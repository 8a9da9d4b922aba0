"""What the pages say can be typed: their commands parse, and their code runs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from pads.cli import make_parser

DOCS = Path(__file__).parents[2] / "docs"


def commands(page):
    blocks = re.findall(r"^```bash\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("pads ")]


@pytest.mark.parametrize("command", [*commands("searching.md"), *commands("export.md")])
def test_every_command_of_the_pages_is_one(command):
    options = make_parser().parse_args(shlex.split(command, comments=True)[1:])
    assert options.command is not None


def test_the_code_of_the_page_runs(index, photos, tmp_path, monkeypatch, capsys):
    shutil.copytree(index.path, tmp_path / "shelf")
    shutil.copy(photos / "class2" / "0.png", tmp_path / "query.jpg")
    code = re.search(r"^```python\n(.*?)^```", (DOCS / "searching.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[0] == "0.000 class2/0.png class2"
