"""Metrics from per-sample scores: arrays in, floats out, over the whole set and never a mean of batches.

Arguments are NumPy arrays, torch tensors or sequences. Accuracies, AUROC, AUPR and FPR95 are percentages;
calibration errors, NLL and Brier score are plain numbers. Every anomaly score is larger for anomalies.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct
from scipy.special import bdtr, betaincinv, logsumexp

from anchored.method.precision import at_least_float32
from anchored.system.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]

# The discretisation of the reference implementation of smooth ECE (relplot 1.0): results equal its own.
_MESH = 200  # points at which the smoothed residual is summed, at least
_GRID = 1001  # points on which confidences are binned and smoothed, at least
_NARROWEST = 1e-3  # bandwidths below this are not searched
_HALVINGS = 10  # bisection steps for the bandwidth: it is known to 1 / 1024
_DENSITY_FLOOR = 1e-4


def top1(prediction: ArrayLike, label: ArrayLike) -> float:
    """The percentage of `prediction` (integers [N], the arg-max) that equal `label` (integers [N])."""
    p, y = _integers("prediction", prediction), _integers("label", label)
    _same_length("prediction", p, "label", y)
    return 100.0 * float(np.mean(p == y))


def smooth_ece(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Smooth calibration error, in [0, 1]: no bins, and a bandwidth chosen by the data.

    The residual `confidence - correct` is smoothed over the confidence axis with a Gaussian kernel reflected
    at 0 and 1; its mean absolute value under a bandwidth sigma falls as sigma grows, and the result is the
    value where it meets sigma itself.

    confidence: [N] in [0, 1]. correct: [N], bool or 0/1. Raises InputError for NaN, an empty set, other
    shapes or values out of range. Source: Blasiok & Nakkiran 2023, "Smooth ECE"; equal to their package
    relplot on the same arrays, including its convention that confidences within a grid step (0.001) of 0 or 1
    weigh down to half as much as others.
    """
    return _Smoother(*_confidences(confidence, correct)).error()


def smooth_ece_terms(confidence: ArrayLike, correct: ArrayLike) -> Floats:
    """One number an image whose mean is `smooth_ece`: what resampling images needs.

    With the sign of the smoothed residual held fixed, smooth ECE is a mean over images (its first-order
    expansion), so that an interval for it costs a bootstrap of a mean. Arguments and errors as `smooth_ece`;
    returns float64 [N].
    """
    return _Smoother(*_confidences(confidence, correct)).terms()


