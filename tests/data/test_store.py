from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pads.data.augment import resample, whole_boxes
from pads.data.benchmark import ImageList
from pads.data.store import are_turned, compute_kept_sizes, decode, load_store, read_stored, squeeze
from pads.errors import UserError

Save = Callable[..., Path]


def listing(paths: list[Path], labels: list[int] | None = None, boxes: np.ndarray | None = None) -> ImageList:
    labels_N = np.array(labels if labels is not None else [0] * len(paths), dtype=np.int64)
    return ImageList(tuple(paths), labels_N, tuple(f"class {label}" for label in sorted(set(labels_N))), boxes)


def smooth_picture(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def first_pixel(image: Image.Image) -> tuple[int, ...]:
    assert image.mode == "RGB"
    return image.getpixel((0, 0))  # type: ignore[return-value]


# -- one image ---------------------------------------------------------------------------------------------------------


def test_transparency_is_laid_on_white() -> None:
    assert first_pixel(decode(Image.new("RGBA", (2, 2), (200, 0, 0, 0)))) == (255, 255, 255)
    assert first_pixel(decode(Image.new("RGBA", (2, 2), (0, 0, 0, 51)))) == (204, 204, 204)  # a fifth of black
    assert first_pixel(decode(Image.new("LA", (2, 2), (0, 0)))) == (255, 255, 255)


def test_palettes_with_and_without_transparency_become_rgb(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.putdata([0, 1])
    picture.save(tmp_path / "opaque.png")
    picture.save(tmp_path / "clear.png", transparency=0)
    assert np.asarray(decode(tmp_path / "opaque.png")).tolist() == [[[10, 20, 30], [40, 50, 60]]]
    assert np.asarray(decode(tmp_path / "clear.png")).tolist() == [[[255, 255, 255], [40, 50, 60]]]


def test_grey_bilevel_and_cmyk_become_rgb() -> None:
    assert first_pixel(decode(Image.new("L", (2, 2), 77))) == (77, 77, 77)
    assert first_pixel(decode(Image.new("1", (2, 2), 1))) == (255, 255, 255)
    assert first_pixel(decode(Image.new("CMYK", (2, 2), (0, 255, 255, 0)))) == (255, 0, 0)


def test_sixteen_bits_are_scaled_rather_than_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 0x7F00, 0xFFFF]], dtype=np.uint16)).save(tmp_path / "deep.png")
    assert np.asarray(decode(tmp_path / "deep.png"))[0, :, 0].tolist() == [0, 127, 255]
    assert first_pixel(decode(Image.new("I", (1, 1), 0x8000))) == (128, 128, 128)


