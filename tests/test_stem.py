"""Stems that do not use their weight as it stands: standardised, parametrised, padded in their own way."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from test_core import randomise, seeded
from timm.layers import Conv2dSame, ScaledStdConv2d, ScaledStdConv2dSame, StdConv2d, StdConv2dSame
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from anchored import Anchored, anchor, fold
from anchored.method.stem import LINEAR, Halves, Stem


def old(function: str, layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the older weight_norm is deprecated, and still in use
        return getattr(nn.utils, function)(layer)


def conv(kind: type[nn.Conv2d] = nn.Conv2d, **options) -> nn.Module:
    return kind(3, 8, 3, stride=2, **options)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "StdConv2d": lambda: conv(StdConv2d, padding=1, bias=True),
    "StdConv2dSame": lambda: conv(StdConv2dSame),
    "ScaledStdConv2d": lambda: conv(ScaledStdConv2d, padding=1),
    "ScaledStdConv2dSame": lambda: conv(ScaledStdConv2dSame),
    "Conv2dSame": lambda: conv(Conv2dSame),
    "weight_norm": lambda: parametrizations.weight_norm(conv(padding=1)),
    "spectral_norm": lambda: parametrizations.spectral_norm(conv(padding=1)),
    "weight_norm of a Linear": lambda: parametrizations.weight_norm(nn.Linear(108, 8)),
    "grouped weight_norm": lambda: parametrizations.weight_norm(nn.Conv2d(3, 6, 3, groups=3)),
    "older weight_norm": lambda: old("weight_norm", conv()),
    "older spectral_norm": lambda: old("spectral_norm", conv(padding=1)),
}


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    layer = LAYERS[name]()
    start: list[nn.Module] = [nn.Flatten()] if isinstance(layer, nn.Linear) else []
    pool: list[nn.Module] = [] if start else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    out = 6 if name.startswith("grouped") else 8
    model = nn.Sequential(*start, layer, nn.GELU(), *pool, nn.Linear(out, 5)).double()
    model(seeded(2, 3, 6, 6))  # in training mode: the older spectral_norm leaves a weight that is no leaf
    return model.eval()


@pytest.fixture(params=LAYERS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return built(request.param)


def trained(net: Anchored) -> Anchored:
    """Gradient steps on the stem: what parametrisations allow, and no more."""
    optimiser = torch.optim.SGD([p for layer in net.stem_layers() for p in layer.parameters()], lr=3.0)
    for step in range(3):
        net(seeded(4, 3, 6, 6, seed=step), seeded(4, 3, 6, 6, seed=step + 9)).square().sum().backward()
        for layer in net.stem_layers():
            assert isinstance(layer.layer, Halves)
            for half in (layer.layer.reference, layer.layer.residual):
                gradients = [p.grad for p in half.parameters() if p.ndim > 1]
                assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
        optimiser.step()
        optimiser.zero_grad()
    return net


def test_function_preserved_and_folded_exactly(model: nn.Module) -> None:
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    net = anchor(model, example=x)
    torch.testing.assert_close(net(x, r), model(x), rtol=0, atol=1e-12)
    net = trained(net)
    references = [r[:1], torch.full_like(r[:1], 0.7), torch.zeros_like(r[:1])]
    for reference in references:
        torch.testing.assert_close(fold(net, reference)(x), net(x, reference), rtol=0, atol=1e-12)
        torch.testing.assert_close(net.many(x, reference)[0], net(x, reference), rtol=0, atol=1e-12)
    assert not torch.allclose(net(x, references[0]), net(x, references[2]))
    torch.testing.assert_close(net(x, r, masked=True), net(x - r, torch.zeros_like(r)), rtol=0, atol=1e-12)


def test_folded_is_an_ordinary_model_that_can_be_stored(model: nn.Module) -> None:
    net = trained(anchor(model, example=seeded(2, 3, 6, 6)))
    folded = fold(net, seeded(1, 3, 6, 6, seed=3))
    assert not any(isinstance(module, (Stem, Halves)) for module in folded.modules())
    assert not any(nn.utils.parametrize.is_parametrized(module) for module in folded.modules())
    assert len(list(folded.parameters())) <= len(list(model.parameters()))
    stored = io.BytesIO()
    torch.save(folded, stored)
    stored.seek(0)
    again = torch.load(stored, weights_only=False)
    x = seeded(2, 3, 6, 6)
    torch.testing.assert_close(again(x), net(x, seeded(1, 3, 6, 6, seed=3)), rtol=0, atol=1e-12)


def effective(half: nn.Module, x: Tensor) -> Tensor:
    return half(x) - half(torch.zeros_like(x))


def test_fresh_halves_are_drawn_apart_at_the_scale_of_a_wide_layer(model: nn.Module) -> None:
    torch.manual_seed(3)
    net = anchor(model, example=seeded(2, 3, 6, 6), init="fresh")
    (stem,) = net.stem_layers()
    halves = stem.layer
    assert isinstance(halves, Halves) and halves.reference.bias is None
    u = seeded(4, 3, 6, 6).flatten(1) if isinstance(halves.residual, nn.Linear) else seeded(4, 3, 6, 6)
    assert not torch.allclose(effective(halves.reference, u), effective(halves.residual, u))
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    assert not torch.allclose(net(x, r), model(x))
    torch.testing.assert_close(fold(net, r[:1])(x), net(x, r[:1]), rtol=0, atol=1e-12)
    if type(halves.residual) is Conv2dSame or nn.utils.parametrize.is_parametrized(halves.residual):
        torch.manual_seed(3)
        plain = next(kind for kind in LINEAR if isinstance(halves.residual, kind))
        if plain is nn.Conv2d and "spectral" not in str(halves.residual).lower():
            groups = halves.residual.groups
            wide = nn.Conv2d(6, halves.residual.out_channels, 3, groups=groups, dtype=torch.float64)
            for half, part in zip((halves.reference, halves.residual), wide.weight.chunk(2, dim=1), strict=True):
                torch.testing.assert_close(half.weight, part, rtol=0, atol=1e-12)


def test_the_model_is_not_touched(model: nn.Module) -> None:
    before = copy.deepcopy(model.state_dict())
    x = seeded(2, 3, 6, 6)
    expected = model(x)
    anchor(model, example=x, init="fresh")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


def test_a_copy_of_an_anchored_network_is_one(model: nn.Module) -> None:
    x, r = seeded(2, 3, 6, 6), seeded(2, 3, 6, 6, seed=1)
    net = anchor(model, example=x)
    with torch.no_grad():  # the older norms keep a weight that is no leaf after a pass with gradients
        expected = net(x, r)
    for copied in (copy.deepcopy(net), copy.deepcopy(net.stem_layers()[0])):
        stem = copied.stem_layers()[0] if isinstance(copied, Anchored) else copied
        assert type(stem) is Stem and type(stem.layer) is Halves
    torch.testing.assert_close(copy.deepcopy(net)(x, r), expected, rtol=0, atol=1e-12)


class Rectified(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


def test_a_layer_that_is_not_linear_is_refused_by_name() -> None:
    model = randomise(nn.Sequential(Rectified(3, 4, 3), nn.Flatten(), nn.Linear(64, 5)))
    with pytest.raises(ValueError, match="'0', a Rectified, is not linear itself"):
        anchor(model, example=seeded(2, 3, 6, 6))
