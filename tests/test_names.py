"""Functions are verbs: a participle names a value, never a function (style.md, "Words")."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pads"
PARTICIPLE = re.compile(
    "begun|bound|broken|brought|built|chosen|done|drawn|fed|found|frozen|given|gone|grown|held|hidden|kept|known|laid|left|"
    "lost|made|meant|met|paid|said|seen|sent|shown|sold|taken|thought|thrown|told|won|worn|written|[a-z]{2,}ed"
)
ENDS_IN_ED = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "speed"})
"""Verbs and nouns that only look like participles."""
FORMULAS = {"discounted_returns", "clipped_policy_loss", "normalised_mutual_information", "paired_difference"}
"""Names that the literature uses."""


def is_participle(name: str) -> bool:
    word = name.strip("_").partition("_")[0]
    return word not in ENDS_IN_ED and PARTICIPLE.fullmatch(word) is not None


def functions(path: Path) -> list[str]:
    """The functions and methods of a file, wherever they stand, without properties and dunder methods."""
    return [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not (node.name.startswith("__") and node.name.endswith("__"))
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_function_is_named_by_a_participle(file):
    assert [name for name in functions(SOURCE / file) if is_participle(name) and name not in FORMULAS] == []


def test_a_participle_is_told_from_a_verb():
    assert all(map(is_participle, ["decoded", "_measured", "drawn_curve", "made_up_images", "told_if_it_fails"]))
    assert not any(
        map(is_participle, ["embed", "seed_of", "read_split", "set_value", "feed", "draw_triplets", "spread"])
    )
