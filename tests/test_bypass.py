"""Networks that use their input beside the stem are refused, by the place where they do; others never are."""

from __future__ import annotations

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from test_core import randomise, seeded
from torch import Tensor, nn

from anchored import anchor
from anchored.system.errors import InputError


class Base(nn.Module):
    """A stem, a head, and in subclasses what happens beside them."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mixed(x).mean((2, 3)))

    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x)


class Skip(Base):
    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + x


class SkipInPlace(Base):
    def mixed(self, x: Tensor) -> Tensor:
        features = self.act(self.norm(self.stem(x)))
        features += x
        return features


class SkipNormalised(Base):
    """The normalisation before both feeds the stem too, and is not what is wrong."""

    def mixed(self, x: Tensor) -> Tensor:
        x = self.norm((x - 0.4) / 0.2)
        return self.stem(x) + F.interpolate(x, scale_factor=1.0)


class Concatenated(Base):
    def __init__(self) -> None:
        super().__init__(6)

    def mixed(self, x: Tensor) -> Tensor:
        return torch.cat([self.stem(x), x], 1)


class Pooled(Base):
    """A pooled copy beside the stem, through a module, computed before the stem is called."""

    def mixed(self, x: Tensor) -> Tensor:
        small = self.pool(x)
        return self.pool(self.act(self.stem(x))) + small


class Gated(Base):
    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) * torch.sigmoid(x.amax((2, 3), keepdim=True))


class Functional(Base):
    """A second convolution that is no layer."""

    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + F.conv2d(x, self.stem.weight, padding=1)


class Transposed(Base):
    """A layer of a type that is never a stem."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 3, 1)

    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + self.up(x)


