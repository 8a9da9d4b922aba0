from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pads.data.benchmark import ImageList, QueryGallery
from pads.data.table import table
from pads.errors import UserError

Rows = list[dict[str, object]]
Write = Callable[[Rows], Path]


@pytest.fixture
def write(tmp_path: Path, save_image: Callable[..., Path]) -> Write:
    """Writes the rows as a CSV, and a picture for each path that does not begin with `lost`."""

    def write_rows(rows: Rows) -> Path:
        for row in rows:
            if row.get("path") and not str(row["path"]).startswith("lost"):
                save_image(str(row["path"]))
        path = tmp_path / "images.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write_rows


def row(path: str, label: object, split: str = "train", **more: object) -> dict[str, object]:
    return {"label": label, "split": split, "path": path, **more}


def two_by_two(split: str, labels: tuple[object, object] = (10, 2), **more: object) -> Rows:
    """Two images of each of two labels; lines 2 to 5 of a CSV if they come first."""
    return [row(f"{split}/{label}_{number}.png", label, split, **more) for label in labels for number in range(2)]


def test_an_oml_table_with_both_flags_true_is_a_leave_one_out_test(write: Write) -> None:
    rows = two_by_two("train") + two_by_two("validation", (3, 4), is_query=True, is_gallery=True)
    path = write(rows)
    benchmark = table(path)
    assert benchmark.train.class_names == ("2", "10")  # in the order of numbers
    assert benchmark.train.labels.tolist() == [1, 1, 0, 0]
    assert benchmark.train.paths[0] == path.parent / "train/10_0.png"
    assert isinstance(benchmark.test, ImageList)
    assert benchmark.test.class_names == ("3", "4")
    assert benchmark.selection is None
    assert benchmark.notes == (
        "The validation rows are the test split, as in the literature; val rows would select the epoch.",
    )


def test_the_flag_columns_may_be_left_out_and_labels_may_be_words(write: Write) -> None:
    benchmark = table(write(two_by_two("train", ("zebra", "élan")) + two_by_two("test", ("x", "y"))))
    assert benchmark.train.class_names == ("zebra", "élan")
    assert isinstance(benchmark.test, ImageList)
    assert benchmark.notes == ()


def test_queries_and_gallery_are_kept_apart(write: Write) -> None:
    test = [
        row("q.png", "a", "test", is_query="True", is_gallery="False"),
        row("g.png", "a", "test", is_query="0", is_gallery="1"),
        row("b.png", "b", "test", is_query="false", is_gallery="true"),
        row("n.png", "b", "test", is_query="False", is_gallery="False"),
    ]
    benchmark = table(write(two_by_two("train") + test))
    assert isinstance(benchmark.test, QueryGallery)
    assert [path.name for path in benchmark.test.images.paths] == ["q.png", "g.png", "b.png"]
    assert benchmark.test.is_query.tolist() == [True, False, False]
    assert benchmark.test.is_gallery.tolist() == [False, True, True]
    assert benchmark.notes == ("Left out 1 test row marked neither query nor gallery.",)


def test_val_rows_select_the_epoch(write: Write) -> None:
    benchmark = table(write(two_by_two("train") + two_by_two("val", (5, 6)) + two_by_two("test", (7, 8))))
    assert benchmark.selection is not None
    assert benchmark.selection.class_names == ("5", "6")


def test_boxes_are_left_top_right_bottom_and_may_be_missing_in_a_row(write: Write) -> None:
    rows = two_by_two("train") + two_by_two("test", (3, 4))
    rows[1] |= {"x_1": 1, "x_2": 7, "y_1": 2, "y_2": 5.5}
    benchmark = table(write(rows))
    assert benchmark.train.boxes is not None
    np.testing.assert_array_equal(benchmark.train.boxes[:2], [[np.nan] * 4, [1, 2, 7, 5.5]])
    assert isinstance(benchmark.test, ImageList)
    assert benchmark.test.boxes is None


def test_a_folder_with_one_csv_stands_for_it(write: Write) -> None:
    path = write(two_by_two("train") + two_by_two("test", (3, 4)))
    assert table(path.parent).train.paths == table(str(path)).train.paths
    (path.parent / "other.csv").write_text("")
    with pytest.raises(UserError, match=r"2 CSVs in .* \(images.csv, other.csv\)"):
        table(path.parent)
    assert len(table(path.parent, file="images.csv").train) == 4
    with pytest.raises(UserError, match=r"no file .*nothing.csv"):
        table(path.parent, file="nothing.csv")


def test_a_byte_order_mark_blank_lines_and_an_index_column_do_no_harm(write: Write) -> None:
    path = write(two_by_two("train") + two_by_two("test", (3, 4)))
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    text = "\n".join(["," + header, "", *(f"{number},{line}" for number, line in enumerate(lines)), ""])
    path.write_text(text, encoding="utf-8-sig")
    assert len(table(path).train) == 4


def test_shared_classes_are_noted(write: Write) -> None:
    benchmark = table(write(two_by_two("train") + two_by_two("test", (10, 3))))
    assert benchmark.notes == (
        "1 class is in both the train and the test split, which is then no measure of unseen classes.",
    )


