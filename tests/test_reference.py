"""The reference of the site names everything that is public, and what has no docstring stops its build."""

import argparse
import dataclasses
import importlib.util
import re
import sys
import types
from pathlib import Path

import pytest

import pads
import pads.adapters
from pads.cli import make_parser
from pads.config import Config, with_settings

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module  # where conf.py finds it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["reference"]


def page(reference, name):
    return reference.fill((DOCS / f"reference-{name}.md").read_text())


def commands(parser):
    return next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices


# -- everything is there -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [pads, pads.adapters], ids=lambda module: module.__name__)
def test_every_public_name_has_an_entry(reference, module):
    entries = re.findall(r"^::::\{py:\w+\} ([\w.]+)", page(reference, "names"), re.MULTILINE)
    assert {f"{module.__name__}.{name}" for name in module.__all__} <= set(entries)
    assert len(entries) == len(set(entries))


def test_every_option_of_a_config_has_a_row(reference):
    rows = re.findall(r"^\| `([\w.]+)` \|", page(reference, "options"), re.MULTILINE)
    groups = {"data", "network", "sampling", "optimiser"}
    expected = {f"{group}.{field.name}" for group in groups for field in dataclasses.fields(getattr(Config(), group))}
    assert set(rows) == expected | {field.name for field in dataclasses.fields(Config)} - groups


def test_a_default_is_written_as_one_sets_it(reference):
    row = re.compile(r"^\| `([\w.]+)` \| `.*?` \| `([^`]+)` \|", re.MULTILINE)
    defaults = dict(row.findall(page(reference, "options")))
    assert len(defaults) > 40
    assert defaults.pop("data.store_ratio") == "1.333"  # 4 / 3, rounded
    for key, default in defaults.items():
        key = f"{key}.name" if key in ("loss", "curriculum", "distillation") else key
        assert with_settings(Config(), [f"{key}={default}"]) == Config()


def test_every_command_has_a_section_with_every_argument(reference):
    sections = re.split(r"^## pads ", page(reference, "commands"), flags=re.MULTILINE)[1:]
    assert [section.split()[0] for section in sections] == [*commands(make_parser())]
    for section, command in zip(sections, commands(make_parser()).values(), strict=True):
        rows = "\n".join(re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE)).replace("\\|", "|")
        for action in command._actions[1:]:  # the first is --help
            assert (action.option_strings or [action.metavar])[0] in rows


# -- a gap is found ------------------------------------------------------------------------------------------------------


def package(**names):
    """A package of these names, defined here."""
    module = types.ModuleType("pads")
    module.__all__, module._HOMES = [*names], dict.fromkeys(names, "config")
    vars(module).update(names)
    return module


class Silent:
    pass


class Talkative:
    """Talk."""

    def act(self): ...


@dataclasses.dataclass
class Point:
    x: int


@dataclasses.dataclass
class Untold:
    """Hold options."""

    told: int = 0
    """Count."""
    untold: int = 0


def phrase():
    """The thing that is returned."""


def unfinished():
    """Return the thing"""


@pytest.mark.parametrize(
    ("names", "gap"),
    [
        ({"Silent": Silent}, "pads.Silent: no docstring"),
        ({"Talkative": Talkative}, "pads.Talkative.act: no docstring"),
        ({"Point": Point}, "pads.Point: no docstring"),
        ({"phrase": phrase}, "pads.phrase: The thing that is returned."),
        ({"unfinished": unfinished}, "pads.unfinished: Return the thing"),
        ({"PARTS": {}}, "pads.PARTS: no docstring"),
    ],
)
def test_a_name_without_a_sentence_is_refused(reference, names, gap):
    with pytest.raises(reference.Gaps, match=re.escape(gap)):
        reference.describe_names(package(**names))


def test_an_option_without_a_sentence_is_refused(reference):
    with pytest.raises(reference.Gaps, match=r"group\.untold: no docstring") as error:
        reference.describe_options(Untold, "group.")
    assert "group.told:" not in str(error.value)


def test_a_command_or_an_argument_without_a_sentence_is_refused(reference):
    parser = make_parser()
    commands(parser)["train"].description = None
    commands(parser)["search"]._actions[-1].help = None
    with pytest.raises(reference.Gaps, match=r"pads train: no docstring\n.*pads search --images DIR: no docstring"):
        reference.describe_commands(parser)


@pytest.mark.filterwarnings("ignore")  # of Sphinx itself
@pytest.mark.parametrize("has_gap", [False, True])
def test_a_gap_ends_the_build(reference, monkeypatch, tmp_path, has_gap):
    from sphinx.cmd.build import build_main

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(
        reference.GENERATED, "commands", lambda: reference.require({"it": "" if has_gap else "Do it."}) or []
    )
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "site.css").touch()
    (tmp_path / "conf.py").write_text((DOCS / "conf.py").read_text())
    (tmp_path / "index.md").write_text("# A page\n\n<!-- generated: commands -->\n")
    status = build_main(["-q", "-b", "dummy", str(tmp_path), str(tmp_path / "built")])
    assert (status != 0) == has_gap
