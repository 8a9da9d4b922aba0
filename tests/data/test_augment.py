from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor

from pads.config import Data, Network
from pads.data.augment import (
    AUGMENTATIONS,
    WHOLE,
    centre_crops,
    centre_places,
    normalise,
    random_resized_crop_boxes,
    resample,
    resize_and_crop_boxes,
    whole_boxes,
)
from pads.data.store import are_turned, compute_kept_sizes, squeeze
from pads.errors import UserError
from pads.networks import EmbeddingNetwork, build_backbone, use_seed


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sizes(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs)


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded())


# -- the laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize(("resize", "crop"), [(256, 224), (36, 32), (32, 32)])
def test_every_law_gives_boxes_inside_the_image(name: str, resize: int, crop: int) -> None:
    sizes_B2 = torch.randint(1, 600, (500, 2), generator=seeded(1))
    boxes_B4 = AUGMENTATIONS[name](sizes_B2, resize=resize, crop=crop, generator=seeded())
    assert boxes_B4.shape == (500, 4)
    assert boxes_B4.dtype == torch.float32
    assert (boxes_B4 >= 0).all()
    assert (boxes_B4 <= 1 + 1e-6).all()
    assert (boxes_B4[:, 2:] > boxes_B4[:, :2]).all()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_law_is_a_function_of_its_generator(name: str) -> None:
    def boxes(seed: int) -> Tensor:
        return AUGMENTATIONS[name](sizes(*[(300, 200)] * 9), resize=256, crop=224, generator=seeded(seed))

    assert torch.equal(boxes(1), boxes(1))
    assert torch.equal(boxes(1), boxes(2)) == (name == "none")


