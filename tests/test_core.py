"""The identities of anchoring, in float64."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored import Anchored, anchor, anchored_loss, fold
from anchored.method.stem import Stem


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=stream, dtype=parameter.dtype))
    return model.double().eval()


def padded() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(8 * 36, 5),
    )


def unpadded() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 2, stride=2, bias=False), nn.GELU(), nn.Flatten(), nn.Linear(8 * 9, 5))


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)
    )


def dilated_reflect() -> nn.Module:
    stem = nn.Conv2d(3, 6, 3, dilation=2, padding=2, padding_mode="reflect")
    return nn.Sequential(stem, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 8), nn.ReLU(), nn.Linear(8, 5))


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Conv2d(3, 4, 1)
        self.far = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.near(x) + self.far(x)).mean((2, 3)))


class Normalised(nn.Module):
    """Normalisation inside the model, before the stem."""

    def __init__(self) -> None:
        super().__init__()
        self.body = padded()

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 3, "channel checks around the stem never see 2C"
        return self.body((x - 0.4) / 0.2)


class Patches(nn.Module):
    """A patch embedding written as a Linear on reshaped patches."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * 4, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, 2, stride=2).transpose(1, 2)
        assert self.embed.weight.dtype == x.dtype  # attributes of the stem stay readable
        return self.head(F.gelu(self.embed(patches)).mean(1))


MODELS = [padded, unpadded, grouped, dilated_reflect, linear, TwoBranches, Normalised, Patches]


@pytest.fixture(params=MODELS, ids=lambda make: make.__name__)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return randomise(request.param())


def halves_differ(net: Anchored) -> Anchored:
    """Undo the symmetry of [W; W], as training does."""
    for layer in net.stem_layers():
        weight = layer.layer.weight
        assert isinstance(weight, nn.Parameter)
        weight.data += 0.2 * seeded(*weight.shape, seed=9)
    return net


def test_anchoring_preserves_the_function(model: nn.Module) -> None:
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    before = copy.deepcopy(model.state_dict())
    net = anchor(model, example=x)
    torch.testing.assert_close(net(x, r), model(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(net(x, r[:1]), model(x), rtol=0, atol=1e-12)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "anchor must not touch the model"


def test_fold_equals_the_anchored_model(model: nn.Module) -> None:
    x = seeded(4, 3, 6, 6)
    net = halves_differ(anchor(model, example=x))
    references = [seeded(1, 3, 6, 6, seed=1), torch.full((1, 3, 6, 6), 0.7, dtype=torch.float64), 0 * x[:1]]
    for r in references:
        torch.testing.assert_close(fold(net, r)(x), net(x, r), rtol=0, atol=1e-12)
    assert not torch.allclose(net(x, references[0]), net(x, references[1])), "the test needs a reference that matters"


def test_fold_leaves_an_ordinary_model(model: nn.Module) -> None:
    net = halves_differ(anchor(model, example=seeded(2, 3, 6, 6)))
    folded = fold(net, seeded(1, 3, 6, 6))
    extra = set(folded.state_dict()) - set(model.state_dict())
    assert set(model.state_dict()) <= set(folded.state_dict())
    assert len(extra) <= len(net.stems)
    assert not any(isinstance(module, Stem) for module in folded.modules())
    assert {n: v.shape for n, v in folded.state_dict().items() if n not in extra} == {
        n: v.shape for n, v in model.state_dict().items()
    }


def test_many_references_equal_one_at_a_time(model: nn.Module) -> None:
    x, r = seeded(4, 3, 6, 6), seeded(3, 3, 6, 6, seed=1)
    net = halves_differ(anchor(model, example=x))
    expected = torch.stack([net(x, one) for one in r.split(1)])
    torch.testing.assert_close(net.many(x, r), expected, rtol=0, atol=1e-12)


def test_both_halves_of_the_stem_learn(model: nn.Module) -> None:
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    net = anchor(model, example=x)
    net(x, r).square().sum().backward()
    for layer in net.stem_layers():
        gradient = layer.layer.weight.grad
        half = gradient.shape[1] // 2
        assert gradient[:, :half].abs().sum() > 0
        assert gradient[:, half:].abs().sum() > 0


def test_masking_leaves_the_residual_alone() -> None:
    net = halves_differ(anchor(randomise(padded()), example=seeded(2, 3, 6, 6)))
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    received = []
    net.net[0].layer.register_forward_pre_hook(lambda module, inputs: received.append(inputs[0]))
    net(x, r)
    net(x, r, masked=True)
    plain, masked = received
    assert torch.equal(masked[:, 3:], plain[:, 3:]) and torch.equal(plain[:, 3:], x - r)
    assert torch.equal(plain[:, :3], r) and not masked[:, :3].any()
    # masking is not the zero reference: [0, x - r] against [0, x]
    assert not torch.allclose(net(x, r, masked=True), net(x, torch.zeros_like(r)))
    torch.testing.assert_close(net(x, r, masked=True), net(x - r, torch.zeros_like(r)), rtol=0, atol=1e-12)


def test_constant_reference_and_unpadded_stem_fold_into_a_bias_of_any_size() -> None:
    head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    model = randomise(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), *head))
    net = halves_differ(anchor(model, example=seeded(2, 3, 6, 6)))
    folded = fold(net, torch.full((3, 6, 6), 0.5, dtype=torch.float64))
    assert type(folded[0]) is nn.Conv2d
    assert set(folded.state_dict()) - set(model.state_dict()) == {"0.bias"}
    x = seeded(2, 3, 9, 7)
    torch.testing.assert_close(folded(x), net(x, torch.full_like(x[:1], 0.5)), rtol=0, atol=1e-12)


