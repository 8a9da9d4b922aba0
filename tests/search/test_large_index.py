"""Beyond a number of images the index holds codes, which survive the disk; a small limit stands for 100,000 here."""

import numpy as np

from pads.search import engines
from pads.search.index import Index, build_index


def test_a_large_index_is_searched_by_codes(run, photos, tmp_path, monkeypatch):
    exact = build_index(run, photos, tmp_path / "index")
    monkeypatch.setattr(engines, "EXACT_UP_TO", 20)
    coded = build_index(run, photos, tmp_path / "index")  # nothing changed but the engine
    assert "IVF" in coded.engine and "codes" in coded.manifest["files"]
    np.testing.assert_array_equal(
        Index.open(coded.path).search(exact.vectors_ND, 5)[1], exact.search(exact.vectors_ND, 5)[1]
    )
    monkeypatch.setattr(engines, "EXACT_UP_TO", 100)
    assert build_index(run, photos, tmp_path / "index").engine == "faiss, exact"
    assert not list(tmp_path.glob("index/codes-*"))
