"""Images that are not square: every corruption, nothing stretched, nothing left out; square ones as ever."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fixtures import ROOT
from test_golden import same_machine

from anchored.corruptions import NAMES, bar_noise, bar_overlay, bar_warp, blur, corrupt, elastic, source, suite, tables
from anchored.corruptions.job import Corruption, Job
from anchored.corruptions.rng import PeerStreams, Streams

CPU = torch.device("cpu")
SHAPES = [(8, 9), (9, 31), (31, 9), (64, 8), (8, 64), (17, 40), (9, 9), (23, 23)]
# What is added to or taken from every pixel, or from some everywhere.
NOISES = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "snow", "frost", "fog"),
    *("blue_noise_sample", "brownish_noise", "cocentric_sine_waves", "perlin_noise", "plasma_noise"),
    "single_frequency_greyscale",
)


def photo(height: int, width: int, count: int = 1, channels: int = 3) -> np.ndarray:
    """Smooth pictures with some noise, the pixels equally coarse in both directions, uint8 [count, H, W, channels]."""
    rng = np.random.default_rng(height * 1000 + width)
    coarse = torch.from_numpy(rng.random((count, channels, 2 + height // 8, 2 + width // 8)))
    smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bilinear").permute(0, 2, 3, 1)
    return (smooth.numpy() * 235 + rng.random((count, height, width, channels)) * 20).astype(np.uint8)


# --- every size ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_any_shape_gives_the_same_alone_and_in_a_batch(name: str, exact: bool) -> None:
    for shape in SHAPES:
        images = photo(*shape, count=3)
        for severity in range(1, 6):
            whole = corrupt(images, name, severity, seed=1, index=4, exact=exact)
            assert whole.shape == images.shape and whole.dtype == np.uint8
            alone = corrupt(images[1:2], name, severity, seed=1, index=5, exact=exact)
            np.testing.assert_array_equal(alone[0], whole[1])
        tensor = corrupt(torch.from_numpy(images), name, 5, seed=1, index=4, exact=exact)
        np.testing.assert_array_equal(tensor.numpy(), whole)
        official = corrupt(images, name, 3, seed=0, peer_seeds=[1, 2, 1], exact=exact)
        assert official.shape == images.shape


@pytest.mark.parametrize("name", NAMES)
def test_any_shape_in_grey_and_of_one_level(name: str) -> None:
    """Constant images come out without a warning (a division by zero, a NaN), and grey ones as their RGB form."""
    for shape in SHAPES:
        for level in (0, 128, 255):
            for severity in (1, 5):
                for exact in (True, False):
                    corrupt(np.full((1, *shape, 3), level, np.uint8), name, severity, seed=0, exact=exact)
        grey = photo(*shape, channels=1)
        assert corrupt(grey, name, 4, seed=0).shape == grey.shape
        assert corrupt(np.repeat(grey, 3, axis=3), name, 4, seed=0).shape == (1, *shape, 3)


@pytest.mark.parametrize("shape", [(375, 500), (500, 375), (224, 300), (301, 225)])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_photographs(name: str, shape: tuple[int, int]) -> None:
    images = photo(*shape)
    out = corrupt(images, name, 3, seed=0, exact=False)
    assert out.shape == images.shape and not np.array_equal(out, images)


@pytest.mark.parametrize("name", NAMES)
def test_exact_and_fast_agree_on_any_shape(name: str) -> None:
    for shape in ((17, 40), (64, 33), (30, 24)):
        images = photo(*shape, count=2)
        exact, fast = (corrupt(images, name, 4, seed=2, exact=mode).astype(int) for mode in (True, False))
        difference = np.abs(exact - fast)
        # A threshold decides between a pixel and black.
        assert (difference > 1).mean() <= (1e-3 if name == "blue_noise_sample" else 0)
        assert (difference > 0).mean() <= (0.12 if name == "saturate" else 0.04)


def test_square_images_keep_their_bits() -> None:
    """Against results from before other shapes were possible: both modes, an odd side and an even one."""
    with np.load(ROOT / "tests" / "golden" / "square_corruptions.npz") as file:
        before = dict(file)
    assert len(before) == 2 * (len(NAMES) - 1)  # all but JPEG, which is Pillow's
    for key, expected in before.items():
        side, name = int(key.split("/")[0]), key.split("/")[1]
        if name == "frost" and source("frost") != "generated, procedural frost":
            continue
        rows, columns = np.mgrid[:side, :side]
        planes = [rows * 251 // side, columns * 251 // side, (rows * 37 + columns * 91) % 256]
        image = np.stack(planes, -1).astype(np.uint8)[None]
        severities = (1, 5) if side == 13 else (4,)
        got = np.concatenate(
            [corrupt(image, name, s, seed=5, index=3, exact=exact) for exact in (True, False) for s in severities]
        )
        if same_machine():
            np.testing.assert_array_equal(got, expected, err_msg=key)
        # On another processor sums are taken in another order, and a value that is an integer may fall below it.
        assert (got != expected).mean() < 0.05, key


# --- nothing left out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(24, 96), (96, 24), (25, 71)])
@pytest.mark.parametrize("name", NOISES)
def test_noise_reaches_every_part_of_an_image(name: str, shape: tuple[int, int]) -> None:
    """Of every 8 x 8 pixels some change in every single image, and the two ends change as much as each other."""
    grey = np.full((30, *shape, 3), 100, np.uint8)
    grey[:, ::2, ::2] = 130
    change = np.abs(corrupt(grey, name, 5, seed=3).astype(int) - grey).max(axis=3)
    height, width = shape
    for top in (*range(0, height - 7, 8), height - 8):
        for left in (*range(0, width - 7, 8), width - 8):
            assert (change[:, top : top + 8, left : left + 8].max(axis=(1, 2)) > 0).all(), (top, left)
    long = change.swapaxes(1, 2) if height > width else change
    third = max(shape) // 3
    assert 0.75 < long[:, :, :third].mean() / long[:, :, -third:].mean() < 1.33


@pytest.mark.parametrize("shape", [(24, 90), (90, 24)])
@pytest.mark.parametrize("name", NAMES)
def test_no_corruption_leaves_a_part_alone(name: str, shape: tuple[int, int]) -> None:
    """Over 60 images every 6 x 6 pixels change in some of them, whatever the corruption."""
    images = np.repeat(np.random.default_rng(0).integers(0, 256, (1, *shape, 3), dtype=np.uint8), 60, axis=0)
    changed = (corrupt(images, name, 5, seed=0, exact=False) != images).any(axis=(0, 3))
    blocks = changed.reshape(shape[0] // 6, 6, shape[1] // 6, 6).any(axis=(1, 3))
    assert blocks.all(), np.argwhere(~blocks).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_wide_and_tall_images_are_corrupted_alike(name: str) -> None:
    """The same picture lying and standing changes as much in the mean, and about as much as a square one."""
    wide = np.repeat(photo(32, 96), 150, axis=0)
    tall = wide.swapaxes(1, 2).copy()
    square = np.repeat(photo(32, 96)[:, :, 32:64], 150, axis=0)
    lying, standing, small = (
        np.abs(corrupt(images, name, 3, seed=1, exact=False).astype(int) - images).mean()
        for images in (wide, tall, square)
    )
    # Blurs and flakes have a direction of their own.
    assert lying == pytest.approx(standing, rel=0.35 if name in ("motion_blur", "snow") else 0.15)
    # Zooms and rotations move pixels the more, the further from the centre they are.
    assert 0.65 < lying / small < 2


# --- nothing stretched ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(20, 52), (52, 20)])
@pytest.mark.parametrize(
    ("function", "strength"),
    [
        (bar_noise.plasma_noise, 8.5),
        (bar_noise.perlin_noise, 5.8),
        (bar_noise.single_frequency_greyscale, 2),
        (bar_overlay.checkerboard_cutout, 4),
        (bar_warp.ripple, 6.5),
        (bar_warp.caustic_refraction, 2.35),
    ],
)
def test_a_pattern_is_that_of_the_square_continued(
    function: Corruption, strength: float, shape: tuple[int, int]
) -> None:
    """On the same random numbers the upper left square of a long image is a corrupted square, but for its border."""
    images = torch.from_numpy(photo(*shape, count=20))

    def run(part: torch.Tensor) -> np.ndarray:
        return function(part, Job(strength, Streams(3, "x", 1, np.arange(20), CPU))).numpy().astype(int)

    part, square = run(images)[:, :12, :12], run(images[:, :20, :20].contiguous())[:, :12, :12]
    assert np.abs(part - square).max() <= 1 and (part != square).mean() < 0.01


def test_a_zoom_enlarges_both_axes_about_the_centre() -> None:
    """On a ramp every pixel shows where it came from: the same factor down and across, the centre in place."""
    height, width, zoom = 31, 81, 1.25
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    ramp = torch.stack([rows, columns], -1).double()
    for axis, size in enumerate((height, width)):
        moved = blur.clipped_zoom(ramp, zoom)[..., axis].movedim(axis, 0)
        place = moved.mean(1) - (size - 1) / 2
        torch.testing.assert_close(moved, moved[:, :1].expand_as(moved))  # rows and columns stay straight
        slope = (place[-1] - place[0]) / (size - 1)
        assert float(slope) == pytest.approx(1 / zoom, rel=0.03)
        assert abs(float(place.mean())) <= 0.5
        assert place[0] >= -(size - 1) / 2 and place[-1] <= (size - 1) / 2  # nothing from outside


def test_zoom_blur_as_one_matrix_equals_the_zooms_one_by_one() -> None:
    """Also where the shorter axis is too short for a small factor to change it."""
    for shape in ((8, 64), (64, 8), (21, 50)):
        image = photo(*shape)
        factors = tables.parameters("zoom_blur", 2, "cifar")
        operator = blur._zoom_operator(*shape, factors).to_dense().double()
        pixels = torch.from_numpy(image[0].reshape(-1, 3)).double()
        zooms = [blur.clipped_zoom(torch.from_numpy(image[0]).double(), zoom).reshape(-1, 3) for zoom in factors]
        expected = (pixels + torch.stack(zooms).sum(0)) / (len(factors) + 1)
        torch.testing.assert_close(operator @ pixels, expected, atol=1e-3, rtol=0)


def test_an_affine_map_is_about_the_centre_of_the_image() -> None:
    """Three corners moved away from the centre enlarge the image about it, whatever its shape."""
    for height, width in ((40, 40), (30, 90), (90, 30)):
        centre, reach = np.array([width // 2, height // 2], np.float32), min(height, width) // 3
        corners = np.array([[reach, reach], [reach, -reach], [-reach, -reach]], np.float32)
        (matrix,) = elastic.affine_maps(height, width, corners[None] * 0.5)
        np.testing.assert_allclose(matrix @ np.array([*centre, 1]), centre, atol=1e-9)
        np.testing.assert_allclose(matrix[:, :2], np.eye(2) / 1.5, atol=1e-9)


@pytest.mark.parametrize("shape", [(8, 9), (8, 64), (9, 31), (32, 32), (224, 224), (224, 300), (375, 500), (30, 299)])
def test_cells_are_whole_nearly_square_and_leave_almost_nothing(shape: tuple[int, int]) -> None:
    number, size = bar_warp._cells(*shape)
    few = 5 if min(shape) == 224 else 3
    assert number[int(np.argmin(shape))] == few
    for pixels, count, length in zip(shape, number, size, strict=True):
        assert 0 <= pixels - count * length < max(few, min(count, length))
    assert 0.6 < size[0] / size[1] < 1.6
    turned = bar_warp._cells(*shape[::-1])
    assert turned == (number[::-1], size[::-1])


def test_a_pinch_ends_at_the_border_of_its_ellipse() -> None:
    """Pixels outside the discs stay, those inside move by less than a cell, and the middle of a disc not at all."""
    height, width = 24, 56
    number, (deep, wide) = bar_warp._cells(height, width)
    places = bar_warp._twirled(height, width, 8.0, torch.float64).numpy()
    rows, columns = np.mgrid[:height, :width]
    down, right = ((rows % deep) / deep - 0.5) * 2, ((columns % wide) / wide - 0.5) * 2
    distance = np.where((rows < number[0] * deep) & (columns < number[1] * wide), np.hypot(down, right), 9)
    for sign in places:
        moved = np.maximum(np.abs(sign[0] - rows), np.abs(sign[1] - columns))
        assert (moved[distance > 1.01] == 0).all() and (moved[(distance > 0.2) & (distance < 0.8)] > 0).all()
        assert moved[distance == 0].max() < 1e-9 and moved.max() < max(deep, wide)


@pytest.mark.parametrize("name", ["sparkles", "inverse_sparkles"])
def test_stars_cover_the_same_part_of_any_shape(name: str) -> None:
    share = []
    for shape in ((64, 64), (48, 85), (85, 48), (32, 128)):
        black = np.zeros((150, *shape, 3), np.uint8)
        out = corrupt(black, name, 5, seed=0, table="imagenet", exact=False).astype(float)
        share.append((out if name == "sparkles" else 255 - out).mean())
    assert max(share) / min(share) < 1.35


def test_strengths_go_by_the_shorter_side() -> None:
    """A long image has the table and the widths of a square as high as it."""
    step = np.zeros((1, 40, 120, 3), np.uint8)
    step[:, :, 20:] = 200
    for name in ("gaussian_blur", "defocus_blur"):
        long, square = corrupt(step, name, 5, seed=0), corrupt(step[:, :, :40].copy(), name, 5, seed=0)
        np.testing.assert_array_equal(long[:, :, :30], square[:, :, :30])
    assert tables.choose(None, 40, 900) == tables.choose(None, 900, 40) == tables.choose(None, 40, 40)


def test_every_suite_takes_official_random_numbers_on_any_shape() -> None:
    """The generator of the official codes has no result to compare with here: the same seed gives the same image."""
    images = photo(12, 20, count=2)
    for name in (*suite("c"), *suite("c-bar", table="cifar"), *suite("c-bar", table="imagenet")):
        first, second = (corrupt(images[[0, 0]], name, 3, seed=0, peer_seeds=[7, 7]) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first[0], first[1])
    assert PeerStreams([1], CPU).uniform(2, 3).shape == (1, 2, 3)
