"""Any bytes in any file that we read give success or one `UserError` sentence; nothing else changes on the disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fuzz.targets import Kind, make_kinds, read_spoilt, trial
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = (
    *(
        "image",
        "csv",
        "lists",
        "config",
        "set",
        "events",
        "figures",
        "checkpoint",
        "state",
        "index",
        "codes",
        "pending",
        "weights",
        "model",
    ),
    *("export", "store", "study", "http"),
)
SLOW = ("state", "pending", "export", "study", "figures")
FEW, MANY = 4, 25
"""Trials in CI, always the same ones; `make torture` does as many as there is time for."""
IN_CI = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory) -> Iterator[dict[str, Kind]]:
    made = make_kinds(tmp_path_factory.mktemp("fuzz"))
    assert tuple(made) == NAMES
    yield made
    for kind in made.values():
        kind.close()


@pytest.mark.parametrize("name", NAMES)
def test_what_did_harm_once_does_none(kinds, name):
    for file, content in kinds[name].examples:
        assert read_spoilt(kinds[name], file, content) is None


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_give_success_or_one_sentence(kinds, name):
    @settings(max_examples=FEW if name in SLOW else MANY, **IN_CI)
    @given(st.randoms(use_true_random=False))
    def hold(chance):
        assert trial(kinds[name], chance) is None

    hold()


def test_a_reader_that_fails_in_another_way_is_found(tmp_path):
    (tmp_path / "a").write_text("{}")

    def kind(read) -> Kind:
        return Kind("made up", tmp_path, ("a",), lambda content, chance, others: b"x", read)

    assert "KeyError" in str(read_spoilt(kind(lambda path: {}["a"]), "a", b"x"))
    assert "changed on the disk: b" in str(
        read_spoilt(kind(lambda path: path.with_name("b").write_text("")), "a", b"x")
    )
    assert read_spoilt(kind(lambda path: None), "a", b"x") is None
    assert (tmp_path / "a").read_text() == "{}"
