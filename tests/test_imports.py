"""Imports run downward only, as ARCHITECTURE.md states: nothing imports what stands above it, and nothing imports in a circle.

What stands on one level may import each other, as long as no two of them come round to one another again.
"""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LEVELS = [
    {"cli"},
    {"studies", "bench", "look", "reports", "search", "publish", "adapters"},
    {"recipes", "display", "model", "verdict"},
    {"train"},
    {"autoconfig", "build", "check", "evaluate", "features", "speed", "stages", "start"},
    {"curricula"},
    {"agents", "sampling", "losses", "metrics", "networks", "data", "pml"},
    {"config", "runs", "runtime", "errors"},
]
"""From the top to the bottom: files and folders of src/pads."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imports_of(source: str, package: str = "") -> Iterator[str]:
    """Names of modules of pads that the source imports anywhere, also inside functions, but not for type checkers alone."""
    tree = ast.parse(source)
    for_types = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{package}: imports are written in full"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES or node.module in MODULES:
                    yield full if full in MODULES else str(node.module)


IMPORTS = {name: set(imports_of(path.read_text(), name)) for name, path in MODULES.items()}


def level_of(module: str) -> int:
    """0 for the top; a module belongs to the file or folder of src/pads that it is in."""
    part = module.split(".")[1]
    return next(number for number, parts in enumerate(LEVELS) if part in parts)


def test_every_file_and_folder_has_a_level():
    parts = {path.stem if path.is_file() else path.name for path in (SOURCE / "pads").iterdir()}
    listed = [part for level in LEVELS for part in level]
    assert len(listed) == len(set(listed))
    code = {part for part in parts if f"pads.{part}" in MODULES}
    assert code - {"__main__"} == set(listed)


def test_architecture_states_these_levels():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    (stated,) = re.findall(r"`(cli → [^`]+)`", text)
    assert [set(level.split(", ")) for level in stated.split(" → ")] == LEVELS


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.partition(".")[2] not in ("", "__main__")))
def test_nothing_imports_what_stands_above_it(module):
    imported = IMPORTS[module] - {"pads"}  # the package itself holds the version, and imports nothing
    upward = sorted(name for name in imported if level_of(name) < level_of(module))
    assert not upward, f"{module} imports {', '.join(upward)}"


def test_the_package_itself_imports_nothing_at_once():
    assert IMPORTS["pads"] == set()
    assert IMPORTS["pads.__main__"] == {"pads.cli"}


def test_nothing_imports_in_a_circle():
    try:
        list(graphlib.TopologicalSorter(IMPORTS).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_folders_and_files_of_one_level_do_not_import_in_a_circle_either():
    parts = {}
    for module, imported in IMPORTS.items():
        own = module.split(".")[1:2]
        others = {name.split(".")[1] for name in imported if name != "pads"}
        if own:
            parts.setdefault(own[0], set()).update(others - set(own))
    try:
        list(graphlib.TopologicalSorter(parts).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")
