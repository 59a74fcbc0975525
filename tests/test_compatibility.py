"""Real architectures are anchored exactly: a few here, whole libraries under `-m slow`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fixtures import ROOT
from torch import Tensor, nn

from anchored.models import compatibility
from anchored.models.architectures import CASES, Case, hugging_face_cases, timm_cases, torchvision_cases
from anchored.models.compatibility import check, table

TIMM = (
    "byobnet",
    "convnext",
    "csatv2",  # three stems
    "efficientnet",
    "mobilenetv3",
    "nfnet",
    "resnet",
    "resnetv2",
    "vision_transformer",
)
TORCHVISION = ("googlenet", "mobilenet_v3_small", "shufflenet_v2_x0_5")
TRANSFORMERS = ("bit", "convnext", "resnet", "swin", "vit")


def found(family: str) -> Case:
    library, _, name = family.partition(":")
    if library == "torchvision":
        return next(case for case in torchvision_cases() if case.name == name)
    if library == "timm":
        return next(timm_cases([name]))
    pytest.importorskip("transformers")
    return next(hugging_face_cases([name]))


@pytest.mark.parametrize(
    "family",
    [f"timm:{name}" for name in TIMM]
    + [f"torchvision:{name}" for name in TORCHVISION]
    + [f"transformers:{name}" for name in TRANSFORMERS],
)
@pytest.mark.filterwarnings("ignore")  # of the libraries, about their own models
def test_a_family_is_anchored_exactly(family: str) -> None:
    result = check(found(family))
    assert result.ok, result.reason
    assert result.dtype == "float64" and result.preserved < 1e-9 and result.folded < 1e-9 and result.stems


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_whole_libraries() -> None:
    pytest.importorskip("transformers")
    results = [check(case) for cases in CASES.values() for case in cases()]
    refused = [result for result in results if not result.ok]
    assert len(results) > 190 and len(refused) <= 3, table(refused)


class Fixed(nn.Module):
    """A stem whose reference half is never used: what the check has to find."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.stem(x).mean((2, 3))


class Constant(Fixed):
    def forward(self, x: Tensor) -> Tensor:
        return 0 * super().forward(x) + 1


class Squared(Fixed):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x**2)


def case(make: type[nn.Module]) -> Case:
    return Case("ours", "none", make.__name__, lambda: (make(), 16))


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(case(Fixed)).ok
    assert "do not depend on the input" in check(case(Constant)).reason
    assert "non-linear function of the input" in check(case(Squared)).reason
    real = compatibility.fold
    monkeypatch.setattr(compatibility, "fold", lambda net, r: real(net, r + 1e-6))
    assert "folded differs" in check(case(Fixed)).reason
    monkeypatch.setattr(compatibility, "fold", real)
    monkeypatch.setattr(compatibility, "anchor", lambda model, example: compatibility_broken(model, example))
    assert "anchored differs" in check(case(Fixed)).reason


def compatibility_broken(model: nn.Module, example: Tensor) -> nn.Module:
    from anchored import anchor

    net = anchor(model, example=example)
    with torch.no_grad():
        net.stem_layers()[0].layer.weight[:, :3] *= 1 + 1e-6  # the reference half is a little off
    return net


def test_the_page_counts_and_gives_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cases() -> Iterator[Case]:
        yield case(Fixed)
        yield case(Squared)

    monkeypatch.setattr(compatibility, "CASES", {"ours": cases})
    compatibility.main(["--out", str(tmp_path / "page.md"), "--library", "ours"])
    page = (tmp_path / "page.md").read_text()
    assert "2 checked, 1 anchored, 1 refused" in page
    assert "| none | Fixed | stem (Conv2d 3x3) | 16 |" in page and "| ours | none | Squared | InputError:" in page


def test_the_published_page_covers_the_libraries() -> None:
    import timm

    page = (ROOT / "docs" / "compatibility.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    families = {row[0].strip("| ") for row in rows}
    if timm.__version__ in page:
        assert set(timm.list_modules()) <= families | {row[1] for row in rows}
    refused = page.partition("## Refused")[2].partition("\n## ")[0].count("\n| ") - 1
    assert refused <= 3
