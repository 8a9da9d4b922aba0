"""What is opened as an image, and what never is."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pads.data import folder
from pads.data.formats import FORMATS, HAS_AVIF, SUFFIXES, is_image, open_image
from pads.data.store import BadImage, decode
from pads.errors import UserError
from pads.search.serve import pictures

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\nshowpage\n%%EOF\n"


def in_format(name: str) -> bytes:
    out = io.BytesIO()
    PICTURE.save(out, name)
    return out.getvalue()


@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "gif", "bmp", "tiff", *(["avif"] if HAS_AVIF else [])])
def test_a_format_of_the_list_is_read_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.jpg").write_bytes(in_format(name))
    assert decode(tmp_path / "x.jpg").size == PICTURE.size
    assert pictures.format_of(tmp_path / "x.jpg") == name.upper()


@pytest.mark.parametrize("content", [EPS, in_format("ppm"), in_format("tga"), in_format("ico"), in_format("pcx")])
def test_every_other_format_is_refused_everywhere(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "evil.jpg"
    path.write_bytes(content)
    with pytest.raises(BadImage, match=r"not an image, or none of JPEG.* TIFF"):
        decode(path)
    with pytest.raises(BadImage, match="none of JPEG"):
        decode(io.BytesIO(content))
    with pytest.raises(pictures.HTTPException):
        pictures.format_of(path)


def test_no_reader_of_a_program_is_on_the_list() -> None:
    assert not {"EPS", "WMF", "FPX", "IPTC"} & set(FORMATS)
    assert {".jfif", ".avif"} <= SUFFIXES and is_image("a.JFIF") and not is_image(".a.jpg")


def test_photos_called_jfif_and_avif_are_images_of_a_folder(tmp_path: Path) -> None:
    for label in "abcd":
        (tmp_path / label).mkdir()
        (tmp_path / label / "0.jfif").write_bytes(in_format("jpeg"))
        (tmp_path / label / "1.avif").write_bytes(in_format("avif" if HAS_AVIF else "png"))
    assert len(folder(tmp_path).train) == 4


@pytest.mark.parametrize("what", ["fifo", "zero", "folder", "missing"])
def test_only_a_regular_file_is_opened(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x.jpg"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "zero":
        path.symlink_to("/dev/zero")
    elif what == "folder":
        path.mkdir()
    with pytest.raises(BadImage, match={"folder": "directory", "missing": "no such file"}.get(what, "not a regular")):
        decode(path)
    with pytest.raises(OSError), open_image(path):
        pass


def test_a_link_to_a_picture_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(in_format("png"))
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    assert decode(tmp_path / "b.png").size == PICTURE.size


def test_libtiff_keeps_its_words_to_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    PICTURE.save(out, "TIFF", compression="tiff_lzw")
    content = bytearray(out.getvalue())
    content[8:200] = bytes(192)
    with pytest.raises(UserError):
        decode(io.BytesIO(bytes(content)))
    assert capfd.readouterr().err == ""


HEIC = b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + bytes(100)


def test_a_photo_of_a_phone_is_answered_with_the_extra_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pads.data.formats.register_heif", lambda: False)
    (tmp_path / "IMG_1.HEIC").write_bytes(HEIC)
    assert is_image("IMG_1.HEIC")
    for source in (tmp_path / "IMG_1.HEIC", io.BytesIO(HEIC)):
        with pytest.raises(BadImage, match=r'a HEIC photo, which is read after: pip install "pads-dml\[heic\]"'):
            decode(source)


def test_a_photo_of_a_phone_is_read_with_the_extra(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_pillow(PICTURE).save(tmp_path / "IMG_1.heic", quality=100)
    assert decode(tmp_path / "IMG_1.heic").size == PICTURE.size