def ece(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error over `bins` equal bins, right-closed, in [0, 1] (Guo et al. 2017).

    Arguments and errors as `smooth_ece`; `bins` is at least 1.
    """
    c, hit = _confidences(confidence, correct)
    if bins < 1:
        raise InputError(f"bins must be at least 1; got {bins}.")
    place = np.clip(np.ceil(c * bins).astype(np.int64) - 1, 0, bins - 1)
    return float(np.abs(np.bincount(place, weights=c - hit, minlength=bins)).sum() / len(c))


def energy(logits: Tensor) -> Tensor:
    """The energy of each sample, -logsumexp over the last dimension: larger for anomalies (Liu et al. 2020).

    logits: [..., C] with C >= 1; returns [...] of the same dtype, float32 for logits in half precision, whose own
    steps (1/4 between 32 and 64 in bfloat16) rank no images. Raises InputError for other inputs.
    """
    if not hasattr(logits, "logsumexp") or logits.ndim == 0 or logits.shape[-1] == 0:
        shape = list(getattr(logits, "shape", []))
        raise InputError(f"logits must be a tensor [..., classes]; got {type(logits).__name__} {shape}.")
    return -at_least_float32(logits).logsumexp(-1)


def auroc(id_scores: ArrayLike, anomaly_scores: ArrayLike) -> float:
    """The chance, in percent, that an anomaly scores above an image of a known class; ties count half.

    id_scores: [N], anomaly_scores: [M]; infinite scores are allowed. Raises InputError for NaN, an empty
    set or other shapes.
    """
    return 100.0 * float(np.mean(auroc_terms(id_scores, anomaly_scores)[1]))


def auroc_terms(id_scores: ArrayLike, anomaly_scores: ArrayLike) -> tuple[Floats, Floats]:
    """AUROC's placement values as fractions, [N] and [M], each with mean AUROC / 100 (DeLong et al. 1988).

    For an image of a known class, the share of anomalies above it; for an anomaly, the share of known images
    below it; ties count half. Arguments and errors as `auroc`.
    """
    known, odd = _scores("id_scores", id_scores), _scores("anomaly_scores", anomaly_scores)

    def share_below(scores: Floats, others: Floats) -> Floats:
        ordered = np.sort(others)
        below = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
        return below / (2.0 * len(others))

    return 1.0 - share_below(known, odd), share_below(odd, known)


def fpr95(id_scores: ArrayLike, anomaly_scores: ArrayLike) -> float:
    """The percentage of known images flagged by the highest threshold that flags at least 95 % of anomalies.

    A score is flagged at or above the threshold. Arguments and errors as `auroc`.
    """
    known, odd = _scores("id_scores", id_scores), _scores("anomaly_scores", anomaly_scores)
    needed = -(-95 * len(odd) // 100)  # in integers: 0.95 * n would round up now and then
    threshold = np.partition(odd, len(odd) - needed)[len(odd) - needed]
    return 100.0 * float(np.mean(known >= threshold))


def fpr95_terms(id_scores: ArrayLike, anomaly_scores: ArrayLike) -> tuple[Floats, Floats]:
    """FPR95's first-order terms as fractions, [N] and [M]: what resampling images needs.

    The first have mean FPR95 / 100; the second, of mean about zero, are how each anomaly moves it through the
    threshold, by the slope of the ROC curve around 95 %. Arguments and errors as `auroc`.
    """
    known, odd = _scores("id_scores", id_scores), _scores("anomaly_scores", anomaly_scores)
    ordered, flags = np.sort(odd), np.sort(known)
    reach = 0.03  # how far to either side of 95 % the slope looks: wider is biased, narrower noisy

    def threshold(caught: float) -> float:
        return float(ordered[len(odd) - min(len(odd), math.ceil(caught * len(odd) - 1e-9))])

    def flagged(caught: float) -> float:
        return 1.0 - float(np.searchsorted(flags, threshold(caught), "left")) / len(known)

    slope = (flagged(0.95 + reach) - flagged(0.95 - reach)) / (2 * reach)
    above = odd >= threshold(0.95)
    return (known >= threshold(0.95)).astype(np.float64), slope * (above.mean() - above)


def aupr(id_scores: ArrayLike, anomaly_scores: ArrayLike) -> float:
    """Average precision in percent with the anomalies as positives; its chance level is their share.

    Arguments and errors as `auroc`.
    """
    known, odd = _scores("id_scores", id_scores), _scores("anomaly_scores", anomaly_scores)
    thresholds, hits = np.unique(odd, return_counts=True)
    found = len(odd) - (np.cumsum(hits) - hits)  # anomalies at or above each threshold
    flagged = found + len(known) - np.searchsorted(np.sort(known), thresholds, "left")
    return 100.0 * float(np.sum(hits / len(odd) * found / flagged))


def nll(logits: ArrayLike, label: ArrayLike) -> float:
    """Mean negative log-likelihood in nats of `label` (integers [N]) under softmax of `logits` [N, C].

    Raises InputError for NaN, an empty set, other shapes or labels outside [0, C).
    """
    z, y = _logits(logits, label)
    return float(np.mean(logsumexp(z, axis=1) - z[np.arange(len(z)), y]))


def brier(logits: ArrayLike, label: ArrayLike) -> float:
    """Brier score in [0, 2]: mean squared distance of softmax(`logits`) to the one-hot label, over classes.

    Arguments and errors as `nll`.
    """
    z, y = _logits(logits, label)
    p = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    p[np.arange(len(p)), y] -= 1.0
    return float(np.mean(np.square(p).sum(axis=1)))


def bootstrap_interval(values: ArrayLike, *, seed: int, draws: int = 1000, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values` [N] (finite): (low, high).

    draws: number of resamples, at least 1. level: coverage in (0, 1). Raises InputError otherwise.
    """
    return _percentiles(bootstrap_means(values, seed=seed, draws=draws), level)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, seed: int, draws: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of mean(a) - mean(b), both [N] on the same images: (low, high).

    Arguments and errors as `bootstrap_interval`.
    """
    x, y = _finite("a", a), _finite("b", b)
    _same_length("a", x, "b", y)
    return bootstrap_interval(x - y, seed=seed, draws=draws, level=level)


def bootstrap_means(values: ArrayLike, *, seed: int, draws: int = 1000) -> Floats:
    """The means, float64 [draws], of `draws` resamples of `values` [N] (finite) with replacement."""
    v = _finite("values", values)
    if draws < 1:
        raise InputError(f"draws must be at least 1; got {draws}.")
    rng = np.random.default_rng(seed)
    distinct, counts = np.unique(v, return_counts=True)
    if len(distinct) <= 64:  # few distinct values (right or wrong): draw how often each occurs, not which image
        return np.asarray(rng.multinomial(len(v), counts / len(v), size=draws) @ distinct / len(v))
    rows = max(1, 2_000_000 // len(v))  # bounds the memory of the drawn indices
    chunks = [min(rows, draws - start) for start in range(0, draws, rows)]
    return np.concatenate([v[rng.integers(len(v), size=(size, len(v)))].mean(axis=1) for size in chunks])


def mcnemar(a_correct: ArrayLike, b_correct: ArrayLike) -> float:
    """Two-sided exact p-value that two classifiers err equally often on the same images (McNemar 1947).

    a_correct, b_correct: [N], bool or 0/1. 1.0 where they never disagree. Raises InputError otherwise.
    """
    a, b = _binary("a_correct", a_correct), _binary("b_correct", b_correct)
    _same_length("a_correct", a, "b_correct", b)
    only_a, only_b = int(np.sum(a > b)), int(np.sum(b > a))
    return min(1.0, 2.0 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def clopper_pearson(hits: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share of which `hits` of `n` were seen: (low, high), fractions (Clopper & Pearson 1934).

    Raises InputError for hits outside [0, n], n below 1 or a level outside (0, 1).
    """
    if not 0 <= hits <= n or n < 1 or not 0.0 < level < 1.0:
        raise InputError(f"hits lie in [0, n], n is at least 1, level in (0, 1); got {hits}, {n}, {level}.")
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, tail))
    return low, 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 1 - tail))


