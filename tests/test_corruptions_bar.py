"""The mathematics of C-bar: each corruption against a slow or closed form of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from anchored.corruptions import bar_noise, bar_overlay, bar_warp, corrupt
from anchored.corruptions.job import Job
from anchored.corruptions.resample import sample
from anchored.corruptions.rng import PeerStreams, Streams

CPU = torch.device("cpu")


def streams(count: int, name: str = "x") -> Streams:
    return Streams(5, name, 1, np.arange(count), CPU)


@pytest.mark.parametrize("shape", [(20, 20), (20, 33), (31, 12)])
def test_rotation_blur_of_one_angle_equals_scipy(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    image = rng.random(shape)
    down, across = (bar_warp._spline_prefilter(size).numpy() for size in shape)
    index, weight = bar_warp._rotation(*shape, 7.3)
    ours = ((down @ image @ across.T).ravel()[index] * weight).sum(1).reshape(shape)
    np.testing.assert_allclose(ours, ndimage.rotate(image, 7.3, reshape=False), atol=1e-12)


@pytest.mark.parametrize("shape", [(32, 32), (25, 40)])
@pytest.mark.parametrize("scale", [1.0, 1.05, 1.225, 1.5])
def test_fringe_matrix_equals_scipy_zoom_without_prefilter(scale: float, shape: tuple[int, int]) -> None:
    height, width = shape
    rng = np.random.default_rng(1)
    image = rng.random(shape)
    zoomed = ndimage.zoom(image, scale, prefilter=False)
    top, left = ((large - small) // 2 for large, small in zip(zoomed.shape, shape, strict=True))
    down, across = (bar_warp._fringe_matrix(size, scale).double().numpy() for size in shape)
    np.testing.assert_allclose(down @ image @ across.T, zoomed[top:, left:][:height, :width], atol=1e-6)


def test_samples_are_bilinear_and_black_outside() -> None:
    rng = np.random.default_rng(2)
    images = torch.from_numpy(rng.integers(0, 256, (3, 9, 9, 3), dtype=np.uint8))
    rows, columns = torch.from_numpy(rng.uniform(-3, 12, (2, 3, 9, 9)))
    got = sample(images, rows, columns)
    padded = np.pad(images.numpy().astype(float), ((0, 0), (9, 9), (9, 9), (0, 0)))
    for i in range(3):
        place = np.stack([rows[i], columns[i]]) + 9
        for c in range(3):
            expected = ndimage.map_coordinates(padded[i, :, :, c], place, order=1)
            np.testing.assert_allclose(got[c, i], expected, atol=1e-9)


def _line_by_error_term(row: int, column: int, last_row: int, last_column: int) -> dict[tuple[int, int], float]:
    """Zingl's anti-aliased line, step by step with its error term."""
    down, across = abs(last_row - row), abs(last_column - column)
    step_row, step_column = (1 if row < last_row else -1), (1 if column < last_column else -1)
    error, unit = across - down, math.hypot(across, down)
    out = {}
    while True:
        out[row, column] = 1 - abs(error - across + down) / unit
        kept, old_column = error, column
        if 2 * kept >= -across:
            if column == last_column:
                return out
            if kept + down < unit:
                out[row + step_row, column] = 1 - abs(kept + down) / unit
            error -= down
            column += step_column
        if 2 * kept <= down:
            if row == last_row:
                return out
            if across - kept < unit:
                out[row, old_column + step_column] = 1 - abs(across - kept) / unit
            error += across
            row += step_row


@pytest.mark.parametrize("shape", [(24, 24), (16, 36), (36, 16)])
def test_lines_equal_the_stepwise_algorithm(shape: tuple[int, int]) -> None:
    """The closed form per column against the sequential walk, on the same random numbers."""
    strength, count = 2.1, 30
    height, width = shape
    reach = max(shape)
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (count, *shape, 3), dtype=np.uint8)
    got = bar_overlay.lines(torch.from_numpy(images), Job(strength, PeerStreams(range(count), CPU))).numpy()
    for i in range(count):
        state = np.random.RandomState(i)
        angle, variation = state.uniform(0, 2 * np.pi), state.uniform(0.1, 1)
        child = np.random.RandomState(state.randint(0, 2**32))
        out = images[i].copy()
        for _ in range(int(strength / 10 * 24)):  # 24 = sqrt(height * width) in all three
            x, y = height * child.uniform(), width * child.uniform()
            turned = angle + 2 * np.pi * variation * (child.uniform() - 0.5)
            dx, dy = np.cos(turned) * reach, np.sin(turned) * reach
            for (r, c), v in _line_by_error_term(int(x - dx), int(y - dy), int(x + dx), int(y + dy)).items():
                if 0 <= r < height and 0 <= c < width:
                    out[r, c] = ((1 - v) * out[r, c] + v * 128).astype(np.uint8)
        np.testing.assert_array_equal(got[i], out)


