"""Metrics against independent implementations: relplot, scikit-learn, torchmetrics, scipy."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score, roc_curve

from anchored.evaluation import metrics
from anchored.system.errors import InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import relplot


def overconfident(n: int, seed: int, power: float = 1.4) -> tuple[np.ndarray, np.ndarray]:
    """Confidences skewed towards 1 and outcomes less often right than they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(5, 1, n)
    return confidence, rng.random(n) < confidence**power


# --- smooth ECE -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_smooth_ece_equals_relplot_on_random_inputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(15):
        n = int(10 ** rng.uniform(0, 3.7))
        confidence = rng.beta(*rng.uniform(0.1, 10, 2), n)
        if seed % 3 == 1:
            confidence = np.round(confidence, 1)  # many ties, some exactly 0 and 1
        if seed % 3 == 2:
            confidence = np.where(rng.random(n) < 0.5, 1.0, confidence)
        correct = (rng.random(n) < confidence ** rng.uniform(0.7, 1.5)).astype(float)
        assert metrics.smooth_ece(confidence, correct) == pytest.approx(relplot.smECE(confidence, correct), abs=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 257])
@pytest.mark.parametrize("confidence", [0.0, 1e-6, 0.3, 0.5, 0.9995, 1.0])
@pytest.mark.parametrize("correct", [0.0, 1.0])
def test_smooth_ece_equals_relplot_on_degenerate_inputs(n: int, confidence: float, correct: float) -> None:
    c, hit = np.full(n, confidence), np.full(n, correct)
    assert metrics.smooth_ece(c, hit) == pytest.approx(relplot.smECE(c, hit), abs=1e-4)


def test_smooth_ece_equals_relplot_where_the_bandwidth_is_narrow() -> None:
    """Errors of a few 1/1024: grids grow there, and on even ones the reference's kernel is half a step off."""
    rng = np.random.default_rng(3)
    for scale in np.linspace(0.001, 0.012, 60):
        for n in (3, 6):
            c = np.clip(1 - rng.exponential(scale, n), 0, 1)
            hit = np.ones(n)
            assert metrics.smooth_ece(c, hit) == pytest.approx(relplot.smECE(c, hit), abs=5e-6)


def test_smooth_ece_of_a_known_gap() -> None:
    """Confidence 0.8 throughout and 60 % right is an error of 0.2, whatever the bandwidth."""
    confidence = np.full(1000, 0.8)
    correct = np.arange(1000) < 600
    assert metrics.smooth_ece(confidence, correct) == pytest.approx(0.2, abs=1e-4)


def test_smooth_ece_is_fast() -> None:
    confidence, correct = overconfident(50_000, 0)
    metrics.smooth_ece(confidence, correct)
    start = time.process_time()
    metrics.smooth_ece(confidence, correct)
    assert time.process_time() - start < 0.2
    start = time.process_time()
    for _ in range(95):
        metrics.smooth_ece(confidence[:10_000], correct[:10_000])
    assert time.process_time() - start < 2.0


def test_smooth_ece_terms_average_to_it_and_give_its_spread() -> None:
    """The terms' bootstrap spread is that of the statistic itself over fresh samples."""
    values, predicted = [], []
    for seed in range(150):
        confidence, correct = overconfident(800, seed)
        terms = metrics.smooth_ece_terms(confidence, correct)
        values.append(metrics.smooth_ece(confidence, correct))
        assert terms.mean() == pytest.approx(values[-1], abs=1e-9)
        predicted.append(metrics.bootstrap_means(terms, seed=seed, draws=200).std())
    assert np.mean(predicted) == pytest.approx(np.std(values), rel=0.2)


def test_smooth_ece_takes_any_array_type() -> None:
    confidence, correct = overconfident(500, 1)
    expected = metrics.smooth_ece(confidence, correct)
    assert metrics.smooth_ece(torch.tensor(confidence), torch.tensor(correct)) == expected
    assert metrics.smooth_ece(list(confidence), [bool(hit) for hit in correct]) == expected
    half = torch.tensor(confidence).bfloat16()
    assert metrics.smooth_ece(half, correct) == metrics.smooth_ece(half.double().numpy(), correct)


# --- binned ECE, NLL, Brier, top-1 --------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_ece_equals_torchmetrics(bins: int) -> None:
    from torchmetrics.functional.classification import binary_calibration_error

    confidence, correct = overconfident(5000, 2)
    expected = binary_calibration_error(torch.tensor(confidence), torch.tensor(correct).int(), n_bins=bins)
    assert metrics.ece(confidence, correct, bins=bins) == pytest.approx(float(expected), abs=1e-6)


def test_ece_keeps_certain_predictions_in_the_last_bin() -> None:
    """1.0 shares the last bin with 0.99: one bin with a gap of 0.495, not two whose gaps cannot cancel."""
    assert metrics.ece([1.0, 0.99], [False, True]) == pytest.approx(0.495)
    assert metrics.ece([0.0, 0.01], [False, False]) == pytest.approx(0.005)