def crop_by_torchvisions_law(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """RandomResizedCrop attempt by attempt: left, top, width, height."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    if width / height < 3 / 4:
        w, h = width, round(width / (3 / 4))
    elif width / height > 4 / 3:
        w, h = round(height * (4 / 3)), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


def in_pixels(boxes_B4: Tensor, width: int, height: int) -> np.ndarray:
    """Left, top, width, height."""
    pixels = (boxes_B4.double() * torch.tensor([width, height, width, height])).numpy()
    return np.concatenate([pixels[:, :2], pixels[:, 2:] - pixels[:, :2]], axis=1)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (200, 500), (640, 120), (36, 36)])
def test_random_resized_crops_follow_torchvisions_law(width: int, height: int) -> None:
    """Position, size, area and ratio against the plain loop, by two-sample Kolmogorov-Smirnov tests."""
    num = 4000
    drawn = in_pixels(random_resized_crop_boxes(sizes(*[(width, height)] * num), generator=seeded(5)), width, height)
    rng = random.Random(5)
    reference = np.array([crop_by_torchvisions_law(width, height, rng) for _ in range(num)], dtype=float)
    np.testing.assert_allclose(drawn, np.round(drawn), atol=1e-3)  # whole pixels, as there
    drawn = np.round(drawn)
    for column in range(4):
        assert stats.ks_2samp(drawn[:, column], reference[:, column]).pvalue > 1e-3
    for measure in (lambda box: box[:, 2] * box[:, 3], lambda box: box[:, 2] / box[:, 3]):
        assert stats.ks_2samp(measure(drawn), measure(reference)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((1000, 10), (0.493, 0, 0.506, 1)),  # 13 wide from pixel 493
        ((10, 1000), (0, 0.493, 1, 0.506)),
        ((100, 100), (0, 0, 1, 1)),
    ],
)
def test_where_no_attempt_fits_the_largest_centre_crop_is_taken(size: tuple[int, int], box: tuple[float, ...]) -> None:
    """A scale of 4 to 5 images never fits."""
    boxes_B4 = random_resized_crop_boxes(sizes(size), scale=(4.0, 5.0), generator=seeded())
    torch.testing.assert_close(boxes_B4, torch.tensor([box], dtype=torch.float32))


def test_resize_and_crop_draws_every_corner_of_the_squeezed_square_uniformly() -> None:
    boxes_B4 = resize_and_crop_boxes(sizes(*[(500, 100)] * 4000), resize=40, crop=32, generator=seeded())
    torch.testing.assert_close(boxes_B4[:, 2:] - boxes_B4[:, :2], torch.full((4000, 2), 0.8))
    corners = (boxes_B4[:, :2] * 40).round().long()
    torch.testing.assert_close(boxes_B4[:, :2] * 40, corners.float())
    counts = torch.bincount(corners[:, 0] * 9 + corners[:, 1], minlength=81)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("size", [(300, 500), (500, 333), (301, 500), (72, 72)])
@pytest.mark.parametrize(("resize", "crop"), [(256, 224), (36, 32)])
def test_the_centre_is_where_resize_and_centre_crop_have_it(size: tuple[int, int], resize: int, crop: int) -> None:
    width, height = (int(resize * side / min(size)) for side in size)
    resized_B2, corners_B2 = centre_places(sizes(size), resize=resize, crop=crop)
    assert resized_B2.tolist() == [[width, height]]
    assert corners_B2.tolist() == [[round((width - crop) / 2), round((height - crop) / 2)]]


def test_a_crop_larger_than_its_square_is_refused() -> None:
    for law in (centre_places, resize_and_crop_boxes):
        with pytest.raises(UserError, match=r"data.image_size \(32\) must not exceed data.resize \(30\)"):
            law(sizes((9, 9)), resize=30, crop=32)


# -- resampling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [1, 7, 32, 224, 288])
def test_the_whole_box_at_equal_size_is_the_picture_itself(side: int) -> None:
    pixels = noise(2, 3, side, side)
    images = resample(pixels, whole_boxes(torch.zeros(2, 2)), side)
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, pixels / 255, rtol=0, atol=1e-4)  # the rest is float32's
    assert torch.equal((images * 255).round().to(torch.uint8), pixels)


def test_a_box_on_whole_pixels_is_a_slice() -> None:
    pixels = noise(1, 3, 16, 16)
    images = resample(pixels, torch.tensor([[4, 2, 12, 10]]) / 16, 8)
    torch.testing.assert_close(images, pixels[:, :, 2:10, 4:12] / 255, rtol=0, atol=1e-5)


def test_flips_are_exact_and_only_where_asked() -> None:
    pixels = noise(4, 3, 40, 40)
    boxes_B4 = random_resized_crop_boxes(sizes(*[(72, 60)] * 4), generator=seeded())
    plain = resample(pixels, boxes_B4, 32)
    flipped = resample(pixels, boxes_B4, 32, flips_B=torch.tensor([True, False, True, False]))
    assert torch.equal(flipped[[0, 2]], plain[[0, 2]].flip(3))
    assert torch.equal(flipped[[1, 3]], plain[[1, 3]])


@pytest.mark.parametrize("size", [5, 9, 14, 40])
def test_resampling_is_what_pillow_resizes_a_box_to(size: int) -> None:
    """Larger or smaller than the box, which may end between pixels: within the rounding of Pillow's bytes."""
    pixels = noise(4, 3, 24, 36)
    boxes = [[0.0, 0.0, 1.0, 1.0], [0.13, 0.4, 0.77, 0.71], [0.5, 0.0, 1.0, 0.25], [0.2, 0.1, 0.23, 0.9]]
    images = resample(pixels, torch.tensor(boxes), size)
    for picture, box, image in zip(pixels, boxes, images, strict=True):
        in_pixels = [edge * side for edge, side in zip(box, (36, 24, 36, 24), strict=True)]
        by_pillow = Image.fromarray(picture.permute(1, 2, 0).numpy()).resize(
            (size, size), Image.Resampling.BILINEAR, box=in_pixels
        )
        assert np.abs(255 * image.permute(1, 2, 0).numpy() - np.asarray(by_pillow)).max() < 1.01  # rounded twice


def test_a_picture_that_was_laid_on_its_side_comes_out_upright() -> None:
    upright, sizes_B2 = noise(2, 3, 36, 24), sizes((24, 36), (36, 24))
    pixels = torch.stack([upright[0].mT, noise(1, 3, 24, 36)[0]])
    turned_B = are_turned(sizes_B2, pixels.shape)
    assert turned_B is not None and turned_B.tolist() == [True, False]
    boxes_B4, flips_B = torch.tensor([[0.1, 0.3, 0.6, 0.9]]).repeat(2, 1), torch.tensor([True, True])
    images = resample(pixels, boxes_B4, 16, turned_B=turned_B, flips_B=flips_B)
    torch.testing.assert_close(images[0], resample(upright[:1], boxes_B4[:1], 16, flips_B=flips_B[:1])[0])
    torch.testing.assert_close(images[1], resample(pixels[1:], boxes_B4[1:], 16, flips_B=flips_B[1:])[0])


def smooth_picture(width: int, height: int, rng: np.random.Generator) -> Image.Image:
    pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def natural_picture(width: int, height: int, rng: np.random.Generator) -> Image.Image:
    """Noise whose amplitude falls with frequency as in photographs (1 / f), with a photograph's contrast."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width))
    frequency[0, 0] = 1
    waves = np.fft.ifft2(np.fft.fft2(rng.standard_normal((3, height, width))) / frequency).real
    waves = (waves - waves.mean((1, 2), keepdims=True)) / waves.std((1, 2), keepdims=True)
    return Image.fromarray(((0.5 + 0.2 * waves).clip(0, 1) * 255).astype(np.uint8).transpose(1, 2, 0))


def by_pillow(image: Image.Image) -> Tensor:
    """The ordinary pipeline: shorter side to 256, centre crop of 224, in 0..1."""
    resized = tuple(int(256 * side / min(image.size)) for side in image.size)
    left, top = (round((side - 224) / 2) for side in resized)
    crop = image.resize(resized, Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))
    return torch.from_numpy(np.asarray(crop).copy()).permute(2, 0, 1) / 255


def from_store(image: Image.Image, size: int, ratio: float) -> Tensor:
    pixels, sizes_B2 = torch.from_numpy(squeeze(image, size, ratio))[None], sizes(image.size)
    kept_B2, turned_B = compute_kept_sizes(sizes_B2, pixels.shape), are_turned(sizes_B2, pixels.shape)
    return centre_crops(pixels, sizes_B2, kept_B2=kept_B2, turned_B=turned_B)[0] / 255


@pytest.mark.parametrize(("width", "height"), [(375, 500), (500, 375), (500, 333), (300, 500), (400, 400)])
@pytest.mark.parametrize(
    ("picture", "bound"),
    # Measured: 0.004 to 0.006 for the smooth picture, 0.018 to 0.048 for the one with detail everywhere.
    [(smooth_picture, 0.007), (natural_picture, 0.051)],
)
def test_normalised_pixels_are_nearly_those_of_pillow(
    picture: Callable[..., Image.Image], bound: float, width: int, height: int
) -> None:
    """Mean absolute difference in units of ImageNet's standard deviation, in which one grey level is 0.017."""
    image = picture(width, height, np.random.default_rng(0))
    ours, theirs = (
        normalise(crop[None], Network().mean, Network().std)
        for crop in (from_store(image, Data().store_size, Data().store_ratio), by_pillow(image))
    )
    difference = (ours - theirs).abs().mean().item()
    print(f"mean absolute difference of normalised pixels {difference:.4f}")
    assert difference < bound


@pytest.mark.parametrize(
    "picture", [natural_picture, lambda width, height, rng: Image.fromarray(noisy(width, height, rng))]
)
@pytest.mark.parametrize(
    ("width", "height"),
    [
        (500, 375),
        (375, 500),
        (500, 333),
        (333, 500),
        (384, 384),
        (511, 383),
        (383, 511),
        (301, 300),
        (97, 97),
        (20, 301),
    ],
)
def test_a_picture_that_fits_the_store_is_cropped_as_pillow_crops_the_file(
    picture: Callable[..., Image.Image], width: int, height: int
) -> None:
    """To the grey level but for one in 400, which is one off: Pillow's weights have 22 bits and these 16."""
    image = picture(width, height, np.random.default_rng(0))
    difference = (255 * (from_store(image, 384, 4 / 3) - by_pillow(image))).abs().round()
    share = (difference > 0).float().mean().item()
    print(f"{100 * share:.3f} % of the grey levels differ, by at most {difference.max():.0f}")
    assert share < 1 / 400
    assert difference.max() <= 1


def noisy(width: int, height: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(12, 17), (14, 14)])
def test_centres_are_what_whole_numbers_added_up_pixel_by_pixel_give(shape: tuple[int, int]) -> None:
    """Bit for bit, in a batch of pictures that are wide, upright, square, tiny and squeezed; half a grey level goes up."""
    rng, sizes_B2 = (
        np.random.default_rng(0),
        sizes((17, 12), (9, 16), (11, 11), (3, 5), (40, 22), (10, 33), (16, 8), (8, 16)),
    )
    pictures = [Image.fromarray(noisy(*size, rng)) for size in sizes_B2.tolist()]
    pixels = torch.from_numpy(np.stack([squeeze(picture, shape[0], shape[1] / shape[0]) for picture in pictures]))
    kept_B2, turned_B = compute_kept_sizes(sizes_B2, pixels.shape), are_turned(sizes_B2, pixels.shape)
    assert pixels.shape[2:] == shape and (turned_B is None) == (shape[0] == shape[1])
    crops = centre_crops(pixels, sizes_B2, resize=8, crop=6, kept_B2=kept_B2, turned_B=turned_B)
    assert crops.dtype == torch.uint8
    for at, (stored, size, kept, crop) in enumerate(
        zip(pixels, sizes_B2.tolist(), kept_B2.tolist(), crops, strict=True)
    ):
        upright = stored[:, : kept[0], : kept[1]]
        upright = upright.mT if turned_B is not None and turned_B[at] else upright
        assert crop.tolist() == [by_hand(channel.tolist(), *size, resize=8, crop=6) for channel in upright]


