"""Behaviour of `corrupt`: streams by position, types, sizes, errors."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import poisson

from anchored.corruptions import NAMES, corrupt, frost, glass, motion, source, spatter, suite, tables, weather
from anchored.corruptions.noise import poisson_levels
from anchored.corruptions.rng import PeerStreams, Streams
from anchored.system.errors import InputError

DETERMINISTIC = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
    "circular_motion_blur",
}
# A threshold decides between pixel and black, and float32 may fall on its other side.
JUMPS = {"blue_noise_sample"}


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Ten smooth images with some noise, 32 px."""
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((10, 3, 5, 5)))
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 1).permute(0, 2, 3, 1)
    return (smooth.numpy() * 235 + rng.random((10, 32, 32, 3)) * 20).astype(np.uint8)


@pytest.mark.parametrize("name", NAMES)
def test_result_depends_on_the_position_alone(name: str, images: np.ndarray) -> None:
    for exact in (False, True):
        whole = corrupt(images, name, 3, seed=7, index=100, exact=exact)
        parts = [corrupt(images[i : i + 3], name, 3, seed=7, index=100 + i, exact=exact) for i in range(0, 10, 3)]
        np.testing.assert_array_equal(whole, np.concatenate(parts))
    order = np.array([4, 9, 0, 7])
    np.testing.assert_array_equal(whole[order], corrupt(images[order], name, 3, seed=7, index=100 + order))
    assert whole.shape == images.shape and whole.dtype == np.uint8
    assert not np.array_equal(whole, images)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DETERMINISTIC])
def test_seed_and_position_change_random_corruptions(name: str, images: np.ndarray) -> None:
    same = np.repeat(images[:1], 6, axis=0)
    first = corrupt(same, name, 3, seed=1)
    # A permutation of three scales is all that one corruption draws.
    assert len({image.tobytes() for image in first}) >= (3 if name == "transverse_chromatic_abberation" else 5)
    assert not np.array_equal(first, corrupt(same, name, 3, seed=2))