def test_nll_and_brier_equal_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(300, 5, generator=generator, dtype=torch.float64)
    label = torch.randint(5, (300,), generator=generator)
    probs = logits.softmax(1).numpy()
    assert metrics.nll(logits, label) == pytest.approx(log_loss(label.numpy(), probs, labels=range(5)))
    expected = brier_score_loss(label.numpy(), probs, labels=range(5), scale_by_half=False)
    assert metrics.brier(logits, label) == pytest.approx(expected)


def test_nll_is_finite_where_softmax_underflows() -> None:
    assert metrics.nll([[0.0, 2000.0]], [0]) == pytest.approx(2000.0)
    assert metrics.brier([[0.0, 2000.0]], [0]) == pytest.approx(2.0)


def test_top1_is_a_percentage() -> None:
    assert metrics.top1([0, 1, 2, 2], torch.tensor([0, 1, 2, 0])) == 75.0


# --- anomaly scores -----------------------------------------------------------------------------------------


def test_energy_is_larger_for_flat_logits_and_at_least_float32() -> None:
    logits = torch.tensor([[[9.0, 0.0, 0.0], [1.0, 1.0, 1.0]]], dtype=torch.float32)
    energy = metrics.energy(logits)
    assert energy.shape == (1, 2) and energy.dtype == torch.float32
    assert energy[0, 0] < energy[0, 1]
    assert torch.allclose(energy, -torch.log(torch.exp(logits.double()).sum(-1)).float())
    for dtype in (torch.bfloat16, torch.float16):
        half = logits.to(dtype)
        assert metrics.energy(half).dtype == torch.float32
        torch.testing.assert_close(metrics.energy(half).double(), metrics.energy(half.double()), rtol=0, atol=1e-6)
    assert metrics.energy(logits.double()).dtype == torch.float64
    for bad in (torch.tensor(1.0), torch.zeros(3, 0), np.zeros((2, 2))):
        with pytest.raises(InputError, match="logits must be a tensor"):
            metrics.energy(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
def test_anomaly_metrics_equal_scikit_learn(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    known, odd = rng.normal(size=rng.integers(5, 400)), rng.normal(0.8, 1.5, size=rng.integers(5, 400))
    if ties:
        known, odd = np.round(known, 1), np.round(odd, 1)
    label, score = np.r_[np.zeros(len(known)), np.ones(len(odd))], np.r_[known, odd]
    assert metrics.auroc(known, odd) == pytest.approx(100 * roc_auc_score(label, score))
    assert metrics.aupr(known, odd) == pytest.approx(100 * average_precision_score(label, score))
    flagged, caught, _ = roc_curve(label, score, drop_intermediate=False)
    assert metrics.fpr95(known, odd) == pytest.approx(100 * flagged[np.argmax(caught >= 0.95)])


@pytest.mark.parametrize("n", [1, 19, 20, 21, 40, 60, 100, 380])
def test_fpr95_threshold_catches_at_least_95_percent_and_no_more_than_needed(n: int) -> None:
    odd = np.arange(n, dtype=float)
    label, score = np.r_[np.zeros(n), np.ones(n)], np.r_[odd + 0.5, odd]
    flagged, caught, _ = roc_curve(label, score, drop_intermediate=False)
    assert metrics.fpr95(odd + 0.5, odd) == pytest.approx(100 * flagged[np.argmax(caught >= 0.95)])


def test_auroc_of_constant_scores_is_chance_and_of_separated_ones_perfect() -> None:
    assert metrics.auroc(np.zeros(10), np.zeros(3)) == 50.0
    assert metrics.auroc([-3.0, -np.inf], [2.0, np.inf]) == 100.0
    assert metrics.fpr95([-3.0, -2.0], [2.0, 5.0]) == 0.0
    assert metrics.aupr([2.0, 3.0], [-2.0]) == pytest.approx(100 / 3)


def test_auroc_terms_both_average_to_auroc() -> None:
    rng = np.random.default_rng(0)
    known, odd = np.round(rng.normal(size=200), 1), np.round(rng.normal(0.5, size=90), 1)
    by_known, by_odd = metrics.auroc_terms(known, odd)
    assert 100 * by_known.mean() == pytest.approx(metrics.auroc(known, odd))
    assert 100 * by_odd.mean() == pytest.approx(metrics.auroc(known, odd))


def test_fpr95_terms_average_to_it_and_give_its_spread() -> None:
    """The terms' spread is that of FPR95 itself over fresh samples of known images and anomalies."""
    values, predicted = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        known, odd = rng.normal(size=500), rng.normal(1.5, 1.0, size=400)
        by_known, by_odd = metrics.fpr95_terms(known, odd)
        values.append(metrics.fpr95(known, odd) / 100)
        assert by_known.mean() == pytest.approx(values[-1])
        assert by_odd.mean() == pytest.approx(0.0, abs=1e-12)
        predicted.append(by_known.var() / len(known) + by_odd.var() / len(odd))
    assert np.sqrt(np.mean(predicted)) == pytest.approx(np.std(values), rel=0.15)


# --- intervals and tests --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "continuous"])
def test_bootstrap_interval_agrees_with_scipy(kind: str) -> None:
    rng = np.random.default_rng(5)
    values = (rng.random(400) < 0.8).astype(float) if kind == "binary" else rng.exponential(size=400)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    low, high = metrics.bootstrap_interval(values, seed=0, draws=4000)
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.06 * width)
    assert high == pytest.approx(expected.high, abs=0.06 * width)


@pytest.mark.parametrize("kind", ["binary", "continuous"])
def test_bootstrap_interval_covers_as_often_as_it_says(kind: str) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(400):
        sample = rng.random(150)
        values = (sample < 0.7).astype(float) if kind == "binary" else sample
        low, high = metrics.bootstrap_interval(values, seed=trial, draws=400, level=0.9)
        covered += low <= (0.7 if kind == "binary" else 0.5) <= high
    assert 0.85 <= covered / 400 <= 0.94


def test_paired_bootstrap_uses_the_pairing() -> None:
    """Two classifiers that differ on few images: the paired interval is far narrower than the two apart."""
    rng = np.random.default_rng(1)
    a = rng.random(2000) < 0.7
    b = a ^ (rng.random(2000) < 0.01)
    low, high = metrics.paired_bootstrap(a, b, seed=0)
    assert low <= a.mean() - b.mean() <= high
    alone = metrics.bootstrap_interval(a, seed=0)
    assert high - low < 0.4 * (alone[1] - alone[0])


def test_bootstrap_depends_on_the_seed_alone() -> None:
    values = np.random.default_rng(0).normal(size=300)
    np.random.seed(0)  # noqa: NPY002 (global state must not matter)
    first = metrics.bootstrap_interval(values, seed=3)
    np.random.seed(1)  # noqa: NPY002
    assert metrics.bootstrap_interval(values, seed=3) == first
    assert metrics.bootstrap_interval(values, seed=4) != first


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (5, 5), (12, 3), (3, 12), (400, 330), (0, 60)])
def test_mcnemar_equals_the_exact_binomial_test(only_a: int, only_b: int) -> None:
    a = np.r_[np.ones(only_a), np.zeros(only_b), np.ones(50), np.zeros(20)]
    b = np.r_[np.zeros(only_a), np.ones(only_b), np.ones(50), np.zeros(20)]
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert metrics.mcnemar(a, b) == pytest.approx(expected, rel=1e-9)