def test_perlin_noise_by_matrices_equals_the_pixel_formula() -> None:
    """Two matrix products against gradient noise evaluated at single pixels."""
    side = 32
    gradient, order = bar_noise._perlin_tables(streams(1))
    grad, perm = gradient[0].numpy(), order[0].numpy()
    assert np.allclose(np.linalg.norm(grad, axis=1), 1) and sorted(perm) == list(range(256))

    def noise(x: float, y: float) -> float:
        i, j = int(x), int(y)
        u, v = x - i, y - j
        corner = [
            [
                (u - a) * grad[perm[(perm[(i + a) % 256] + j + b) % 256]][0]
                + (v - b) * grad[perm[(perm[(i + a) % 256] + j + b) % 256]][1]
                for b in (0, 1)
            ]
            for a in (0, 1)
        ]
        su, sv = u * u * (3 - 2 * u), v * v * (3 - 2 * v)
        top, bottom = (corner[0][b] * (1 - su) + corner[1][b] * su for b in (0, 1))
        return 1.5 * (top * (1 - sv) + bottom * sv)

    grey = torch.full((1, side, side, 1), 0, dtype=torch.uint8)
    got = bar_noise.perlin_noise(grey, Job(20.0, streams(1)))[0, :, :, 0]
    period = 32 * side / 224
    for row, column in ((0, 0), (3, 17), (31, 31), (12, 5)):
        turbulence = sum(abs(noise(row / period * f, column / period * f)) / f for f in (1, 2, 4, 8, 16))
        assert abs(int(got[row, column]) - int(255 * min(0.5 * turbulence + 0.5, 1))) <= 1


@pytest.mark.parametrize("shape", [(16, 16), (17, 17), (16, 32), (33, 17), (16, 51), (32, 17)])
def test_fourier_noise_has_unit_variance_and_the_shape_of_its_power(shape: tuple[int, int]) -> None:
    radius = bar_noise._radius(*shape)
    noise = bar_noise.fourier_noise(streams(300), 2, radius, exact=True)
    assert noise.shape == (300, 2, *shape)
    assert torch.allclose(noise.std(dim=(-2, -1), correction=0), torch.ones(300, 2, dtype=torch.float64))
    spectrum = torch.fft.fftshift(torch.fft.fft2(noise).abs().square().mean((0, 1)))
    down, right = (size // 2 for size in shape)
    # Blue: the power grows with the square of the frequency, along both axes alike.
    low, high = spectrum[down, right + 1], spectrum[down, right + 6]
    assert 20 < high / low < 50
    steps = [round(size / 4) for size in shape]
    assert 0.7 < spectrum[down + steps[0], right] / spectrum[down, right + steps[1]] < 1.4
    assert torch.corrcoef(torch.stack([noise[:, 0].flatten(), noise[:, 1].flatten()]))[0, 1].abs() < 0.02


def test_single_frequency_is_a_plane_wave() -> None:
    draws = streams(3)
    first, second, swap, phase = draws.uniform(4).double().unbind(1)
    grey = torch.full((3, 20, 20, 3), 128, dtype=torch.uint8)
    got = bar_noise.single_frequency_greyscale(grey, Job(2.0, streams(3)))
    for i in range(3):
        one = float(first[i]) * 2 * math.pi - math.pi
        two = float(second[i]) * 2 * abs(one) - abs(one)
        fx, fy = (one, two) if swap[i] >= 0.5 else (two, one)
        x, y = np.meshgrid(np.arange(20), np.arange(20))
        wave = 128 + 39.2 * np.sin(x * fx + y * fy + float(phase[i]) * 2 * math.pi)
        np.testing.assert_array_equal(got[i, :, :, 0].numpy(), wave.astype(np.uint8))


def test_checkerboard_covers_its_share() -> None:
    """Half the tiles are candidates, each grey with probability s / 10."""
    white = np.full((400, 32, 32, 3), 255, np.uint8)
    for severity in (1, 5):
        out = corrupt(white, "checkerboard_cutout", severity, seed=0, table="cifar")
        assert set(np.unique(out)) == {128, 255}
        share = (out[..., 0] == 128).mean(axis=(1, 2))
        assert share.mean() == pytest.approx(0.5 * severity / 10, abs=5 * share.std() / 20)


def test_pinch_leaves_the_corners_of_the_cells() -> None:
    rng = np.random.default_rng(4)
    images = rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    out = corrupt(images, "pinch_and_twirl", 5, seed=0)
    kept = (out == images).all(axis=(0, 3))
    assert kept[30:].all() and kept[:, 30:].all()  # three cells of 10 px leave two rows and columns
    assert kept[0, 0] and kept[0, 10] and kept[10, 10]
    assert not kept[5, 3] and not kept[15, 18]


def test_inverse_sparkles_are_white_far_from_the_centre() -> None:
    black = np.zeros((50, 64, 64, 3), np.uint8)
    out = corrupt(black, "inverse_sparkles", 5, seed=0, table="imagenet").astype(float)
    centre = out[:, 24:40, 24:40].mean()
    corner = out[:, [0, 0, -1, -1], [0, -1, 0, -1]].mean()
    assert centre < 90 and corner > 200


def test_ripple_of_a_ramp_shows_its_displacement() -> None:
    """On a linear ramp, bilinear samples return the displaced coordinate itself."""
    ramp = np.broadcast_to((np.arange(32) * 6)[:, None, None], (20, 32, 32, 3)).astype(np.uint8)
    out = corrupt(ramp, "ripple", 3, seed=2).astype(float)
    shift = out[:, 6:26, 6:26] / 6 - np.arange(6, 26)[:, None, None]
    amplitude = 0.0025 * 6.5 * 32
    assert np.abs(shift).max() <= amplitude + 0.2
    assert np.abs(shift).max() > 0.7 * amplitude
    assert shift.std(axis=2).max() < 0.05  # rows move as a whole


def test_rotations_one_by_one_equal_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (2, 20, 27, 3), dtype=np.uint8)
    for exact in (True, False):
        together = corrupt(images, "circular_motion_blur", 5, seed=0, exact=exact)
        monkeypatch.setattr(bar_warp, "_MAX_TURNED_PIXELS", 0)
        apart = corrupt(images, "circular_motion_blur", 5, seed=0, exact=exact)
        monkeypatch.undo()
        difference = np.abs(together.astype(int) - apart)
        assert difference.max() <= 1 and (difference > 0).mean() < 0.01