@pytest.mark.parametrize("name", NAMES)
def test_tensors_and_arrays_agree_and_stay_untouched(name: str, images: np.ndarray) -> None:
    before = images.copy()
    array = corrupt(images[:3], name, 2, seed=0)
    tensor = corrupt(torch.from_numpy(images[:3]), name, 2, seed=0)
    assert isinstance(array, np.ndarray) and isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(array, tensor.numpy())
    strided = corrupt(images[:6:2].transpose(0, 2, 1, 3), name, 2, seed=0)
    np.testing.assert_array_equal(strided, corrupt(images[:6:2].transpose(0, 2, 1, 3).copy(), name, 2, seed=0))
    np.testing.assert_array_equal(images, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_is_at_most_one_level_off(name: str, images: np.ndarray) -> None:
    for part in (torch.from_numpy(images), torch.from_numpy(images[:, :24])):
        on_cpu = corrupt(part, name, 3, seed=0)
        on_gpu = corrupt(part.cuda(), name, 3, seed=0)
        assert on_gpu.is_cuda
        difference = (on_cpu.int() - on_gpu.cpu().int()).abs()
        assert difference.max() <= 1 and (difference > 0).double().mean() <= 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_fast_mode_stays_within_one_level(name: str, images: np.ndarray) -> None:
    for severity in range(1, 6):
        exact = corrupt(images, name, severity, seed=3).astype(int)
        fast = corrupt(images, name, severity, seed=3, exact=False).astype(int)
        difference = np.abs(exact - fast)
        assert (difference > 1).mean() <= (1e-4 if name in JUMPS else 0)
        assert (difference > 0).mean() <= (0.12 if name == "saturate" else 0.04)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", [8, 50])
def test_grey_images_and_other_sizes(name: str, side: int, images: np.ndarray) -> None:
    resized = np.kron(images[:2, :, :, :1], np.ones((1, 2, 2, 1), np.uint8))[:, :side, :side]
    out = corrupt(resized, name, 4, seed=0)
    assert out.shape == (2, side, side, 1) and out.dtype == np.uint8
    rgb = corrupt(np.repeat(resized, 3, axis=3), name, 4, seed=0)
    assert rgb.shape == (2, side, side, 3)
    # A corruption that treats channels alike does the same to the grey image.
    if name in DETERMINISTIC - {"saturate", "jpeg_compression"}:
        np.testing.assert_array_equal(out[..., 0], rgb[..., 1])


@pytest.mark.parametrize("name", NAMES)
def test_every_table_on_tiny_and_odd_images(name: str, images: np.ndarray) -> None:
    """Strengths made for 299 px on 8 px: strong, but defined."""
    for side in (8, 29):
        for table in tables.SIDES:
            for exact in (True, False):
                out = corrupt(images[:2, :side, :side], name, 5, seed=1, table=table, exact=exact)
                assert out.shape == (2, side, side, 3)


def test_read_only_and_memory_mapped_arrays(images: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    np.testing.assert_array_equal(corrupt(mapped, "fog", 2, seed=0), corrupt(images, "fog", 2, seed=0))


def test_transposing_commutes_with_separable_corruptions(images: np.ndarray) -> None:
    wide = images[:2, :20]
    for name in ("gaussian_blur", "pixelate", "defocus_blur"):
        turned = corrupt(wide.transpose(0, 2, 1, 3), name, 3, seed=0, table="cifar").transpose(0, 2, 1, 3)
        straight = corrupt(wide, name, 3, seed=0, table="cifar").astype(int)
        assert np.abs(straight - turned).max() <= 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((0, 32, 32, 3), np.uint8), "length 0"),
        (np.zeros((2, 32, 32, 3), np.float32), "float32"),
        (torch.zeros(2, 32, 32, 3), "float32"),
        (np.zeros((32, 32, 3), np.uint8), r"\[32, 32, 3\]"),
        (np.zeros((2, 3, 32, 32), np.uint8), "channels come last"),
        (np.zeros((2, 7, 32, 3), np.uint8), "at least 8"),
        (np.zeros((2, 1, 1, 3), np.uint8), "at least 8"),
        ([[1, 2], [3, 4]], "list"),
    ],
)
def test_bad_images(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        corrupt(value, "contrast", 1, seed=0)  # type: ignore[type-var]


def test_bad_options(images: np.ndarray) -> None:
    for severity in (0, 6, 1.0, True, "3"):
        with pytest.raises(InputError, match="severity"):
            corrupt(images, "contrast", severity, seed=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Did you mean 'gaussian_noise'"):
        corrupt(images, "gausian_noise", 1, seed=0)
    with pytest.raises(InputError, match="Did you mean 'imagenet'"):
        corrupt(images, "contrast", 1, seed=0, table="imagnet")
    with pytest.raises(InputError, match="index"):
        corrupt(images, "contrast", 1, seed=0, index=-1)
    with pytest.raises(InputError, match="index"):
        corrupt(images, "contrast", 1, seed=0, index=[1, 2])
    with pytest.raises(InputError, match="Did you mean 'zoom_blur'"):
        suite("zoomblur")
    with pytest.raises(InputError, match="needs a table"):
        suite("c-bar")


def test_suites() -> None:
    """19, 15 of them for the mean corruption error, and two lists of ten that share five."""
    assert len(suite("c")) == 19 and suite("c-mce") == suite("c")[:15]
    assert suite("c")[0] == "gaussian_noise" and suite("c")[14:16] == ("jpeg_compression", "speckle_noise")
    cifar, imagenet = suite("c-bar", table="cifar"), suite("c-bar", table="imagenet")
    assert len(cifar) == len(imagenet) == 10 and len({*cifar} & {*imagenet}) == 5
    assert suite("c-bar", table="tiny") == cifar and suite("c-bar", table="inception") == imagenet
    assert set(NAMES) == {*suite("c"), *cifar, *imagenet} and len(NAMES) == 34
    assert suite("fog") == ("fog",)


def test_tables_by_size_and_by_name(images: np.ndarray) -> None:
    """At 32 px the default is the `cifar` table; the `imagenet` one is far stronger."""
    default = corrupt(images, "gaussian_blur", 3, seed=0)
    np.testing.assert_array_equal(default, corrupt(images, "gaussian_blur", 3, seed=0, table="cifar"))
    spread = [
        corrupt(images, "gaussian_blur", 3, seed=0, table=table).astype(float).std(axis=(1, 2)).mean()
        for table in ("cifar", "tiny", "imagenet", "inception")
    ]
    assert all(a > b for a, b in itertools.pairwise(spread))


def test_blur_width_scales_with_the_side() -> None:
    """The image twice as large, blurred, is the blurred image twice as large."""
    step = np.zeros((1, 64, 64, 1), np.uint8)
    step[:, :, 32:] = 255
    small = corrupt(step[:, ::2, ::2], "gaussian_blur", 5, seed=0, table="cifar")[0, 16, :, 0].astype(float)
    large = corrupt(step[:, :44, 10:54], "gaussian_blur", 5, seed=0)[0, 22, :, 0].astype(float)

    # 44 px use the 32 px table with sigma * 44 / 32: the same width in units of the side.
    def width(row: np.ndarray) -> float:
        slope = np.diff(row)
        centre = (slope * np.arange(len(slope))).sum() / slope.sum()
        return float(np.sqrt((slope * (np.arange(len(slope)) - centre) ** 2).sum() / slope.sum()))

    assert width(large) / width(small) == pytest.approx(44 / 32, rel=0.05)


def test_streams_are_uniform_normal_and_independent() -> None:
    draws = Streams(3, "x", 1, np.arange(400), torch.device("cpu"))
    uniform = draws.uniform(50, 50).double()
    n = uniform.numel()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 5 / (12 * n) ** 0.5
    assert abs(uniform.var() - 1 / 12) < 5 * (1 / 180 / n) ** 0.5
    normal = draws.normal(50, 51).double()
    n = normal.numel()
    assert abs(normal.mean()) < 5 / n**0.5
    assert abs(normal.var() - 1) < 5 * (2 / n) ** 0.5
    assert abs((normal**4).mean() - 3) < 5 * (96 / n) ** 0.5
    # Neighbouring streams, and the two halves of a Box-Muller pair, are uncorrelated.
    flat = normal.flatten(1)
    for a, b in ((flat[:-1], flat[1:]), (flat[:, :1275], flat[:, 1275:]), (flat[:, :-1], flat[:, 1:])):
        assert abs((a * b).mean()) < 5 / a.numel() ** 0.5
    integers = draws.integers(-2, 3, 1000)
    counts = torch.bincount(integers.flatten() + 2, minlength=5).double()
    assert counts.shape == (5,) and ((counts - 80000) ** 2 / 80000).sum() < 25


@pytest.mark.parametrize("rate", [3, 12, 500])
def test_shot_noise_by_inversion_has_the_poisson_distribution(rate: float) -> None:
    """A chi-squared test over the levels, which several counts may share."""
    n = 100_000
    draws = Streams(0, "poisson", 1, np.arange(1), torch.device("cpu"))
    for level in (0, 1, 40, 255):
        out = poisson_levels(torch.full((1, n), level, dtype=torch.uint8), rate, draws.uniform(n))
        observed = np.bincount(out.flatten().numpy(), minlength=256)
        counts = np.arange(int(rate + 20 * rate**0.5 + 50))
        levels = (np.minimum(counts / rate, 1) * 255).astype(int)
        expected = n * np.bincount(levels, poisson.pmf(counts, level / 255 * rate), minlength=256)
        assert (observed[expected == 0] == 0).all()
        large = expected > 20
        chi2 = ((observed - expected)[large] ** 2 / expected[large]).sum()
        assert chi2 < large.sum() + 5 * (2 * large.sum()) ** 0.5


def test_frost_textures_are_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: np.ndarray
) -> None:
    """A named folder, else the data of an installed package (never imported), else procedural textures."""
    package = tmp_path / "imagecorruptions"
    (package / "frost").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert source("frost") == "generated, procedural frost"
    assert source("fog") == "generated"
    with pytest.raises(InputError, match=r"lacks frost1\.png"):
        corrupt(images, "frost", 1, seed=0, frost_dir=package / "frost")
    for i, name in enumerate(("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")):
        Image.fromarray(np.full((200, 200, 3), 40 * i + 20, np.uint8)).save(package / "frost" / name)
    assert source("frost") == "generated, official frost"
    out = corrupt(np.zeros((40, 32, 32, 3), np.uint8), "frost", 1, seed=0)
    # Severity 1 adds 0.2 of a texture; over black images the five levels show.
    assert {int(level) for level in np.unique(out)} == {4, 12, 20, 28, 36}


def test_procedural_frost_has_the_tones_of_frost() -> None:
    """Bluish textures of middle to high brightness, more contrast at low frequencies than at high ones."""
    for texture in frost.textures(frost.PROCEDURAL, 1.0, 224, 224):
        pixels = texture.double()
        red, green, blue = pixels.mean((0, 1))
        assert red < green < blue and 60 < pixels.mean() < 220
        grey = pixels.mean(-1)
        assert 10 < grey.std() < 50
        fine = (grey[:, 1:] - grey[:, :-1]).std() / grey.std()
        assert 0.05 < fine < 0.9


def test_frost_textures_grow_with_the_image() -> None:
    for height, width in ((700, 500), (40, 900)):
        for texture in frost.textures(frost.PROCEDURAL, 0.2, height, width):
            assert texture.shape[0] > height and texture.shape[1] > width


def test_chamfer_distance_against_brute_force() -> None:
    """The least cost over sums of the 16 steps, found by relaxation until nothing changes."""
    rng = np.random.default_rng(1)
    edges = torch.from_numpy(rng.random((3, 23, 31)) < 0.004)
    edges[2] = False
    steps = [(s * dy, s * dx, cost) for dy, dx, cost in spatter._STEPS for s in (1, -1)]
    padded = torch.full((3, 27, 35), 10**9, dtype=torch.int64)
    padded[:, 2:-2, 2:-2][edges] = 0
    for _ in range(60):
        around = [padded[:, 2 + dy : 25 + dy, 2 + dx : 33 + dx] + cost for dy, dx, cost in steps]
        padded[:, 2:-2, 2:-2] = torch.minimum(padded[:, 2:-2, 2:-2], torch.stack(around).amin(0))
    expected = padded[:, 2:-2, 2:-2].clamp(max=20 << 16)
    assert torch.equal(spatter.chamfer(edges).long(), expected)


def test_glass_displacement_equals_the_sequential_loop() -> None:
    """The parallel form against the loop of the reference, pixel by pixel, with offsets that chain."""
    height, width, reach = 14, 17, 3
    values = np.arange(height * width)
    for seed in range(5):
        state = np.random.RandomState(seed)
        expected = values.reshape(height, width).copy()
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                dx, dy = state.randint(-reach, reach, size=(2,))
                expected[row, column] = expected[row + dy, column + dx]
        draws = PeerStreams([seed], torch.device("cpu"))
        source = glass.displacement(draws, height, width, reach)
        np.testing.assert_array_equal(source.numpy().reshape(height, width), expected)


def test_own_glass_offsets_are_uniform() -> None:
    """Every offset of -reach..reach-1 on both axes comes equally often."""
    reach, side = 2, 40
    source = glass.displacement(Streams(0, "g", 1, np.arange(200), torch.device("cpu")), side, side, reach)
    # The first pixel of the pass never meets an overwritten neighbour further on, except beyond the region.
    start = (side - reach) * side + side - reach
    offset = source.view(200, -1)[:, start] - start - torch.arange(200) * side * side
    row = torch.div(offset + reach * side + reach, side, rounding_mode="floor") - reach
    column = offset - row * side
    assert set(row.tolist()) == set(range(-reach, reach)) and set(column.tolist()) == set(range(-reach, reach))
    counts = torch.bincount((row + reach) * 2 * reach + column + reach, minlength=16).double()
    assert ((counts - 12.5) ** 2 / 12.5).sum() < 45


def test_motion_blur_of_a_point_is_a_one_sided_half_gaussian() -> None:
    point = torch.zeros(1, 41, 41, 1, dtype=torch.uint8)
    point[0, 20, 20] = 255
    blurred = motion.motion(point, 6, 3, np.array([0.0]), exact=True)[0, :, :, 0] - 0.5 / 257
    weights = np.exp(-(np.arange(13) ** 2) / 18)
    # The taps look to the right, so the trace runs to the left.
    np.testing.assert_allclose(blurred[20, 8:21].numpy(), 255 * weights[::-1] / weights.sum(), atol=1e-9)
    assert blurred.sum() == pytest.approx(255)


def test_plasma_fills_the_unit_interval_and_falls_with_the_decay() -> None:
    uniform = Streams(0, "p", 1, np.arange(50), torch.device("cpu")).uniform(64 * 64 - 1).double()
    rough, smooth = (weather.plasma(uniform, 64, decay) for decay in (1.4, 3.0))
    for field in (rough, smooth):
        assert torch.equal(field.amin((1, 2)), torch.zeros(50, dtype=torch.float64)) and torch.equal(
            field.amax((1, 2)), torch.ones(50, dtype=torch.float64)
        )
    assert rough.diff(dim=2).abs().mean() > 2 * smooth.diff(dim=2).abs().mean()