class AtTheLogits(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.square().mean((1, 2, 3))[:, None]


class Untrained(Skip):
    """A head of zeros: the logits depend on nothing yet."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.head.weight)


class Attribute(Base):
    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + x.mT


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Skip()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.body(x)}


class Masked(Base):
    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) * (x > 0)


class Detached(Base):
    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + x.detach()


class WithoutGradients(Skip):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


class WorkedInPlace(Base):
    """What autograd cannot follow: views of one call changed in place."""

    def mixed(self, x: Tensor) -> Tensor:
        for channel, mean in zip(x.unbind(1), (0.4, 0.5, 0.6), strict=True):
            channel.sub_(mean)
        return self.stem(x) + x


THE_MODEL = r"in the model itself \(\w+\), line \d+ of test_bypass.py"
BESIDE = [
    (Skip, rf"beside the stem 'stem': by add {THE_MODEL}"),
    (SkipInPlace, f"by i?add {THE_MODEL}"),
    (SkipNormalised, f"by interpolate {THE_MODEL}"),
    (Concatenated, f"by cat {THE_MODEL}"),
    (Pooled, r"by avg_pool2d in 'pool' \(AvgPool2d\), line \d+ of test_bypass.py"),
    (Gated, f"by amax {THE_MODEL}"),
    (Functional, f"by conv2d {THE_MODEL}"),
    (Transposed, r"by conv_transpose2d in 'up' \(ConvTranspose2d\)"),
    (AtTheLogits, f"by square {THE_MODEL}"),
    (Untrained, f"by add {THE_MODEL}"),
    (Attribute, f"by transpose {THE_MODEL}"),
    (Inner, r"beside the stem 'body.stem': by add in 'body' \(Skip\)"),
    (Masked, r"it changes the output of 'head' \(Linear\), by an operation that has no gradient"),
    (Detached, r"it changes the output of 'head' \(Linear\)"),
    (WithoutGradients, r"it changes the output of 'head' \(Linear\)"),
    (WorkedInPlace, r"it changes the output of 'head' \(Linear\)"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("make", "message"), BESIDE, ids=lambda value: getattr(value, "__name__", ""))
def test_the_input_beside_the_stem_is_refused_where_it_is_used(make: type[nn.Module], message: str, dtype) -> None:
    model = make().to(dtype)
    for example in (torch.rand(2, 3, 8, 8, dtype=dtype), seeded(1, 3, 8, 8).to(dtype)):
        before = example.clone()
        with pytest.raises(InputError, match=message) as error:
            anchor(model, example=example)
        assert "1x1 convolution that starts as the identity" in str(error.value)
        assert torch.equal(example, before)


class Followed(Skip):
    """`Skip` with the advice followed: a 1x1 convolution that starts as the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.Conv2d(3, 3, 1, bias=False)

    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + self.skip(x)


def test_the_advice_leads_to_an_anchored_network_of_the_same_function() -> None:
    skip = randomise(Skip())
    model = Followed().double().eval()
    model.load_state_dict(skip.state_dict(), strict=False)
    with torch.no_grad():
        model.skip.weight.copy_(torch.eye(3)[:, :, None, None])
    x = seeded(4, 3, 8, 8)
    net = anchor(model, example=x)
    assert net.stems == ("stem", "skip")
    torch.testing.assert_close(net(x, x.flip(0)), skip(x), rtol=0, atol=1e-12)


def test_naming_one_of_two_stems_is_refused() -> None:
    with pytest.raises(InputError, match=r"by conv2d in 'skip' \(Conv2d\).*leave it out"):
        anchor(Followed(), example=torch.rand(2, 3, 8, 8), stem="stem")


class Shapes(Base):
    """Uses of the input that carry nothing of it: shapes, types, zeros."""

    def mixed(self, x: Tensor) -> Tensor:
        grid = torch.linspace(0, 1, x.shape[-1], dtype=x.dtype).expand_as(x)
        return self.stem(x) + grid + torch.zeros_like(x) + x.new_ones(()) * x.shape[0] / len(x)


class Prepared(Base):
    """Everything that only feeds the stem, in place and not."""

    def mixed(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 3
        x -= 0.4
        x = self.norm(x.div_(0.2))
        return self.act(self.stem(F.pad(x, (1, 1, 1, 1), mode="reflect")))


class PreparedByChannel(Base):
    def mixed(self, x: Tensor) -> Tensor:
        for channel, mean in zip(x.unbind(1), (0.4, 0.5, 0.6), strict=True):
            channel.sub_(mean)
        return self.act(self.stem(x))


class Reported(Base):
    """Returns other things of its input, which no prediction uses."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"brightness": x.mean((1, 2, 3)), "logits": super().forward(x)}


class Noisy(Base):
    """Draws at random in eval mode, whatever the input."""

    def mixed(self, x: Tensor) -> Tensor:
        return self.stem(x) + random.random()


class Refusing(Base):
    """Takes the range of images only."""

    def mixed(self, x: Tensor) -> Tensor:
        if float(x.min()) < 0:
            raise ValueError("pixels lie in [0, 1]")
        return self.stem(x)


@pytest.mark.parametrize("make", [Base, Shapes, Prepared, PreparedByChannel, Reported, Followed, Noisy, Refusing])
def test_what_only_feeds_stems_is_not_refused(make: type[nn.Module]) -> None:
    random.seed(0)
    model = randomise(make())
    for parameter in (model.head.weight, model.norm.bias):
        parameter.requires_grad_(False)
    x, r = seeded(4, 3, 8, 8).abs(), seeded(4, 3, 8, 8, seed=1).abs()
    images, references = x.clone(), r.clone()
    net = anchor(model, example=x)
    assert torch.equal(x, images)
    frozen = {name for name, parameter in net.net.named_parameters() if not parameter.requires_grad}
    assert frozen == {"head.weight", "norm.bias"}, "what was trained is trained"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    if make is Noisy:
        return
    expected = copy.deepcopy(model)(x.clone())
    expected = expected["logits"] if isinstance(expected, dict) else expected
    for k in (1, 3):
        many = net.many(x.clone(), r[:k])
        torch.testing.assert_close(many, expected.expand_as(many), rtol=0, atol=1e-12)
    torch.testing.assert_close(net(x.clone(), r), expected, rtol=0, atol=1e-12)
    assert torch.equal(r, references), "a reference is used again"
