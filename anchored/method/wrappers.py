"""What only runs the module inside it (compiled, parallel) is taken off: anchored is the network, not its runner."""

from __future__ import annotations

import inspect
import types

import torch
from torch import nn
from torch.nn.modules.module import _forward_unimplemented

from anchored.system.errors import InputError

SHARDED = {"FullyShardedDataParallel", "FSDPModule"}  # by name: importing them takes long and is not always possible


def unwrapped(model: nn.Module) -> nn.Module:
    """The network that `model` runs: the module inside torch.compile, DataParallel and DistributedDataParallel.

    Raises InputError for what cannot be anchored as it is and says what to pass instead: a sharded or scripted model,
    one on the meta device, a holder without a forward, a wrapper with forward hooks.
    """
    while (inner := inside(model)) is not None:
        model = inner
    _check(model)
    return model


def patched(net: nn.Module) -> list[str]:
    """Names of the modules whose `forward` was replaced on the object: it may still run what it was copied from."""
    return [name for name, module in net.named_modules() if "forward" in vars(module)]


def inside(module: nn.Module) -> nn.Module | None:
    """The module that a wrapper runs; None where `module` is no wrapper."""
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        inner = module.module
    elif "_orig_mod" in module._modules:  # torch.compile's OptimizedModule, whose import takes a second
        inner = module._modules["_orig_mod"]
    else:
        return None
    if module._forward_hooks or module._forward_pre_hooks:
        raise InputError(
            f"the {type(module).__name__} around the {type(inner).__name__} has forward hooks, which would be lost "
            "with it. Register them on the module inside, or pass that module."
        )
    return inner


def _check(model: nn.Module) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("the model is scripted (torch.jit). Pass the nn.Module that it was made from.")
    for name, module in model.named_modules():
        sharded = SHARDED & {kind.__name__ for kind in type(module).__mro__}
        if sharded:
            raise InputError(
                f"{name or 'the model'} is sharded ({sharded.pop()}), so that no process holds its weights. Anchor the "
                "model before sharding, then shard the result."
            )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise InputError(
                f"{name} is on the meta device, where nothing can be computed and so no stem be found. Give the model "
                "memory and weights (model.to_empty(device='cpu'), then load_state_dict), anchor it, move the result."
            )
    if type(model).forward is _forward_unimplemented and "forward" not in vars(model):
        parts = ", ".join(f".{name} ({type(part).__name__})" for name, part in model.named_children())
        raise InputError(
            f"the {type(model).__name__} has no forward. Pass the classifier it holds; it has {parts or 'no module'}."
        )


def drop_compiled_forward(module: nn.Module) -> None:
    """Undo `module.forward = torch.compile(module.forward)`, which in a copy would still run the original."""
    compiled = vars(module).get("forward")
    if not hasattr(compiled, "_torchdynamo_orig_callable"):
        return
    plain = inspect.unwrap(compiled)  # type: ignore[arg-type]
    if isinstance(plain, types.MethodType):
        module.forward = types.MethodType(plain.__func__, module)
    if getattr(plain, "__func__", None) is type(module).forward:
        del module.forward
