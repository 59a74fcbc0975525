"""A trained run as one file that other programs run: ONNX, or a torch.export program. No anchoring cost is left in it.

`one_random` is the folded classifier: image -> logits. `k_random` computes, for each of its references, the folded
classifier of that reference, and returns the mean logits with their spread.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anchored.method.core import Anchored, _replace, fold
from anchored.method.stem import add_reference_map, copied, logits_of, narrow
from anchored.runs.run import Run, versions
from anchored.system.errors import InputError, unknown
from anchored.system.files import write_atomic
from anchored.system.network import first_line

ONNX_LIMIT = 2**31 - 1  # bytes in a protocol buffer


class Logits(nn.Module):
    """A classifier that returns its logits as a tensor."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return logits_of(self.net(x))


class SeveralReferences(nn.Module):
    """An anchored classifier with K references built in: x [B, C, H, W] -> (logits, std, energy).

    logits, std: [B, classes], as of `k_random` averaging logits; energy: [B]. references: [K, C, H, W], normalised.
    """

    def __init__(self, net: Anchored, references: Tensor) -> None:
        super().__init__()
        self.k = len(references)
        body = copied(net.net)
        self.stems = net.stems
        with torch.no_grad():
            for i, (layer, r) in enumerate(zip(net.stem_layers(), net._at_stems(references), strict=True)):
                self.register_buffer(f"maps{i}", layer.shift_of(r))
                stem = narrow(layer).train(layer.training)
                stem.register_buffer("reference_map", layer.shift_of(r[:1]))
                stem.register_forward_hook(add_reference_map)
                body = _replace(body, net.stems[i], stem)
        self.body = body

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        passes = []
        for k in range(self.k):
            maps = {
                f"{name}.reference_map".removeprefix("."): getattr(self, f"maps{i}")[k : k + 1]
                for i, name in enumerate(self.stems)
            }
            passes.append(logits_of(functional_call(self.body, maps, (x,))))
        logits = torch.stack(passes)
        return logits.mean(0), logits.softmax(-1).std(0), -logits.logsumexp(-1).mean(0)


def export(
    run: Run,
    path: str | os.PathLike[str],
    *,
    protocol: Literal["one_random", "k_random"] = "one_random",
    k: int = 10,
    reference: Literal["mean", "zero"] = "mean",
    seed: int = 0,
) -> Path:
    """Write `run` to `path` as `.onnx` or `.pt2` (torch.export), atomically, and return the path.

    Input "x": normalised images float32 [batch, 3, size, size] of any batch size. Outputs: "logits" [batch, classes];
    with k_random (k references drawn by `seed`) also "std" [batch, classes], the spread of the probabilities over
    references, and "energy" [batch], larger for anomalies. Preprocessing, classes, protocol and versions are in the
    file: ONNX metadata under keys `anchored.*` as JSON, in a .pt2 the extra file `anchored.json`. reference: that of
    one_random. A run of the method standard is exported as it is. Raises InputError for another ending or protocol,
    more references than the run has stored, a model that cannot be exported, or a path that cannot be written.
    """
    path = Path(path)
    if path.suffix not in WRITERS:
        raise unknown("ending", path.suffix or str(path), WRITERS)
    if path.suffix == ".onnx":
        _need_onnx()
    net, about = _deployed(run, protocol, k, reference, seed)
    about = {
        "model": run.config.model,
        "method": run.config.method,
        **about,
        "input": "float32 [batch, 3, size, size], RGB in [0, 1], minus mean, divided by std",
        "preprocess": {
            "size": run.preprocess.size,
            "resize_shorter_side_to": round(run.preprocess.size / run.preprocess.crop),
            "interpolation": run.preprocess.interpolation,
            "mean": list(run.preprocess.mean),
            "std": list(run.preprocess.std),
        },
        "classes": list(run.classes),
        "anomaly": run.info.get("anomaly"),
        "versions": versions(),
    }
    x = torch.zeros(2, 3, run.preprocess.size, run.preprocess.size)
    try:
        # The temporary file is made first, so a path that cannot be written is known before the work is done.
        write_atomic(path, lambda temporary: temporary.write_bytes(WRITERS[path.suffix](net, x, about)))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from error
    return path


def _deployed(run: Run, protocol: str, k: int, reference: str, seed: int) -> tuple[nn.Module, dict[str, Any]]:
    """The plain module to export, on the CPU and in eval mode, and what is to be said of it."""
    if protocol not in ("one_random", "k_random"):
        raise unknown("protocol of an export", protocol, ["one_random", "k_random"])
    if reference not in ("mean", "zero"):
        raise unknown("reference", reference, ["mean", "zero"])
    net = copied(run.net).cpu().eval().float().requires_grad_(False)
    if not isinstance(net, Anchored):
        if protocol != "one_random":
            warnings.warn(f"a standard run has no references: {protocol} has no effect", stacklevel=3)
        return Logits(net).eval(), {"protocol": "direct", "outputs": ["logits"]}
    assert run.references is not None
    if protocol == "k_random":
        if k < 2:
            raise InputError(f"k_random has a spread over k >= 2 references; got k = {k}.")
        drawn = run.references.sample(k, seed).cpu().float()
        about = {"protocol": "k_random", "k": k, "seed": seed, "outputs": ["logits", "std", "energy"]}
        return SeveralReferences(net, drawn).eval(), about
    mean = run.references.mean.cpu().float()
    folded = fold(net, mean if reference == "mean" else torch.zeros_like(mean))
    return Logits(folded).eval(), {"protocol": "one_random", "reference": reference, "outputs": ["logits"]}


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"export to .onnx needs the package {error.name}: pip install 'anchored[onnx]'. Export to .pt2 needs "
            "nothing more."
        ) from error


def _program(net: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    try:
        return torch.export.export(net, (x,), dynamic_shapes=({0: batch},), strict=False)
    except Exception as error:  # tracing fails in as many ways as there are models
        raise InputError(
            f"torch.export cannot trace this model with a free batch size ({type(error).__name__}: "
            f"{first_line(error)})."
        ) from error


def _onnx(net: nn.Module, x: Tensor, about: dict[str, Any]) -> bytes:
    import onnx

    if (size := sum(t.nbytes for t in [*net.parameters(), *net.buffers()])) > ONNX_LIMIT:
        raise InputError(f"the model has {size / 2**30:.1f} GiB and one ONNX file holds 2. Export it to .pt2.")
    program = _program(net, x)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about its own libraries
            converted = torch.onnx.export(
                program, dynamo=True, input_names=["x"], output_names=about["outputs"], verbose=False
            )
    except Exception as error:  # an operation without an ONNX form
        raise InputError(f"this model has no ONNX form ({type(error).__name__}: {first_line(error)}).") from error
    assert converted is not None
    model = converted.model_proto
    onnx.helper.set_model_props(
        model, {f"anchored.{key}": json.dumps(value, ensure_ascii=False) for key, value in about.items()}
    )
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _pt2(net: nn.Module, x: Tensor, about: dict[str, Any]) -> bytes:
    stored = io.BytesIO()
    extra = {"anchored.json": json.dumps(about, ensure_ascii=False)}
    torch.export.save(_program(net, x), stored, extra_files=extra)
    return stored.getvalue()


WRITERS: dict[str, Callable[[nn.Module, Tensor, dict[str, Any]], bytes]] = {".onnx": _onnx, ".pt2": _pt2}