def test_small_classes_are_refused_or_skipped_but_not_of_queries(write: Write) -> None:
    path = write([*two_by_two("train"), row("one.png", "single"), *two_by_two("test", (3, 4))])
    with pytest.raises(UserError, match=r"1 class with a single image in the train split of .*: single"):
        table(path, skip_small_classes=False)
    assert table(path).train.class_names == ("2", "10")


def test_no_root_and_a_missing_file_are_answered(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data FILE\.csv"):
        table()
    with pytest.raises(UserError, match="there is no"):
        table(tmp_path / "images.csv")
    with pytest.raises(UserError, match="no CSV in"):
        table(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks 3 columns: label, split, path; it has: none"),
        ("label,path\n1,a.png\n", "lacks 1 column: split; it has: label, path"),
        ("label;split;path\n", "it has: label;split;path"),
        ("label,split,path\n", "no rows with split train"),
    ],
)
def test_a_table_without_what_is_needed_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "images.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        table(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images.csv").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UserError, match="cannot be read as a CSV in UTF-8"):
        table(tmp_path)


GALLERY = {"is_query": False, "is_gallery": True}
QUERY = {"is_query": True, "is_gallery": False}
BOTH = {"is_query": True, "is_gallery": True}
TRAIN = two_by_two("train")  # lines 2 to 5
TEST = two_by_two("test", (3, 4))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (TEST, "no rows with split train"),
        (TRAIN, "no rows with split test"),
        (TRAIN + TEST + two_by_two("validation"), "4 validation and 4 test rows, .* rename validation to val"),
        ([*TRAIN, row("a.png", 1, "tset"), *TEST], r"1 row with an unknown split \('tset'\), on line 6: write train"),
        ([*TRAIN, row("a.png", "")], "1 row without a label, on line 6"),
        (
            [*TRAIN, *(row(f"lost{number}.png", 3, "test") for number in range(7))],
            r"7 rows whose file is missing \(lost0.png, .* and 2 more\), on lines 6, 7, 8, 9, 10 and 2 more: write",
        ),
        ([*TRAIN, row("", 3, "test")], r"missing \(\(no path\)\), on line 6"),
        ([*TRAIN, row("a.png", 3, "test", is_query="maybe", is_gallery=True)], "1 row of the test split .* on line 6"),
        ([*TRAIN, row("a.png", 3, "test", **BOTH), row("b.png", 3, "test")], "neither true nor false, on line 7"),
        ([*TRAIN, row("a.png", 3, "test", is_query=True)], "neither true nor false, on line 6"),
        ([*TRAIN, row("a.png", 3, "test", **GALLERY)], "no test row with is_query true"),
        (
            [*TRAIN, row("a.png", 3, "test", **QUERY), row("b.png", 4, "test", **GALLERY)],
            r"1 row asking for a label without another image in the gallery \(label 3\), on line 6",
        ),
        (
            [*TRAIN, row("a.png", 3, "test", **BOTH), row("b.png", 4, "test", **GALLERY)],  # itself is no answer
            r"gallery \(label 3\), on line 6",
        ),
        ([*TRAIN, row("a.png", 3, "test", **BOTH)], "1 class with a single image in the test split"),
        ([*two_by_two("train", (1, 1)), *TEST], "the train split of .* has 1 class with"),
        ([*TRAIN, *TEST, row("a.png", 2, x_1=5, x_2=5, y_1=0, y_2=9)], "1 row whose box .* on line 10: mend"),
        ([*TRAIN, *TEST, row("a.png", 2, x_1=5, x_2="", y_1=0, y_2=9)], "1 row whose box .* on line 10: mend"),
        ([*TRAIN, *TEST, row("a.png", 2, x_1=5, x_2="x", y_1=0, y_2=9)], "1 row whose box .* on line 10: mend"),
        ([*TRAIN, *TEST, row("a.png", 2, x_1=5)], "1 row whose box .* on line 10: mend"),
    ],
)
def test_what_is_wrong_is_said_with_line_numbers(write: Write, rows: Rows, message: str) -> None:
    path = write(rows)
    with pytest.raises(UserError, match=message):
        table(path)


def test_a_path_too_long_for_any_file_is_a_missing_one(write: Write) -> None:
    rows = two_by_two("train") + two_by_two("test") + [row("lost" + "x" * 5000, 2)]
    with pytest.raises(UserError, match="1 row whose file is missing"):
        table(write(rows))


@pytest.mark.parametrize(
    "spoilt", [{"path": "lost\nsecond.png"}, {"split": "tr\nain"}, {"label": "a\nb", "split": "test"}]
)
def test_a_newline_in_a_cell_leaves_the_message_on_one_line(write: Write, spoilt: dict[str, object]) -> None:
    rows = two_by_two("train") + two_by_two("test", is_query=True, is_gallery=False)
    rows.append({**row("lost/x.png", 2), "is_query": True, "is_gallery": True, **spoilt})
    with pytest.raises(UserError) as refusal:
        table(write(rows))
    assert len(str(refusal.value).splitlines()) == 1
