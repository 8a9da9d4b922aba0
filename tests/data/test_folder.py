from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pads.data.folder import folder, guess_pattern, pick_test_classes
from pads.errors import UserError

Save = Callable[..., Path]


def fill(save_image: Save, classes: str, num_images: int = 2, below: str = "") -> None:
    for name in classes:
        for number in range(num_images):
            save_image(f"{below}{name}/{number}.png")


def test_one_fifth_of_the_classes_is_held_out_spread_over_the_alphabet(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abcdefghij")
    benchmark = folder(tmp_path)
    assert benchmark.test.class_names == ("c", "h")  # type: ignore[union-attr]
    assert benchmark.train.class_names == tuple("abdefgij")
    assert benchmark.train.paths[:2] == (tmp_path / "a/0.png", tmp_path / "a/1.png")
    assert benchmark.notes == ("Held out 2 of 10 classes to test on.",)


@pytest.mark.parametrize("num_classes", [4, 5, 7, 100, 11318])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_held_out_classes_are_distinct_even_and_leave_two(num_classes: int, share: float) -> None:
    held_out = pick_test_classes(num_classes, share)
    assert len(held_out) == np.clip(round(share * num_classes), 2, num_classes - 2)
    assert held_out.min() >= 0
    assert held_out.max() < num_classes
    gaps = np.diff(held_out)
    assert gaps.min() >= 1
    assert gaps.max() - gaps.min() <= 1


def test_train_and_test_folders_are_taken_as_they_are(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "ab", below="train/")
    fill(save_image, "bcd", below="test/")
    fill(save_image, "e", below="leftover/")
    benchmark = folder(str(tmp_path))
    assert benchmark.train.class_names == ("a", "b")
    assert benchmark.selection is None
    assert benchmark.test.class_names == ("b", "c", "d")  # type: ignore[union-attr]
    assert any("leftover" in note for note in benchmark.notes)


def test_a_val_folder_beside_them_selects_the_epoch(tmp_path: Path, save_image: Save) -> None:
    for split, classes in (("train", "cd"), ("val", "ab"), ("test", "ef")):
        fill(save_image, classes, below=f"{split}/")
    benchmark = folder(tmp_path)
    assert benchmark.selection is not None
    assert benchmark.selection.paths[0] == tmp_path / "val/a/0.png"
    assert benchmark.notes == ()


def test_classes_may_be_called_train_and_test(tmp_path: Path, save_image: Save) -> None:
    for name in ("bus", "car", "test", "train"):
        fill(save_image, "x", below=f"{name}/") if name == "bus" else save_image(f"{name}/0.png")
        save_image(f"{name}/1.png")
    benchmark = folder(tmp_path)
    assert set(benchmark.train.class_names + benchmark.test.class_names) == {"bus", "car", "test", "train"}  # type: ignore[union-attr]


def test_images_count_in_any_case_and_depth_and_hidden_files_do_not(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "bcd")
    for name in ("1.JPG", "2.jpeg", "deep/er/3.PNG", "4.webp", "5.bmp", "6.gif", "7.tif", "8.TIFF"):
        save_image(f"a/{name}")
    for name in (".9.png", ".hidden/10.png"):
        save_image(f"a/{name}")
    save_image(".git/11.png")
    (tmp_path / "a/notes.txt").write_text("words")
    benchmark = folder(tmp_path)
    paths = [path.name for path in benchmark.train.paths + benchmark.test.paths if "a" in path.parts]  # type: ignore[union-attr]
    assert sorted(paths) == ["1.JPG", "2.jpeg", "3.PNG", "4.webp", "5.bmp", "6.gif", "7.tif", "8.TIFF"]
    assert any("1 file " in note and ".txt" in note for note in benchmark.notes)


def test_empty_class_folders_and_loose_images_are_noted(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abcd")
    (tmp_path / "empty").mkdir()
    save_image("loose.png")
    notes = " ".join(folder(tmp_path).notes)
    assert "1 folder of" in notes
    assert "without images: empty" in notes
    assert "1 image directly in" in notes


def test_small_classes_are_refused_by_name_or_skipped(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abcd")
    fill(save_image, "stuvwxy", num_images=1)
    message = r"are 7 classes .* s, t, u, v, w and 2 more; .*--set data.options.skip_small_classes=true"
    with pytest.raises(UserError, match=message):
        folder(tmp_path, skip_small_classes=False)
    benchmark = folder(tmp_path)
    assert sorted(benchmark.train.class_names + benchmark.test.class_names) == list("abcd")  # type: ignore[union-attr]
    assert any("7 classes" in note for note in benchmark.notes)


def test_no_root_is_answered_with_the_flag() -> None:
    with pytest.raises(UserError, match="--data DIR"):
        folder()


def test_a_missing_root_and_a_file_are_refused(tmp_path: Path, save_image: Save) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is a file"):
        folder(save_image("a.png"))


def test_images_without_class_folders_are_answered_with_how_to_arrange_them(tmp_path: Path, save_image: Save) -> None:
    save_image("1.png")
    save_image("2.png")
    with pytest.raises(UserError, match="2 images but no class folders; put the images of each class into a folder"):
        folder(tmp_path)


def test_three_classes_are_too_few(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abc")
    with pytest.raises(UserError, match=r"3 classes \(a, b, c\) but needs at least 4"):
        folder(tmp_path)


def test_one_class_in_the_train_folder_is_too_few(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "a", below="train/")
    fill(save_image, "bc", below="test/")
    with pytest.raises(UserError, match=r"train holds 1 class \(a\) but needs at least 2"):
        folder(tmp_path)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, "half"])
def test_a_share_outside_of_0_and_1_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(UserError, match="test_share"):
        folder(tmp_path, test_share=share)


# -- what users have ---------------------------------------------------------------------------------------------------


def all_classes(benchmark) -> list[str]:  # type: ignore[no-untyped-def]
    return sorted({*benchmark.train.class_names, *benchmark.test.class_names})


def test_three_classes_of_many_images_are_tested_on_held_out_images_and_that_is_said(
    tmp_path: Path, save_image: Save
) -> None:
    fill(save_image, "abc", num_images=10)
    benchmark = folder(tmp_path)
    assert benchmark.train.class_names == benchmark.test.class_names == ("a", "b", "c")  # type: ignore[union-attr]
    assert (len(benchmark.train), len(benchmark.test)) == (24, 6)
    assert not set(benchmark.train.paths) & set(benchmark.test.paths)  # type: ignore[union-attr]
    assert any("nothing about unseen ones: there are too few classes" in note for note in benchmark.notes)
    with pytest.raises(UserError, match="needs at least 4"):
        folder(tmp_path, hold_out="classes")


def test_images_can_be_held_out_of_any_number_of_classes(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abcdef", num_images=5)
    fill(save_image, "g", num_images=3)
    benchmark = folder(tmp_path, hold_out="images")
    assert benchmark.train.class_names == tuple("abcdefg")
    assert benchmark.test.class_names == tuple("abcdef")  # type: ignore[union-attr]
    assert np.bincount(benchmark.test.labels).tolist() == [2] * 6  # type: ignore[union-attr]
    with pytest.raises(UserError, match="hold_out must be auto, classes or images, not 'rows'"):
        folder(tmp_path, hold_out="rows")


def test_classes_can_lie_deeper(tmp_path: Path, save_image: Save) -> None:
    for kind in ("shoes", "bags"):
        fill(save_image, "xy", below=f"{kind}/")
    save_image("shoes/loose.png")
    assert all_classes(folder(tmp_path, depth=2)) == ["bags/x", "bags/y", "shoes/x", "shoes/y"]
    assert any("1 image below" in note for note in folder(tmp_path, depth=2).notes)
    with pytest.raises(UserError, match="lies 3 folders deep"):
        folder(tmp_path, depth=3)
    with pytest.raises(UserError, match="at least 1 folder deep"):
        folder(tmp_path, depth=0)


def test_folders_within_class_folders_are_noted(tmp_path: Path, save_image: Save) -> None:
    for kind in "abcd":
        fill(save_image, "xy", below=f"{kind}/")
    (note,) = [note for note in folder(tmp_path).notes if "depth=2" in note]
    assert "a/x, a/y" in note
    assert note.startswith("All images lie in folders within")
    save_image("a/direct.png")
    (note,) = [note for note in folder(tmp_path).notes if "depth=2" in note]
    assert note.startswith("16 images lie in folders within the class folders, such as a/x, a/y")


def test_one_folder_that_holds_the_classes_is_pointed_at(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abcd", below="photos/")
    with pytest.raises(UserError, match="single folder photos; if that holds the classes, give it as --data"):
        folder(tmp_path)


def test_product_numbers_in_file_names_are_offered_and_taken(tmp_path: Path, save_image: Save) -> None:
    for product in ("B1", "B2", "C3", "C4"):
        for view in range(3):
            save_image(f"{product}_{view}.png")
    with pytest.raises(UserError, match=r"no class folders; put .* or tell the class by the files' names") as refused:
        folder(tmp_path)
    pattern = re.search(r"class_pattern=(.*)'", str(refused.value))
    assert pattern
    assert all_classes(folder(tmp_path, class_pattern=pattern[1])) == ["B1", "B2", "C3", "C4"]
    save_image("nothing.png")
    assert any("1 image in" in note for note in folder(tmp_path, class_pattern=pattern[1]).notes)
    with pytest.raises(UserError, match="finds a class in the name of none of the 13 images"):
        folder(tmp_path, class_pattern="^x(.)")
    with pytest.raises(UserError, match="is no regular expression"):
        folder(tmp_path, class_pattern="(")


def test_the_names_of_a_camera_are_no_classes() -> None:
    assert guess_pattern([f"IMG_{number:04d}" for number in range(50)]) is None
    assert guess_pattern([f"{name}{number}" for name in ("red", "blue", "green", "grey") for number in (1, 2)])


def test_a_train_and_a_val_folder_without_a_test_folder_are_a_split(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abc", below="train/")
    fill(save_image, "cde", below="valid/")
    benchmark = folder(tmp_path)
    assert benchmark.test.class_names == ("c", "d", "e")  # type: ignore[union-attr]
    assert benchmark.selection is None
    assert any("The test split is" in note for note in benchmark.notes)
    assert any("1 class is in both the train and the test split" in note for note in benchmark.notes)


def test_a_class_folder_may_be_a_link(tmp_path: Path, save_image: Save) -> None:
    fill(save_image, "abcd", below="root/")
    fill(save_image, "e", below="elsewhere/")
    (tmp_path / "root" / "e").symlink_to(tmp_path / "elsewhere" / "e")
    assert all_classes(folder(tmp_path / "root")) == list("abcde")