# --- what is refused ------------------------------------------------------------------------------------------

PAIRS: list[Callable[..., object]] = [metrics.smooth_ece, metrics.smooth_ece_terms, metrics.ece]
SCORES: list[Callable[..., object]] = [metrics.auroc, metrics.fpr95, metrics.aupr]


@pytest.mark.parametrize("metric", PAIRS)
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, np.nan], [1, 0], "confidence must not be NaN; 1 of 2"),
        ([], [], "confidence must hold one value an image, at least one"),
        ([0.5, 0.5], [1], "one length; got 2 and 1"),
        ([[0.5, 0.5]], [[1, 1]], r"got shape \[1, 2\]"),
        ([0.5, 1.01], [1, 0], r"confidence must lie in \[0, 1\]"),
        ([-0.01, 0.5], [1, 0], r"confidence must lie in \[0, 1\]"),
        ([0.5, 0.5], [1, 2], "correct must be bool or 0/1; got 2"),
        (["a", "b"], [1, 0], "confidence must be numbers"),
        ([[0.5], [0.5, 0.2]], [1, 0], "regular array"),
    ],
)
def test_bad_confidences_are_refused(
    metric: Callable[..., object], confidence: list[float], correct: list[float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        metric(confidence, correct)


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("bad", [[], [np.nan], [[1.0]]])
def test_bad_scores_are_refused_on_either_side(metric: Callable[..., object], bad: list[float]) -> None:
    with pytest.raises(InputError, match="id_scores"):
        metric(bad, [1.0])
    with pytest.raises(InputError, match="anomaly_scores"):
        metric([1.0], bad)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.top1([0.5], [0]), "prediction must be integers"),
        (lambda: metrics.top1([[0, 1]], [0]), "prediction must hold one value an image"),
        (lambda: metrics.ece([0.5], [1], bins=0), "bins must be at least 1; got 0"),
        (lambda: metrics.nll([[0.0, 1.0]], [2]), r"label must lie in \[0, 2\)"),
        (lambda: metrics.nll([[0.0, 1.0]], [-1]), r"label must lie in \[0, 2\)"),
        (lambda: metrics.nll([[0.0, np.nan]], [0]), "logits must not be NaN"),
        (lambda: metrics.brier([0.0, 1.0], [0, 1]), "logits must hold one row an image"),
        (lambda: metrics.bootstrap_interval([np.inf], seed=0), "values must be finite"),
        (lambda: metrics.bootstrap_interval([1.0], seed=0, level=1.0), "level must lie between 0 and 1"),
        (lambda: metrics.bootstrap_interval([1.0], seed=0, draws=0), "draws must be at least 1"),
        (lambda: metrics.paired_bootstrap([1.0], [1.0, 0.0], seed=0), "one length; got 1 and 2"),
        (lambda: metrics.mcnemar([0.5], [1]), "a_correct must be bool or 0/1"),
    ],
)
def test_bad_inputs_are_refused_with_the_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