def test_folded_map_refuses_another_size_naming_both() -> None:
    model = randomise(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    folded = fold(anchor(model, example=seeded(2, 3, 6, 6)), seeded(1, 3, 6, 6))
    with pytest.raises(ValueError, match=r"\[4, 6, 6\].*\[4, 8, 8\]"):
        folded(seeded(1, 3, 8, 8))
    stored = io.BytesIO()
    torch.save(folded, stored)  # folded layers are ordinary, picklable classes


def test_fresh_stem_is_a_default_layer_of_twice_the_channels() -> None:
    model = randomise(padded())
    torch.manual_seed(5)
    net = anchor(model, example=seeded(2, 3, 6, 6), init="fresh")
    torch.manual_seed(5)
    expected = nn.Conv2d(6, 8, 3, padding=1, bias=False, dtype=torch.float64)
    assert torch.equal(net.net[0].layer.weight, expected.weight)


def test_loss_of_a_masked_batch_is_the_cross_entropy_to_uniform() -> None:
    net = halves_differ(anchor(randomise(padded()), example=seeded(2, 3, 6, 6)))
    x, r, y = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1), torch.tensor([0, 1, 2, 3])
    masked = net(x, r, masked=True).log_softmax(1)
    torch.testing.assert_close(anchored_loss(net, x, y, r, masked=True), -masked.mean())
    by_label = anchored_loss(net, x, y, r, masked=True, masked_target="label")
    torch.testing.assert_close(by_label, F.nll_loss(masked, y))
    plain = anchored_loss(net, x, y, r, masked=False)
    torch.testing.assert_close(plain, F.cross_entropy(net(x, r), y))
    soft = F.one_hot(y, 5).double()
    torch.testing.assert_close(anchored_loss(net, x, soft, r, masked=False), plain)


def test_criterion_of_class_indices_is_named() -> None:
    net = anchor(randomise(padded()), example=seeded(2, 3, 6, 6))
    x, y = seeded(4, 3, 6, 6), torch.tensor([0, 1, 2, 3])
    with pytest.raises(TypeError, match="MultiMarginLoss"):
        anchored_loss(net, x, y, x.flip(0), masked=True, criterion=nn.MultiMarginLoss())


def test_outputs_with_logits_are_unwrapped() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = padded()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"loss": x.sum(), "logits": self.body(x)}

    model = randomise(Wrapped())
    x = seeded(2, 3, 6, 6)
    torch.testing.assert_close(anchor(model, example=x)(x, x.flip(0)), model(x)["logits"], rtol=0, atol=1e-12)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.stem(F.max_pool2d(x.exp(), 2)).mean((2, 3))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.stem(x) + self.stem(x.flip(3))).mean((2, 3))


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (Pooled(), {}, "'stem' receives a non-linear function"),
        (Twice(), {}, "'stem' is called 2 times"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), {}, "no Conv1d/2d/3d or Linear"),
        (padded(), {"stem": "9"}, "stem='9' names no"),
        (padded(), {"init": "half"}, "init is 'preserve' or 'fresh'"),
    ],
)
def test_what_cannot_be_anchored_is_refused_by_name(model: nn.Module, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        anchor(model, example=torch.rand(2, 3, 6, 6), **arguments)


def test_wrong_reference_shape_is_refused_with_both_shapes() -> None:
    net = anchor(padded(), example=torch.rand(2, 3, 6, 6))
    with pytest.raises(ValueError, match=r"\[3, 3, 6, 6\] for \[4, 3, 6, 6\]"):
        net(torch.rand(4, 3, 6, 6), torch.rand(3, 3, 6, 6))


def test_modes_survive_anchoring_and_a_normalising_prefix() -> None:
    model = Normalised().train()
    model.body[1].eval()  # a frozen batch norm
    net = anchor(model, example=torch.rand(2, 3, 6, 6))
    net(torch.rand(4, 3, 6, 6), torch.rand(4, 3, 6, 6))
    assert net.net.training and not net.net.body[1].training
    assert copy.deepcopy(net) is not net  # nothing of the call is left that could not be copied
