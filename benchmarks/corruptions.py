"""CPU time of every corruption, exact and fast mode, one thread.

    python benchmarks/corruptions.py --sizes 32 224

Prints one table a suite and size: milliseconds of CPU time per image, the best of `--repeats`, and beside it the time
of the reference codes (patched to run on current libraries, severity 3). Those were measured on one thread of a shared
2.1 GHz Xeon; two of them that are plain numpy are timed here too, and the ratios are corrected by what they say about
this machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from anchored.corruptions import corrupt, suite
from anchored.corruptions.tables import choose

# Milliseconds per image of the reference codes at 32 and 224 px.
REFERENCE: dict[str, tuple[float | None, float | None]] = {
    "gaussian_noise": (0.09, 4.54),
    "shot_noise": (0.22, 13.09),
    "impulse_noise": (0.09, 3.37),
    "defocus_blur": (0.16, 3.93),
    "glass_blur": (9.22, 1254.0),
    "motion_blur": (1.94, 74.21),
    "zoom_blur": (4.74, 91.76),
    "snow": (1.72, 44.96),
    "frost": (6.67, 7.29),
    "fog": (0.48, 4.38),
    "brightness": (0.47, 22.52),
    "contrast": (0.06, 2.01),
    "elastic_transform": (0.54, 15.91),
    "pixelate": (0.03, 0.47),
    "jpeg_compression": (0.14, 0.45),
    "speckle_noise": (0.08, 3.31),
    "gaussian_blur": (0.10, 3.45),
    "spatter": (0.26, 5.40),
    "saturate": (0.44, 21.23),
    "blue_noise_sample": (2.92, 171.0),
    "brownish_noise": (8.78, 417.0),
    "checkerboard_cutout": (2.44, 97.0),
    "inverse_sparkles": (13.72, 739.0),
    "sparkles": (69.47, 3815.0),
    "circular_motion_blur": (7.37, None),
    "lines": (0.44, None),
    "pinch_and_twirl": (18.08, None),
    "ripple": (13.33, None),
    "transverse_chromatic_abberation": (0.41, None),
    "caustic_refraction": (118.7, 5044.0),
    "cocentric_sine_waves": (2.2, 111.0),
    "perlin_noise": (33.7, 1414.0),
    "plasma_noise": (26.2, 1367.0),
    "single_frequency_greyscale": (0.7, 29.0),
}


def pictures(count: int, side: int) -> np.ndarray:
    """Seeded images with the falling spectrum of photographs, uint8 [count, side, side, 3]."""
    rng = np.random.default_rng(0)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    spectrum = np.fft.rfft2(rng.standard_normal((count, 3, side, side))) / np.maximum(frequency, 1 / side)
    field = np.fft.irfft2(spectrum, s=(side, side))
    field = 120 + 60 * field / field.std(axis=(2, 3), keepdims=True)
    return field.clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1).copy()


def milliseconds(images: np.ndarray, name: str, severity: int, exact: bool, repeats: int) -> float:
    """CPU milliseconds per image, the best of `repeats` after one call that fills the caches."""
    corrupt(images[:1], name, severity, seed=0, exact=exact)
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        corrupt(images, name, severity, seed=0, exact=exact)
        best = min(best, time.process_time() - start)
    return 1000 * best / len(images)


def machine_factor(images: np.ndarray, column: int) -> float:
    """How many times faster this machine runs the reference's Gaussian and shot noise than the Xeon did."""
    side = images.shape[1]
    sigma, rate = (0.08, 100) if side == 32 else (0.18, 12)

    def gaussian_noise(image: np.ndarray) -> np.ndarray:
        value = image / 255.0
        return (np.clip(value + np.random.normal(size=value.shape, scale=sigma), 0, 1) * 255).astype(np.uint8)  # noqa: NPY002

    def shot_noise(image: np.ndarray) -> np.ndarray:
        return (np.clip(np.random.poisson(image / 255.0 * rate) / rate, 0, 1) * 255).astype(np.uint8)  # noqa: NPY002

    factors = []
    for function in (gaussian_noise, shot_noise):
        best = float("inf")
        for _ in range(5):
            start = time.process_time()
            for image in images[:100]:
                function(image)
            best = min(best, (time.process_time() - start) / len(images[:100]))
        factors.append((REFERENCE[function.__name__][column] or 0.0) / (1000 * best))
    return float(np.sqrt(np.prod(factors)))


def row(name: str, reference: float | None, exact: float, fast: float, factor: float) -> str:
    ratio = "" if reference is None else f"{reference / factor / fast:8.1f}"
    shown = "" if reference is None else f"{reference:10.2f}"
    return f"{name:32s} {exact:9.3f} {fast:9.3f} {shown:>10s} {ratio:>8s}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 224], help="image sides in pixels")
    parser.add_argument("--suites", nargs="+", default=["c", "c-bar"], help="suites or corruption names")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--images", type=int, help="images a measurement (by default 600 at 32 px, 12 at 224 px)")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for side in args.sizes:
        table, _ = choose(None, side, side)
        images = pictures(args.images or max(4, 600 * 32 * 32 // (side * side)), side)
        column = {32: 0, 224: 1}.get(side)
        factor = 1.0
        if column is not None:
            factor = machine_factor(images, column)
            print(f"\n{side} px: this machine runs the reference's noises {factor:.2f} times as fast as the Xeon")
        for chosen in args.suites:
            print(f"\n{chosen}, {side} px, table {table}, severity {args.severity}: ms per image, {len(images)} images")
            print(f"{'':32s} {'exact':>9s} {'fast':>9s} {'reference':>10s} {'x faster':>8s}")
            sums, known = np.zeros(2), 0.0
            names = suite(chosen, table=table)
            for name in names:
                exact, fast = (milliseconds(images, name, args.severity, mode, args.repeats) for mode in (True, False))
                reference = REFERENCE[name][column] if column is not None else None
                print(row(name, reference, exact, fast, factor), flush=True)
                sums += (exact, fast)
                known += reference if reference is not None else float("nan")
            print(
                row(f"sum of {len(names)}", None if np.isnan(known) else known, float(sums[0]), float(sums[1]), factor)
            )


if __name__ == "__main__":
    main()
