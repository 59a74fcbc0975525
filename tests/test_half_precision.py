"""Networks in bfloat16 and float16: anchored like any other, and what ranks or is thresholded is float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_core import MODELS, Pooled, halves_differ, padded, randomise, seeded, unpadded
from test_stem import LAYERS, Rectified, built
from torch import Tensor, nn

from anchored import Prediction, ReferenceSet, anchor, direct, energy, fold, k_random, one_random, transduction
from anchored.data.base import ImageSet
from anchored.evaluation.scores import score
from anchored.method.protocols import Predict, nearest_reference
from anchored.method.stem import copied
from anchored.runs.threshold import anomaly_threshold
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

HALF = [torch.bfloat16, torch.float16]
NETWORKS: dict[str, Callable[[], nn.Module]] = {make.__name__: lambda make=make: randomise(make()) for make in MODELS}
NETWORKS |= {name: lambda name=name: built(name) for name in LAYERS}


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_function_is_preserved_up_to_the_rounding_of_the_network(name: str, dtype: torch.dtype) -> None:
    model = NETWORKS[name]().to(dtype)
    dtypes = {key: value.dtype for key, value in model.state_dict().items()}
    exact = copied(model).double()
    x, r = seeded(4, 3, 6, 6).to(dtype), seeded(4, 3, 6, 6, seed=1).to(dtype)
    with torch.no_grad():
        expected = exact(x.double())
        own = max(error(model(x), expected), torch.finfo(dtype).eps * float(expected.abs().max()))
        net = anchor(model, example=x)
        assert {p.dtype for p in net.parameters()} == {dtype} and net(x, r).dtype == dtype
        assert (net.stems, net.direct) == ((reference := anchor(exact, example=x.double())).stems, reference.direct)
        # the stem is applied to two halves and their sum: a few roundings more
        assert error(net(x, r), expected) < 8 * own
        assert error(net.many(x, r)[0], expected) < 8 * own
        assert {key: value.dtype for key, value in model.state_dict().items()} == dtypes
        for layer in net.stem_layers():  # as training does
            for p in layer.parameters():
                p.mul_(1 + 0.25 * seeded(*p.shape, seed=5).to(dtype))
        expected = copied(net).double()(x.double(), r[:1].double())
        for reference in (r[:1], r[0].double(), r[:1].float()):
            folded = fold(net, reference)
            assert {p.dtype for p in folded.parameters()} == {dtype}
            assert error(folded(x), expected) < 16 * own


@pytest.mark.parametrize("dtype", HALF)
def test_example_and_autocast_do_not_matter(dtype: torch.dtype) -> None:
    model = randomise(padded()).to(dtype)
    for example in (torch.rand(2, 3, 6, 6), torch.rand(1, 3, 6, 6).double(), torch.rand(2, 3, 6, 6).to(dtype)):
        assert anchor(model, example=example).stems == ("0",)
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    assert anchor(pooled.to(dtype)).stems == ("0",)
    assert anchor(pooled.to(dtype), init="fresh").net[0].layer.weight.dtype == dtype
    for own in (torch.float32, torch.float64):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert anchor(pooled.to(own), example=torch.rand(2, 3, 8, 8, dtype=own)).stems == ("0",)
            assert anchor(pooled.to(own), example=torch.rand(2, 3, 8, 8)).stems == ("0",)


class FixedDtype(nn.Module):
    """Casts its input to the dtype it was made for, so that no copy in float32 runs."""

    def __init__(self, dtype: torch.dtype, bend: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.dtype, self.bend = dtype, bend
        self.stem = nn.Conv2d(3, 4, 3, dtype=dtype)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bend(x).to(self.dtype)
        return self.head(self.stem(x).relu().mean((2, 3)).float())


@pytest.mark.parametrize("dtype", HALF)
def test_networks_of_several_dtypes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = FixedDtype(dtype, lambda x: (x - 0.4) / 0.2)
    net = anchor(model, example=torch.rand(2, 3, 8, 8))
    assert net.stems == ("stem",) and [p.dtype for p in net.parameters()] == [
        dtype,
        dtype,
        torch.float32,
        torch.float32,
    ]
    with pytest.raises(InputError, match="non-linear function"):
        anchor(FixedDtype(dtype, torch.exp), example=4 * torch.rand(2, 3, 8, 8))


class Bent(nn.Module):
    """A path to the stem that bends by less than bfloat16 rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.stem(x + 0.1 * torch.sigmoid(x)).mean((2, 3))


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Pooled, "'stem' receives a non-linear function"),
        (Bent, "'stem' receives a non-linear function"),
        (lambda: nn.Sequential(Rectified(3, 4, 3), nn.Flatten()), "'0', a Rectified, is not linear itself"),
    ],
)
def test_what_is_not_linear_is_refused_in_every_precision(make, message: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    with pytest.raises(InputError, match=message):
        anchor(make().to(dtype), example=2 * torch.rand(2, 3, 6, 6, dtype=dtype))


# --- what ranks or is thresholded ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF)
def test_every_protocol_predicts_in_float32(dtype: torch.dtype) -> None:
    net = halves_differ(anchor(randomise(unpadded()), example=seeded(2, 3, 6, 6))).to(dtype)
    references = ReferenceSet.from_images(seeded(20, 3, 6, 6, seed=3).float())
    x = seeded(5, 3, 6, 6).to(dtype)
    with torch.no_grad():
        logits = net.many(x, references.sample(6, seed=1).to(dtype)).double()
    assert net(x, x.flip(0)).dtype == dtype
    by_logits = k_random(net, references, k=6, seed=1)(x)
    torch.testing.assert_close(by_logits.logits.double(), logits.mean(0), rtol=0, atol=1e-5)
    torch.testing.assert_close(by_logits.std.double(), logits.softmax(-1).std(0), rtol=0, atol=1e-6)
    torch.testing.assert_close(by_logits.energy.double(), energy(logits).mean(0), rtol=0, atol=1e-5)
    torch.testing.assert_close(by_logits.probs.double(), logits.mean(0).softmax(-1), rtol=0, atol=1e-6)
    predictions = [
        by_logits,
        k_random(net, references, k=6, average="probs", tempering="amp")(x),
        k_random(net, references, k=1)(x),
        one_random(net, references)(x),
        one_random(net, None, reference="zero")(x),
        transduction(net, references, candidates=7, bank=30)(x),
        direct(fold(net, references.mean))(x),
    ]
    for made in predictions:
        values = [value for value in (made.logits, made.energy, made.std, made.disagreement) if value is not None]
        assert {value.dtype for value in [*values, made.probs]} == {torch.float32}
        assert all(value.isfinite().all() for value in values)
    double = one_random(net.double(), references)(x.double())
    assert {double.logits.dtype, double.energy.dtype, double.probs.dtype} == {torch.float64}


@pytest.mark.parametrize("dtype", HALF)
def test_what_is_ranked_keeps_its_order(dtype: torch.dtype) -> None:
    # Around 40 the steps of bfloat16 are 1/4, those of float16 1/32; these energies are closer together.
    logits = torch.tensor([[40.0, value] for value in (36.0, 36.25, 36.5, 36.75, 37.0, 37.25)], dtype=dtype)
    expected = energy(logits.double())
    assert len(energy(logits).to(dtype).unique()) < 6, "the test needs energies that half precision confuses"
    by_hand = Prediction(logits, energy(logits))
    for found in (energy(logits), by_hand.energy, direct(nn.Identity())(logits).energy):
        assert found.dtype == torch.float32 and len(found.unique()) == 6
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    assert len(by_hand.probs.amax(1).unique()) == 6 and by_hand.probs.dtype == torch.float32
    given = Prediction(logits, logits[:, 0], std=logits, disagreement=logits[:, 0])
    assert {getattr(given, name).dtype for name in ("logits", "energy", "std", "disagreement")} == {torch.float32}
    assert energy(logits.double()).dtype == torch.float64 and energy(logits.float()).dtype == torch.float32


@pytest.mark.parametrize("dtype", HALF)
def test_scores_of_logits_in_half_precision(dtype: torch.dtype) -> None:
    images = torch.arange(16, dtype=torch.uint8)[:, None, None, None].expand(16, 2, 2, 3)
    logits = torch.stack([torch.full((16,), 40.0), 36 + torch.arange(16) / 16], 1).to(dtype)

    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return logits

    found = score(
        Predict(written := Written(), lambda x: Prediction(written(x), energy(written(x))), "by hand"),
        images,
        torch.zeros(16, dtype=torch.int64),
        torch.arange(16),
        Preprocess(2, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        device=torch.device("cpu"),
    )
    exact = logits.double()
    torch.testing.assert_close(torch.from_numpy(found["energy"]), energy(exact).float())
    torch.testing.assert_close(torch.from_numpy(found["confidence"]), exact.softmax(1).amax(1).float())
    torch.testing.assert_close(torch.from_numpy(found["max_logit"]), exact.amax(1).float())


@pytest.mark.parametrize("dtype", HALF)
def test_a_threshold_of_logits_in_half_precision_keeps_the_part_asked_for(dtype: torch.dtype) -> None:
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            second = 36 + self.scale * x.mean((1, 2, 3))
            return torch.stack([torch.full_like(second, 40.0), second], 1).to(dtype)

    pixels = torch.arange(40, dtype=torch.uint8)[:, None, None, None].expand(40, 2, 2, 3)
    images, preprocess = ImageSet(pixels, torch.zeros(40, dtype=torch.int64)), Preprocess(2, (0.0,) * 3, (0.05,) * 3)
    net = Rounded()
    energies = energy(net(preprocess(pixels)).detach().double())
    assert len(energies.to(dtype).unique()) < len(energies.unique()), "the test needs energies that would be confused"
    for keep in (0.5, 0.95):
        found = anomaly_threshold(net, None, preprocess, validation=images, train=images, keep=keep)
        expected = torch.quantile(energies, keep, interpolation="higher")
        assert abs(found.energy - float(expected)) < 1e-5


@pytest.mark.parametrize("dtype", HALF)
def test_distances_of_transduction_are_not_in_half_precision(dtype: torch.dtype) -> None:
    x = seeded(40, 300).to(dtype)
    r, residuals = 0.02 * seeded(9, 300, seed=1), 0.02 * seeded(50, 300, seed=2)  # distances of nearly one size

    def search(x: Tensor, r: Tensor, residuals: Tensor) -> Tensor:
        distance = (x[:, None, None] - r[None, :, None] - residuals[None, None]).square().sum(-1)
        return distance.amin(2).argmin(1)

    expected = search(x.double(), r.float().double(), residuals.float().double())
    assert not torch.equal(search(x, r.to(dtype), residuals.to(dtype)), expected), "half precision must matter here"
    assert torch.equal(nearest_reference(x, r.float(), residuals.float()), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nearest_reference(x, r.float(), residuals.float()), expected)
    received: list[Tensor] = []

    class Chosen(nn.Module):
        def forward(self, x: Tensor, reference: Tensor) -> Tensor:
            received.append(reference)
            return x.flatten(1)[:, :5]

    references = ReferenceSet.from_images(r.float()[:, None, None])
    transduction(Chosen(), references, candidates=9, residuals=residuals.float())(x[:, None, None])  # type: ignore[arg-type]
    drawn = references.sample(9, seed=0)
    assert torch.equal(
        received[0], drawn.to(dtype)[search(x.double(), drawn.flatten(1).double(), residuals.float().double())]
    )