def by_hand(rows: list[list[int]], width: int, height: int, *, resize: int, crop: int) -> list[list[int]]:
    resized = [resize * side // min(width, height) for side in (width, height)]
    left, top = (round(Fraction(side - crop, 2)) for side in resized)
    narrow = [[level(row, left + x, resized[0]) for x in range(crop)] for row in rows]
    columns = [list(column) for column in zip(*narrow, strict=True)]
    return [[level(column, top + y, resized[1]) for column in columns] for y in range(crop)]


def level(line: list[int], at: int, resized: int) -> int:
    """The grey level of one pixel of a line that is resized."""
    width = Fraction(len(line), resized)
    triangle = [
        max(Fraction(0), 1 - abs(at * width + width / 2 - j - Fraction(1, 2)) / max(width, 1)) for j in range(len(line))
    ]
    weights = [round(WHOLE * weight / sum(triangle)) for weight in triangle]
    total = sum(weight * grey for weight, grey in zip(weights, line, strict=True))
    return (total + WHOLE // 2) // WHOLE


def test_a_centre_of_the_size_of_the_picture_is_the_picture() -> None:
    pixels = noise(2, 3, 32, 32)
    kept_B2 = sizes((32, 32), (32, 32))
    assert torch.equal(centre_crops(pixels, kept_B2, resize=32, crop=32, kept_B2=kept_B2), pixels)


@pytest.mark.parametrize("grey", [0, 1, 127, 254, 255])
def test_a_picture_of_one_grey_level_keeps_it(grey: int) -> None:
    """Weights that are rounded need not add up to one, but nearly: nothing wraps around from white to black."""
    for size in [(500, 375), (375, 500), (333, 1000), (257, 256), (3000, 3000)]:
        crop = from_store(Image.new("RGB", size, (grey,) * 3), 384, 4 / 3)
        assert torch.equal(crop, torch.full((3, 224, 224), grey) / 255)


def test_a_small_picture_takes_the_corner_that_it_needs() -> None:
    sizes_B2 = sizes((10, 4), (4, 10), (30, 5), (5, 30), (30, 20), (9, 9))
    assert compute_kept_sizes(sizes_B2, (3, 8, 12)).tolist() == [[4, 10], [4, 10], [5, 12], [5, 12], [8, 12], [8, 9]]
    assert compute_kept_sizes(sizes_B2, (3, 8, 8)).tolist() == [[4, 8], [8, 4], [5, 8], [8, 5], [8, 8], [8, 8]]
    white = squeeze(Image.new("RGB", (4, 10), "white"), 8, 1.5)
    assert (white[:, :4, :10] == 255).all()
    assert white.sum() == 255 * 3 * 4 * 10


def test_embeddings_are_nearly_those_of_pillow() -> None:
    """By an untrained network; what the 16,000 photographs of the benchmarks say is in docs/data.md."""
    images = [natural_picture(500, 375, np.random.default_rng(seed)) for seed in range(4)]
    with use_seed(0):
        network = EmbeddingNetwork(build_backbone("small"), 16, frozen_batch_norm=True).eval()

    def embedded(crops: list[Tensor]) -> Tensor:
        with torch.no_grad():
            return network(normalise(torch.stack(crops), Network().mean, Network().std))

    theirs = embedded([by_pillow(image) for image in images])
    kept, squares = (
        (embedded([from_store(image, size, ratio) for image in images]) - theirs).abs().mean().item()
        for size, ratio in ((Data().store_size, Data().store_ratio), (288, 1.0))
    )
    print(f"mean absolute difference of embeddings {kept:.5f}, of squares of 288 pixels {squares:.5f}")
    assert kept < 0.0002
    assert kept < squares / 2


def test_normalising_is_per_channel() -> None:
    images = torch.rand((2, 3, 4, 4), generator=seeded())
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.1, 0.5)
    expected = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(normalise(images, mean, std), expected)


def test_the_whole_way_compiles_shapes_without_looking_at_values() -> None:
    """On the meta device there are no values: whatever needed one on the host would fail."""
    sizes_B2 = torch.ones((5, 2), dtype=torch.int64, device="meta")
    pixels = torch.zeros((5, 3, 40, 40), dtype=torch.uint8, device="meta")
    for name, law in AUGMENTATIONS.items():
        boxes_B4 = law(sizes_B2, resize=36, crop=32, generator=None)
        flips_B = torch.zeros(5, dtype=torch.bool, device="meta")
        images = normalise(resample(pixels, boxes_B4, 32, flips_B=flips_B), (0.5,) * 3, (0.5,) * 3)
        assert images.shape == (5, 3, 32, 32), name
    wide = torch.zeros((5, 3, 40, 50), dtype=torch.uint8, device="meta")
    for stored in (pixels, wide):
        turned_B, kept_B2 = are_turned(sizes_B2, stored.shape), compute_kept_sizes(sizes_B2, stored.shape)
        images = centre_crops(stored, sizes_B2, resize=36, crop=32, kept_B2=kept_B2, turned_B=turned_B)
        assert images.shape == (5, 3, 32, 32)
