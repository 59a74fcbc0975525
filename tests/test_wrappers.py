"""What only runs a network (compiled, parallel) is taken off; what cannot be anchored as it is says what to pass."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from test_core import halves_differ, padded, randomise, seeded
from torch import Tensor, nn

from anchored import anchor, fold
from anchored.system.errors import InputError

EAGER = "eager"  # of torch.compile: needs no compiler


class PassThrough(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Holder(nn.Module):
    """Keeps a network and cannot run."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


def in_place(net: nn.Module) -> nn.Module:
    net.compile(backend=EAGER)
    return net


def of_forward(net: nn.Module) -> nn.Module:
    net.forward = torch.compile(net.forward, backend=EAGER)
    return net


def of_parts(net: nn.Module) -> nn.Module:
    net[0] = torch.compile(net[0], backend=EAGER)
    net[1] = nn.DataParallel(net[1])
    net[4].compile(backend=EAGER)
    return net


TAKEN_OFF: dict[str, Callable[[nn.Module], nn.Module]] = {
    "torch.compile": lambda net: torch.compile(net, backend=EAGER),
    "DataParallel": nn.DataParallel,
    "DistributedDataParallel": nn.parallel.DistributedDataParallel,
    "torch.compile of DataParallel": lambda net: torch.compile(nn.DataParallel(net), backend=EAGER),
    "DataParallel of torch.compile": lambda net: nn.DataParallel(torch.compile(net, backend=EAGER)),
    "Module.compile": in_place,
    "compiled forward": of_forward,
    "parts": of_parts,
}
KEPT: dict[str, Callable[[nn.Module], nn.Module]] = {
    "pass-through": PassThrough,
    "pass-through of torch.compile": lambda net: PassThrough(torch.compile(net, backend=EAGER)),
    "pass-through of DistributedDataParallel": lambda net: PassThrough(nn.parallel.DistributedDataParallel(net)),
    "averaged": torch.optim.swa_utils.AveragedModel,
}


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("ran", [False, True], ids=["new", "has run"])
@pytest.mark.parametrize("name", [*TAKEN_OFF, *KEPT])
def test_the_network_inside_is_anchored_and_folded(name: str, ran: bool) -> None:
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    plain = randomise(padded())
    wrapped = (TAKEN_OFF | KEPT)[name](copy.deepcopy(plain))
    if ran:
        with torch.no_grad():  # else dynamo has warnings of its own
            wrapped(x)
    before = copy.deepcopy(wrapped.state_dict())
    modules = list(wrapped.modules())
    net = anchor(wrapped, example=x)
    torch.testing.assert_close(net(x, r), plain(x), rtol=0, atol=1e-12)
    if name in TAKEN_OFF:
        assert net.stems == ("0",) and {key for key in net.state_dict() if ".0." not in key} == {
            f"net.{key}" for key in plain.state_dict() if not key.startswith("0.")
        }
    net = halves_differ(net)
    torch.testing.assert_close(fold(net, r[:1])(x), net(x, r[:1]), rtol=0, atol=1e-12)
    torch.save(net, io.BytesIO())  # nothing compiled is left, which could not be stored
    assert list(wrapped.modules()) == modules and wrapped.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in wrapped.state_dict().items())


def test_modules_that_share_a_layer_still_share_it() -> None:
    layer = nn.Linear(8, 8)
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 8), nn.DataParallel(layer), nn.ReLU(), layer, nn.Linear(8, 5))
    anchored = anchor(randomise(net), example=seeded(2, 3, 6, 6))
    assert anchored.net[2] is anchored.net[4] and type(anchored.net[2]) is nn.Linear and anchored.net[2] is not layer


def test_the_anchored_network_can_be_wrapped_again() -> None:
    x, r = seeded(4, 3, 6, 6), seeded(4, 3, 6, 6, seed=1)
    net = anchor(torch.compile(randomise(padded()), backend=EAGER), example=x)
    for wrapped in (nn.DataParallel(net), torch.compile(net, backend=EAGER)):
        torch.testing.assert_close(wrapped(x, r), net(x, r), rtol=0, atol=1e-12)


def hooked() -> nn.Module:
    wrapped = torch.compile(padded(), backend=EAGER)
    wrapped.register_forward_hook(lambda module, inputs, output: 2 * output)
    return wrapped


def sharded() -> nn.Module:
    class FSDPModule(nn.Sequential):
        """Stands for the class of this name that fully_shard mixes in."""

    return nn.Sequential(FSDPModule(nn.Conv2d(3, 4, 3)), nn.Flatten())


def scripted() -> nn.Module:
    return torch.jit.script(padded())


def patched() -> nn.Module:
    net = padded()
    forward = net.forward
    net.forward = lambda x: forward(x)  # holds on to this network, whatever it is copied to
    return net


def partly_on_meta() -> nn.Module:
    net = padded()
    net[4].to("meta")
    return net


def buffer_on_meta() -> nn.Module:
    net = padded()
    net[1].running_mean = net[1].running_mean.to("meta")
    return net


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (hooked, "OptimizedModule around the Sequential has forward hooks.*pass that module"),
        (sharded, r"0 is sharded \(FSDPModule\).*before sharding"),
        (scripted, r"scripted.*Pass the nn.Module"),
        (patched, r"forward of the model was replaced on the object.*del module.forward"),
        (
            lambda: Holder(padded()),
            r"Holder has no forward. Pass the classifier it holds; it has .inner \(Sequential\)",
        ),
        (lambda: torch.compile(Holder(padded()), backend=EAGER), "Holder has no forward"),
        (lambda: padded().to("meta"), r"0.weight is on the meta device.*to_empty"),
        (lambda: nn.DataParallel(padded()).to("meta"), "0.weight is on the meta device"),
        (partly_on_meta, "4.weight is on the meta device"),
        (buffer_on_meta, "1.running_mean is on the meta device"),
        (lambda: torch.compile(anchor(padded(), example=torch.rand(2, 3, 6, 6)), backend=EAGER), "anchored already"),
        (lambda: nn.Sequential(anchor(padded(), example=torch.rand(2, 3, 6, 6))), "anchored already"),
        (lambda: nn.Sequential(anchor(padded(), example=torch.rand(2, 3, 6, 6)).net), "anchored already"),
    ],
)
def test_what_cannot_be_anchored_as_it_is_says_what_to_pass(make: Callable[[], nn.Module], message: str) -> None:
    model = make()
    with pytest.raises(InputError, match=message):
        anchor(model, example=torch.rand(2, 3, 6, 6))