class _Smoother:
    """Residuals and counts binned on a grid, smoothed by a reflected Gaussian at any bandwidth.

    Reflection at both ends makes the smoothing a product of type-1 cosine transforms, so one bandwidth costs
    a transform of the grid whatever the number of images.
    """

    def __init__(self, confidence: Floats, hit: Floats) -> None:
        self.confidence, self.residual = confidence, confidence - hit
        self.binned: dict[int, tuple[Floats, Floats]] = {}

    def transforms(self, grid: int) -> tuple[Floats, Floats]:
        """Cosine transforms of the residuals and of the counts on `grid` points."""
        if grid not in self.binned:
            left, fraction = self.place(grid)
            binned = []
            for weight in (self.residual, np.ones_like(self.residual)):
                values = np.bincount(left, weight * (1.0 - fraction), grid)
                values += np.bincount(left + 1, weight * fraction, grid)
                binned.append(dct(values, type=1))
            self.binned[grid] = binned[0], binned[1]
        return self.binned[grid]

    def place(self, grid: int) -> tuple[NDArray[np.int64], Floats]:
        """The grid point left of each confidence and the part of its weight that the next one gets."""
        position = self.confidence * (grid - 1)
        left = np.clip(position.astype(np.int64), 0, grid - 2)
        return left, position - left

    def smoothed(self, sigma: float) -> tuple[Floats, float, Floats, Floats]:
        """The smoothed residual on the mesh, the total density there, the kernel's transform, the mesh."""
        wanted = max(_GRID, round(20 / sigma) // 2 + 1)
        grid = wanted | 1  # odd: the kernel's centre is a grid point
        half = np.arange((grid + 1) // 2) / (grid - 1)  # the kernel ends at 0.5, as in the reference
        kernel = np.zeros(grid)
        kernel[: len(half)] = np.exp(-0.5 * (half / sigma) ** 2) / (np.sqrt(2 * np.pi) * sigma)
        spectrum = dct(kernel, type=1)
        residual, count = (dct(part * spectrum, type=1) / (2 * (grid - 1)) for part in self.transforms(grid))
        mesh = np.linspace(0.0, 1.0, max(round(10 / sigma), _MESH))
        if wanted < grid:  # on an even grid the reference reads half a step to the right
            mesh = 1.0 - np.abs(1.0 - mesh - 0.5 / (wanted - 1))
        points = np.linspace(0.0, 1.0, grid)
        density = np.interp(mesh, points, count) + _DENSITY_FLOOR
        return np.interp(mesh, points, residual), float(density.sum()), spectrum, mesh

    def at(self, sigma: float) -> float:
        """The smooth calibration error at bandwidth `sigma`."""
        residual, density, _, _ = self.smoothed(sigma)
        return float(np.abs(residual).sum() / density)

    def bandwidth(self) -> float:
        """The bandwidth that equals its own error, from above, to 1 / 1024."""
        above, below = 1.0, 0.0
        for _ in range(_HALVINGS):
            middle = (above + below) / 2
            if middle < _NARROWEST or middle < self.at(middle):
                below = middle
            else:
                above = middle
        return above

    def error(self) -> float:
        return self.at(self.bandwidth())

    def terms(self) -> Floats:
        """Per image: its residual times the smoothed sign of the smoothed residual, scaled to the error."""
        sigma = self.bandwidth()
        residual, density, spectrum, mesh = self.smoothed(sigma)
        grid, order = len(spectrum), np.argsort(mesh)
        sign = np.interp(np.linspace(0.0, 1.0, grid), mesh[order], np.sign(residual)[order])
        pull = dct(dct(sign, type=1) * spectrum, type=1) / (2 * (grid - 1))
        left, fraction = self.place(grid)
        terms = self.residual * (pull[left] * (1.0 - fraction) + pull[left + 1] * fraction)
        error, mean = float(np.abs(residual).sum() / density), float(terms.mean())
        # A mean of zero means no smoothed residual at all; scaling would divide by it.
        return terms * (error / mean) if mean > 1e-12 else np.full_like(terms, error)


def _percentiles(means: Floats, level: float) -> tuple[float, float]:
    if not 0.0 < level < 1.0:
        raise InputError(f"level must lie between 0 and 1; got {level}.")
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _array(name: str, values: ArrayLike | Tensor, dimensions: int = 1) -> NDArray[Any]:
    """`values` as a non-empty NumPy array of that many dimensions; a tensor from any device or dtype."""
    tensor: Any = values
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        array = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    else:
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InputError(f"{name} must be a regular array; got {error}.") from error
    if array.ndim != dimensions or array.size == 0:
        rule = "one value an image" if dimensions == 1 else "one row an image"
        raise InputError(f"{name} must hold {rule}, at least one; got shape {list(array.shape)}.")
    return array


def _floats(name: str, values: ArrayLike, dimensions: int = 1) -> Floats:
    array = _array(name, values, dimensions)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers; got dtype {array.dtype}.")
    array = array.astype(np.float64)
    if np.isnan(array).any():
        raise InputError(f"{name} must not be NaN; {int(np.isnan(array).sum())} of {array.size} values are.")
    return array


def _scores(name: str, values: ArrayLike) -> Floats:
    return _floats(name, values)


def _finite(name: str, values: ArrayLike) -> Floats:
    array = _floats(name, values)
    if np.isinf(array).any():
        raise InputError(f"{name} must be finite; {int(np.isinf(array).sum())} of {array.size} values are not.")
    return array


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = _array(name, values)
    if array.dtype.kind not in "iub":
        raise InputError(f"{name} must be integers, one class an image; got dtype {array.dtype}.")
    return array.astype(np.int64)


def _binary(name: str, values: ArrayLike) -> Floats:
    array = _floats(name, values)
    odd = array[(array != 0) & (array != 1)]
    if len(odd):
        raise InputError(f"{name} must be bool or 0/1; got {odd[0]:g} and {len(odd) - 1} more such values.")
    return array


def _confidences(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats]:
    c, hit = _floats("confidence", confidence), _binary("correct", correct)
    _same_length("confidence", c, "correct", hit)
    if c.min() < 0 or c.max() > 1:
        raise InputError(f"confidence must lie in [0, 1]; got values from {c.min():g} to {c.max():g}.")
    return c, hit


def _logits(logits: ArrayLike, label: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    z, y = _floats("logits", logits, 2), _integers("label", label)
    _same_length("logits", z, "label", y)
    if y.min() < 0 or y.max() >= z.shape[1]:
        raise InputError(f"label must lie in [0, {z.shape[1]}), the classes of the logits; got {y.min()} to {y.max()}.")
    return z, y


def _same_length(a_name: str, a: NDArray[Any], b_name: str, b: NDArray[Any]) -> None:
    if len(a) != len(b):
        raise InputError(f"{a_name} and {b_name} must be of one length; got {len(a)} and {len(b)}.")
