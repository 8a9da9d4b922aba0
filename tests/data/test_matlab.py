"""The reader of MATLAB files against scipy, which writes them."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from pads.data.matlab import MOST_BYTES, read_mat


def as_mat(path: Path, compressed: bool = False) -> Path:
    rows = [(f"car_ims/{number:06}.jpg", number % 4 + 1, [number / 3, -2.5]) for number in range(1, 9)]
    annotations = np.array(
        [(path, label, np.array(box)) for path, label, box in rows],
        dtype=[("relative_im_path", "O"), ("class", "O"), ("box", "O")],
    )
    names = np.array(["AM General Hummer SUV 2000", "Citroën", "", "x"], dtype=object)
    contents = {"annotations": annotations[None], "class_names": names[None], "n": np.arange(300, dtype=np.int16)}
    savemat(path, contents, do_compression=compressed)
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_that_scipy_reads(tmp_path, compressed):
    found, expected = (read(as_mat(tmp_path / "a.mat", compressed)) for read in (read_mat, loadmat))
    assert found["class_names"][:2] == [str(name[0]) for name in expected["class_names"][0][:2]]
    images = expected["annotations"][0]
    assert found["annotations"]["relative_im_path"] == [str(each[0]) for each in images["relative_im_path"]]
    assert found["annotations"]["class"] == [[int(each[0, 0])] for each in images["class"]]
    assert found["annotations"]["box"] == [each[0].tolist() for each in images["box"]]
    assert found["n"] == expected["n"][0].tolist()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_spoilt_file_is_a_value_error_and_nothing_else(tmp_path, compressed):
    whole, chance = as_mat(tmp_path / "a.mat", compressed).read_bytes(), random.Random(0)
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(128, len(content))] = chance.randrange(256)
        (tmp_path / "a.mat").write_bytes(content[: chance.choice((len(content), chance.randrange(len(content))))])
        try:
            read_mat(tmp_path / "a.mat")
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize("parts", [1, 40])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, parts):
    packed = zlib.compress(struct.pack("<II", 2, 2 * MOST_BYTES // parts) + bytes(2 * MOST_BYTES // parts))
    element = struct.pack("<II", 15, len(packed)) + packed
    (tmp_path / "a.mat").write_bytes(bytes(124) + b"\0\1IM" + element * parts)
    with pytest.raises(ValueError, match="more than 32 MB"):
        read_mat(tmp_path / "a.mat")
