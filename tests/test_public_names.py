"""What `import pads` offers, and that it costs nothing until it is used."""

import importlib
import subprocess
import sys
import types

import pytest

import pads
from pads.config import Part
from pads.sampling.rules import Random


def in_a_new_process(code):
    """What the code prints, in an interpreter that has imported nothing yet."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", pads.__all__)
def test_every_public_name_is_there_and_is_what_its_module_says(name):
    value = getattr(pads, name)
    assert not isinstance(value, types.ModuleType)
    home = importlib.import_module(f"pads.{pads._HOMES[name]}")
    assert getattr(home, name) is value
    assert name in dir(pads)


def test_the_names_that_the_design_promises_are_there():
    registries = {"LOSSES", "NEGATIVE_RULES", "CURRICULA", "AGENTS", "DATASETS", "BACKBONES", "METRICS", "RECIPES"}
    values = {
        "Config",
        "BinDistribution",
        "EmbeddingNetwork",
        "LearnedCurriculum",
        "RunFolder",
        "Triplets",
        "UserError",
    }
    verbs = {"draw_triplets", "evaluate", "load", "resume", "train"}
    assert registries | values | verbs <= set(pads.__all__)


def test_every_name_can_be_imported_at_once():
    names: dict = {}
    exec("from pads import *", names)
    assert set(pads.__all__) <= names.keys()


def test_a_name_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(AttributeError, match="module 'pads' has no attribute 'trian'"):
        pads.trian
    assert not hasattr(pads, "__nothing__")


def test_importing_pads_imports_neither_torch_nor_numpy():
    heavy = "import sys, pads; print([name for name in ('torch', 'numpy', 'PIL', 'rich') if name in sys.modules])"
    assert in_a_new_process(heavy) == "[]"


def test_the_recipes_and_their_settings_need_no_torch():
    use = "from pads.config import with_settings; with_settings(pads.RECIPES['folder'](), ['seed=1'])"
    assert in_a_new_process(f"import sys, pads; {use}; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize(
    "imports",
    [
        "import pads.train",
        "import pads.evaluate",
        "import pads; pads.load",
        "import pads; pads.train; import pads.train",
        "from pads.train import check",
        "from pads.model import Model",
        "import pads.cli",
    ],
)
def test_a_function_keeps_its_name_whatever_module_of_that_name_is_imported(imports):
    code = f"{imports}; import pads; print([callable(f) for f in (pads.train, pads.evaluate, pads.load, pads.resume)])"
    assert in_a_new_process(code) == "[True, True, True, True]"


def test_the_modules_behind_those_names_can_still_be_imported():
    assert isinstance(sys.modules["pads.train"], types.ModuleType)
    assert importlib.import_module("pads.train").train is pads.train
    assert importlib.import_module("pads.evaluate").evaluate is pads.evaluate


def test_a_stranger_adds_a_part_with_one_line(monkeypatch):
    from pads.curricula import build_curriculum

    monkeypatch.setitem(pads.NEGATIVE_RULES, "mine", Random)
    assert build_curriculum(Part("mine")).rule == Random()


def test_the_version_is_a_version():
    assert all(part.isdigit() for part in pads.__version__.split("."))
