"""Effective robustness against an independent computation, its testbeds, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anchored import effective_robustness
from anchored.evaluation.robustness import fit, shipped_testbeds
from anchored.system.errors import InputError


def bed(seed: int = 0, models: int = 40) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    z = rng.normal(1, 1, models)
    return 1 / (1 + np.exp(-np.stack([z, 0.8 * z - 0.7 + rng.normal(0, 0.1, models)], 1)))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_distance_to_a_logit_logit_line(seed: int) -> None:
    pairs = bed(seed)
    slope, intercept = np.polyfit(np.log(pairs[:, 0] / (1 - pairs[:, 0])), np.log(pairs[:, 1] / (1 - pairs[:, 1])), 1)
    for x, y in ((0.2, 0.3), (0.75, 0.7), (0.97, 0.9)):
        line = 1 / (1 + np.exp(-(slope * np.log(x / (1 - x)) + intercept)))
        assert effective_robustness(x, y, pairs) == pytest.approx(y - line, abs=1e-10)
        assert effective_robustness(x, line, pairs) == pytest.approx(0, abs=1e-10)


def test_a_line_that_is_the_truth_is_found_exactly() -> None:
    z = np.linspace(-2, 3, 9)
    slope, intercept = fit(1 / (1 + np.exp(-np.stack([z, 1.3 * z - 0.4], 1))))
    assert (slope, intercept) == (pytest.approx(1.3), pytest.approx(-0.4))


@pytest.mark.parametrize("scale", [1, 100])
def test_a_file_gives_what_its_array_gives(scale: int, tmp_path: Path) -> None:
    pairs = bed()
    lines = [f"{i * scale},{o * scale},m" for i, o in pairs.tolist()]
    path = tmp_path / "bed.csv"
    path.write_text("\n".join(["id,ood,model", *lines, ",,lacks both", f"{50 * scale / 100},,lacks one"]))
    assert effective_robustness(0.8, 0.7, path) == pytest.approx(effective_robustness(0.8, 0.7, pairs))
    path.write_text("\n".join(["val,v2,model", *lines]))
    assert effective_robustness(0.8, 0.7, f"{path}#val,v2") == pytest.approx(effective_robustness(0.8, 0.7, pairs))


def test_the_testbeds_that_come_along() -> None:
    there = shipped_testbeds()
    assert {"imagenet-v2", "imagenet-r", "objectnet", "imagenet-sketch", "cifar10.1"} <= set(there)
    for name, pairs in there.items():
        assert len(pairs) >= 30 and ((pairs > 0) & (pairs < 1)).all()
        slope, _ = fit(name)
        residual = [effective_robustness(x, y, name) for x, y in pairs.tolist()]
        assert slope > 0.5 and abs(np.median(residual)) < 0.05, name
    # Known from its paper: on ImageNet-V2 models lose about 11 to 14 points around 75 %, and follow the line closely.
    assert effective_robustness(0.75, 0.63, "imagenet-v2") == pytest.approx(0, abs=0.02)
    # CIFAR-10.1 (Recht et al. 2018, table 1): VGG 93.6 % to 85.1 %, ResNet 92.5 % to 84.9 %, both near the line.
    assert effective_robustness(0.936, 0.851, "cifar10.1") == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((76.1, 0.5, bed()), "id_accuracy is a fraction in (0, 1); got 76.1 (percent? 0.761)"),
        ((0.5, 1.0, bed()), "ood_accuracy is a fraction"),
        ((float("nan"), 0.5, bed()), "id_accuracy"),
        ((0.5, 0.5, "imagenet-v3"), "Did you mean 'imagenet-v2'"),
        ((0.5, 0.5, "/nowhere/bed.csv"), "/nowhere/bed.csv"),
        ((0.5, 0.5, [[0.5, 0.4], [0.6, 0.5]]), "at least 3 models; got 2"),
        ((0.5, 0.5, [0.5, 0.4, 0.3]), "pairs [M, 2]"),
        ((0.5, 0.5, [[0.5, 0.4], [0.6, 0.0], [0.7, 0.6]]), "fractions in (0, 1); got 0"),
        ((0.5, 0.5, [[0.5, 0.4], [0.5, 0.3], [0.5, 0.6]]), "differ in id accuracy"),
    ],
)
def test_what_it_refuses(given: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError) as raised:
        effective_robustness(*given)  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bed.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="columns id and ood"):
        effective_robustness(0.5, 0.5, tmp_path / "bed.csv")
