"""tools/own_photos.py: splits that are the same everywhere, and a table that pairs by split."""

from __future__ import annotations

from PIL import Image

from tools.own_photos import FIELDS, link_split, make_table


def make_photos(folder, num_classes):
    for number in range(num_classes):
        (folder / f"kind {number}").mkdir(parents=True)
        for each in range(2):
            Image.new("RGB", (8, 8), (number, each, 0)).save(folder / f"kind {number}" / f"{each}.png")


def test_a_split_holds_out_a_fifth_of_the_classes_whole_and_always_the_same(tmp_path):
    make_photos(tmp_path / "photos", 15)
    for target in ("a", "b"):
        link_split(tmp_path / "photos", 3, tmp_path / target)
    files = {
        target: sorted(p.relative_to(tmp_path / target) for p in (tmp_path / target).rglob("*.png")) for target in "ab"
    }
    assert files["a"] == files["b"] and len(files["a"]) == 30
    test, train = ({path.name for path in (tmp_path / "a" / side).iterdir()} for side in ("test", "train"))
    assert len(test) == 3 and len(train) == 12 and not test & train
    link_split(tmp_path / "photos", 4, tmp_path / "c")
    assert {path.name for path in (tmp_path / "c" / "test").iterdir()} != test


def test_the_table_pairs_by_split_and_holds_scratch_against_the_features_of_the_default():
    def row(arm, split, name, recall):
        return dict.fromkeys(FIELDS, "") | {
            **{"arm": arm, "data": "mugs", "split": str(split), "row": name},
            **{"recall@1": str(recall), "map@r": str(recall / 2)},
        }

    rows = [row("default", s, "pretrained features", 80 + s) for s in range(3)]
    rows += [row("default", s, "trained", 82 + s) for s in range(3)] + [row("scratch", 1, "trained", 50)]
    table = make_table(rows)
    assert "| mugs | default | pretrained features | 3 | 81.0 |  | 40.5 |  |" in table
    assert "| mugs | default | trained | 3 | 83.0 | +2.00 [+2.00, +2.00] | 41.5 | +1.00 [+1.00, +1.00] |" in table
    assert "| mugs | scratch | trained | 1 | 50.0 | -31.00 | 25.0 | -15.50 |" in table
