"""Tools are scripts, not modules of the package: they are loaded by their path."""

import importlib.util
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="session")
def load_tool():
    def load(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(TOOLS)  # one tool may import another
            spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return module

    return load