def test_the_first_frame_of_an_animation_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert first_pixel(decode(tmp_path / "a.gif")) == (255, 0, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_put_upright(tmp_path: Path, orientation: int) -> None:
    """The picture is turned the other way first, so that the camera's note must undo it."""
    upright = smooth_picture(24, 16)
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(np.asarray(decode(tmp_path / "a.png")), np.asarray(upright))
    assert read_stored(tmp_path / "a.png", 8)[1] == (24, 16)


def test_a_box_is_cut_out_of_the_upright_picture_and_clipped_to_it() -> None:
    picture = smooth_picture(24, 16)
    pixels = np.asarray(picture)
    assert np.array_equal(np.asarray(decode(picture, (2, 3, 10, 8))), pixels[3:8, 2:10])
    assert np.array_equal(np.asarray(decode(picture, (20, 10, 99, 99))), pixels[10:, 20:])
    assert decode(picture, np.full(4, np.nan)).size == (24, 16)
    assert read_stored(picture, 8, box=(2, 3, 10, 8))[1] == (8, 5)
    with pytest.raises(UserError, match=r"its box \(30.0, 0.0, 40.0, 5.0\) is outside its 24 x 16 pixels"):
        decode(picture, (30, 0, 40, 5))


def test_paths_files_pictures_and_arrays_decode_alike(save_image: Save) -> None:
    path = save_image("a.png")
    picture = Image.open(path)
    sources = [path, str(path), io.BytesIO(path.read_bytes()), picture, np.asarray(picture)]
    decoded = [np.asarray(decode(source)) for source in sources]
    assert all(np.array_equal(pixels, decoded[0]) for pixels in decoded)


@pytest.mark.parametrize("pixels", [np.zeros((4, 4, 3)), np.zeros((3, 5, 5), np.uint8), np.zeros(4, np.uint8)])
def test_arrays_of_another_kind_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(UserError, match="the given image cannot be used as an image: an array must be uint8"):
        decode(pixels)


def test_floating_point_pictures_are_refused() -> None:
    with pytest.raises(UserError, match="floating-point"):
        decode(Image.new("F", (2, 2)))


def test_squeezing_is_channels_first_square_and_antialiased() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = [255, 0, 100]
    square = squeeze(Image.fromarray(stripes), 16)
    assert square.shape == (3, 16, 16)
    assert square.dtype == np.uint8
    inner = square[:, 3:-3, 3:-3].astype(float)
    np.testing.assert_allclose(inner.mean((1, 2)), [127.5, 0, 50], atol=1.5)  # single pixels would be 0 or 255
    assert inner.std((1, 2)).max() < 2


def test_a_large_jpeg_read_faster_looks_the_same(tmp_path: Path) -> None:
    smooth_picture(1203, 805).save(tmp_path / "large.jpg", quality=95)
    fast, size = read_stored(tmp_path / "large.jpg", 48)
    slow = squeeze(decode(tmp_path / "large.jpg"), 48)
    assert size == (1203, 805)
    assert np.abs(fast.astype(int) - slow).mean() < 2  # of 255


# -- all images --------------------------------------------------------------------------------------------------------


def test_a_store_holds_pixels_sizes_and_labels_of_all(save_image: Save) -> None:
    paths = [save_image(f"{number}.png", 10 + number, 20) for number in range(5)]
    store = load_store(listing(paths, [1, 0, 1, 0, 0]), 8)
    assert len(store) == 5
    assert store.pixels.shape == (5, 3, 8, 8)
    assert store.pixels.dtype == torch.uint8
    assert store.sizes_N2.tolist() == [[10 + number, 20] for number in range(5)]
    assert store.labels_N.tolist() == [1, 0, 1, 0, 0]
    assert store.labels_N.dtype == torch.int64
    assert store.bad_images == ()
    assert store.kept.tolist() == [0, 1, 2, 3, 4]
    for index, path in enumerate(paths):
        assert np.array_equal(store.pixels[index].numpy(), squeeze(decode(path), 8))


def test_the_number_of_workers_changes_nothing(save_image: Save) -> None:
    images = listing([save_image(f"{number}.png", 30, 20) for number in range(20)])
    stores = [load_store(images, 8, num_workers=num_workers) for num_workers in (1, 2, 7)]
    assert all(torch.equal(store.pixels, stores[0].pixels) for store in stores)


def test_progress_counts_every_image(save_image: Save) -> None:
    told: list[tuple[int, int]] = []
    load_store(listing([save_image(f"{number}.png") for number in range(3)]), 8, progress=lambda *at: told.append(at))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_boxes_are_cut_out_and_their_size_is_kept(save_image: Save) -> None:
    path = save_image("a.png", 30, 20)
    boxes = np.array([[0, 0, 10, 5], [np.nan] * 4])
    store = load_store(listing([path, path], boxes=boxes), 8)
    assert store.sizes_N2.tolist() == [[10, 5], [30, 20]]
    assert np.array_equal(store.pixels[0].numpy(), squeeze(Image.open(path).crop((0, 0, 10, 5)), 8))


def spoil(save_image: Save, tmp_path: Path) -> ImageList:
    """Seven images of four classes; the second class is broken altogether."""
    whole = [save_image(f"good{number}.png", 20 + number, 20) for number in range(3)]
    truncated = save_image("truncated.jpg", 200, 200)
    truncated.write_bytes(truncated.read_bytes()[:3000])
    words = tmp_path / "words.png"
    words.write_text("this is no picture")
    empty = tmp_path / "empty.png"
    empty.touch()
    paths = [whole[0], truncated, words, whole[1], empty, whole[2], tmp_path / "gone.png"]
    return listing(paths, [0, 1, 1, 2, 2, 3, 3])


def test_broken_images_are_counted_and_named_with_their_reasons(save_image: Save, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load_store(spoil(save_image, tmp_path), 8, strict=True)
    message = str(error.value)
    assert "4 of 7 images cannot be used" in message
    assert "without --strict" in message and "`pads check` lists all" in message
    assert "truncated.jpg (image file is truncated" in message
    assert "words.png (not an image" in message
    assert "empty.png (not an image" in message
    assert "gone.png (no such file or directory)" in message


def test_only_five_broken_images_are_named(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.png").touch()
    with pytest.raises(UserError, match=r"8 of 8 images .*4.png \(.*\) and 3 more; mend") as error:
        load_store(listing([tmp_path / f"{number}.png" for number in range(8)]), 8, strict=True)
    assert "5.png" not in str(error.value)


def test_broken_images_are_left_out_unless_that_is_refused(save_image: Save, tmp_path: Path) -> None:
    images = spoil(save_image, tmp_path)
    store = load_store(images, 8)
    assert store.kept.tolist() == [0, 3, 5]
    assert store.labels_N.tolist() == [0, 1, 2]
    assert store.images.class_names == ("class 0", "class 2", "class 3")
    assert [path.name for path in store.images.paths] == ["good0.png", "good1.png", "good2.png"]
    assert store.sizes_N2[:, 0].tolist() == [20, 21, 22]
    assert [bad.path.name for bad in store.bad_images] == [
        "truncated.jpg", "words.png", "empty.png", "gone.png",
    ]  # fmt: skip
    for index, path in enumerate(store.images.paths):
        assert np.array_equal(store.pixels[index].numpy(), squeeze(decode(path), 8))


def test_skipping_everything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(UserError, match="none is left"):
        load_store(listing([tmp_path / "a.png"]), 8)


def test_decompression_bombs_are_bad_images(save_image: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    small, bomb = save_image("small.png", 4, 4), save_image("bomb.png", 30, 30)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    store = load_store(listing([small, bomb]), 8)
    assert store.kept.tolist() == [0]
    assert "decompression bomb" in store.bad_images[0].reason


def test_a_store_moves_to_a_device_as_a_whole(save_image: Save) -> None:
    store = load_store(listing([save_image("a.png")]), 8)
    moved = store.to("meta")
    assert {moved.pixels.device.type, moved.sizes_N2.device.type, moved.labels_N.device.type} == {"meta"}
    assert moved.images is store.images
    assert store.pixels.device.type == "cpu"


def test_a_nearly_square_jpeg_lies_as_its_size_says(tmp_path):
    """Decoded at an eighth, 801 x 804 pixels are 101 x 101; what counts is the size of the original."""
    pixels = np.zeros((804, 801, 3), np.uint8)
    pixels[:400] = 255  # the upper half is white
    Image.fromarray(pixels).save(tmp_path / "tall.jpg")
    stored, size = read_stored(tmp_path / "tall.jpg", 12, 4 / 3)
    sizes_B2, pixels_BCHW = torch.tensor([size]), torch.from_numpy(stored)[None]
    kept_B2, turned_B = compute_kept_sizes(sizes_B2, stored.shape), are_turned(sizes_B2, stored.shape)
    image = resample(pixels_BCHW, whole_boxes(sizes_B2), 8, kept_B2=kept_B2, turned_B=turned_B)[0]
    assert image[:, :3].min() > 0.9 and image[:, 5:].max() < 0.1
