"""Which classifiers can be anchored: the identities of anchoring, checked over whole libraries of models.

    python -m anchored.compatibility --out docs/compatibility.md

For every classifier of torchvision (of at most 150 M parameters), a small member of every family of timm, and families
of Hugging Face built from their configuration (random weights, nothing is downloaded): anchored == original,
fold == anchored, and the gradient reaches both halves of the stem.
"""

from __future__ import annotations

import argparse
import functools
import gc
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from anchored.core import Anchored, anchor, fold
from anchored.files import write_text
from anchored.models import create
from anchored.stem import Halves, logits_of
from anchored.weights import first_line

Make = Callable[[], tuple[nn.Module, int]]  # a new model and the side in pixels of the input it takes
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}  # of the largest logit; float64 finds anything but rounding
TOO_LARGE = 150_000_000  # parameters; such members of torchvision have the code of their smaller siblings


@dataclass(frozen=True)
class Case:
    """One model to check: its library, its family (the module it comes from), its name and how to make it."""

    library: str
    family: str
    name: str
    make: Make


@dataclass(frozen=True)
class Result:
    """What `check` found; errors are relative to the largest logit. `reason` is empty where everything holds."""

    case: Case
    reason: str = ""
    stems: tuple[str, ...] = field(default=())
    side: int = 0
    dtype: str = ""
    preserved: float = float("nan")
    folded: float = float("nan")

    @property
    def ok(self) -> bool:
        """Whether the model can be anchored and everything holds."""
        return not self.reason


class _Broken(Exception):
    """An identity does not hold, or could not be seen to."""


def check(case: Case) -> Result:
    """Anchor the model and test the identities, in float64 where the model can compute in it."""
    failures = []
    for dtype in (torch.float64, torch.float32):
        try:
            return _identities(case, dtype)
        except _Broken as error:
            return Result(case, str(error))
        except Exception as error:  # a model may fail in float64 in ways of its own: then float32 decides
            failures.append(f"{type(error).__name__}: {first_line(error)}")
        finally:
            gc.collect()
    return Result(case, failures[-1])


def _identities(case: Case, dtype: torch.dtype) -> Result:
    stream = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model, side = case.make()
    x, r = (torch.rand(2, 3, side, side, generator=stream).to(dtype) for _ in range(2))
    with torch.no_grad():
        model = _awake(model.to(dtype), x, stream)
        expected = logits_of(model(x))
        scale = float(expected.abs().max())
        if not scale > 0 or float((expected[0] - expected[1]).abs().max()) < 1e-6 * scale:
            raise _Broken("the logits do not depend on the input, so nothing could be checked")
        net = anchor(model, example=x)
        del model
        preserved = float((net(x, r) - expected).abs().max()) / scale
        if not preserved <= TOLERANCE[dtype]:
            raise _Broken(f"anchored differs from the original by {preserved:.1e} of the largest logit")
        for parameter in _stem_weights(net):  # undo the symmetry of the halves, as training does
            parameter += 0.3 * parameter.std() * torch.randn(parameter.shape, generator=stream).to(dtype)
        folded = 0.0
        outputs = []
        for reference in (r[:1], torch.zeros_like(r[:1])):
            outputs.append(net(x, reference))
            scale = float(outputs[-1].abs().max())
            error = float((logits_of(fold(net, reference)(x)) - outputs[-1]).abs().max()) / scale
            folded = max(folded, error)
        if not folded <= TOLERANCE[dtype]:
            raise _Broken(f"folded differs from anchored by {folded:.1e} of the largest logit")
        if float((outputs[0] - outputs[1]).abs().max()) < 1e-6 * scale:
            raise _Broken("the reference does not matter after the halves of the stem were made to differ")
    net(x, r).square().sum().backward()
    for name, half in _half_gradients(net):
        if not float(half.abs().max()) > 0:
            raise _Broken(f"no gradient reaches the {name}")
    kinds = [_kind(layer.layer) for layer in net.stem_layers()]
    stems = tuple(f"{name} ({kind})" for name, kind in zip(net.stems, kinds, strict=True))
    return Result(case, "", stems, side, str(dtype).removeprefix("torch."), preserved, folded)


def _awake(model: nn.Module, x: Tensor, stream: torch.Generator) -> nn.Module:
    """The model as if trained a little, in eval mode, so that its logits depend on its input.

    Untrained, some have scales or whole heads of zero (hence noise on every parameter) or running statistics that
    are not those of their activations, through which the signal dies (hence one pass that sets them).
    """
    model.eval()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
        if norm.affine:
            norm.weight.fill_(1.0)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=stream).to(parameter.dtype), alpha=0.02)
    model(x)
    return model.eval()


def _stem_weights(net: Anchored) -> list[Tensor]:
    return [p for layer in net.stem_layers() for p in layer.parameters() if p.ndim > 1]


def _half_gradients(net: Anchored) -> Iterator[tuple[str, Tensor]]:
    for stem, layer in zip(net.stems, net.stem_layers(), strict=True):
        if isinstance(layer.layer, Halves):
            halves = [next(p for p in half.parameters() if p.ndim > 1).grad for half in layer.layer.children()]
        else:
            gradient: Any = layer.layer.weight.grad
            halves = list(gradient.chunk(2, dim=1))
        for what, half in zip(("reference", "residual"), halves, strict=True):
            yield f"{what} half of {stem!r}", torch.zeros(1) if half is None else half


def _kind(layer: nn.Module) -> str:
    layer = layer.residual if isinstance(layer, Halves) else layer
    if isinstance(layer, nn.Linear):
        return "Linear"
    kernel: Any = layer.kernel_size
    return f"{type(layer).__name__} {'x'.join(map(str, kernel))}"


# --- the models


def torchvision_cases() -> Iterator[Case]:
    """Every classifier of torchvision of at most 150 M parameters."""
    from torchvision import models

    for name in models.list_models(module=models):
        family = models.get_model_builder(name).__module__.rpartition(".")[2]
        weights = models.get_model_weights(name).DEFAULT
        if weights.meta["num_params"] > TOO_LARGE:
            continue
        native = weights.transforms().crop_size[0]
        yield Case("torchvision", family, name, _named(f"torchvision:{name}", native))


# What libraries call their small models.
_SMALL_NAMES = re.compile(r"femto|atto|pico|nano|xxt|xxs|tiny|mini|(?:^|_)(?:xs|t|s0|t0|b0|small|s)(?:_|$)")
_LARGE_NAMES = re.compile(r"base|large|huge|giant|xlarge|big|(?:384|448|512)$|so\d+m|_\d+b(?:_|$)")


def timm_cases(families: Iterable[str] = ()) -> Iterator[Case]:
    """The member of fewest parameters, among those whose names say they are small, of every family of timm.

    families: names of modules of timm.models; all of them by default.
    """
    import timm

    for family in families or timm.list_modules():
        names = timm.list_models(module=family)
        names.sort(
            key=lambda name: ("test_" not in name, bool(_LARGE_NAMES.search(name)), not _SMALL_NAMES.search(name))
        )
        sizes = {name: size for name in names[:4] if (size := _parameters(name)) is not None}
        name = min(sizes, key=lambda key: sizes[key]) if sizes else names[0]
        config = timm.get_pretrained_cfg(name)
        native = config.input_size[1] if config else 224
        if family in _CUT:
            yield Case("timm", family, f"{name}, 2 blocks", functools.partial(_cut, name))
        else:
            yield Case("timm", family, name, _named(f"timm:{name}", native))


# Transformers without a small member, checked with two blocks of theirs.
_CUT = {"beit", "deepseek_vit", "gemma4_vit", "naflexvit", "qwen3_vit", "vision_transformer_sam"}


def _cut(name: str) -> tuple[nn.Module, int]:
    import timm

    choices: tuple[dict[str, Any], ...] = ({"img_size": 224}, {})
    for options in choices:
        try:
            return timm.create_model(name, num_classes=10, depth=2, **options), 224
        except TypeError:  # has no position table, and so no image size
            continue
    raise RuntimeError(f"timm's {name} could not be made with two blocks")


def _parameters(name: str) -> int | None:
    import timm

    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in timm.create_model(name).parameters())
    except Exception:  # some models compute tables as they are made, which a device without storage refuses
        return None


def _named(name: str, native: int) -> Make:
    """Make `name` for the smallest of a few sizes that it takes."""

    def make() -> tuple[nn.Module, int]:
        for side in (64, 96, 128, 160):
            if side < native:
                try:
                    return create(name, 10, image_size=side).net, side
                except Exception:  # a model's own way of refusing a size
                    continue
        return create(name, 10, image_size=native).net, native

    return make


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_VISION = {"vision_config": {**_SMALL, "image_size": 64, "patch_size": 16}}
# Families of transformers' image classifiers, with the options that make them small.
HUGGING_FACE: dict[str, dict[str, Any]] = {
    "beit": _SMALL,
    "bit": {"embedding_size": 16, "hidden_sizes": [32, 64, 64, 64], "depths": [1, 1, 1, 1], "num_groups": 8},
    "clip": _VISION,
    "convnext": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "convnextv2": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "cvt": {"embed_dim": [16, 32, 32], "num_heads": [1, 2, 2], "depth": [1, 2, 3]},
    "perceiver": {"num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 1, "num_cross_attention_heads": 1},
    "data2vec-vision": _SMALL,
    "deit": _SMALL,
    "dinov2": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 16},
    "dinov2_with_registers": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 16},
    "donut-swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
    "focalnet": {"embed_dim": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "hgnet_v2": {},
    "hiera": {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1]},
    "ijepa": _SMALL,
    "imagegpt": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "levit": {"hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1]},
    "metaclip_2": _VISION,
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.35},
    "mobilevit": {},
    "mobilevitv2": {"width_multiplier": 0.5},
    "poolformer": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "pp_lcnet": {},
    "pvt": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]},
    "pvt_v2": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]},
    "regnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "groups_width": 16},
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "segformer": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]},
    "siglip": _VISION,
    "swiftformer": {"embed_dims": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
    "swinv2": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
    "textnet": {},
    "vit": _SMALL,
    "vit_msn": _SMALL,
}


def hugging_face_cases(families: Iterable[str] = ()) -> Iterator[Case]:
    """One small member, from its configuration, of every family in HUGGING_FACE, or of the families named."""
    from transformers import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING, AutoConfig

    def maker(family: str) -> Make:
        def make() -> tuple[nn.Module, int]:
            config = AutoConfig.for_model(family, **HUGGING_FACE[family], num_labels=10)
            size = getattr(config, "image_size", None)
            if size is not None:
                config.image_size = 64 if isinstance(size, int) else [64, 64]
            found: Any = MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)]
            return (found[0] if isinstance(found, tuple) else found)(config), 64

        return make

    for family in families or HUGGING_FACE:
        yield Case("transformers", family, f"{family} from its configuration", maker(family))


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "torchvision": torchvision_cases,
    "timm": timm_cases,
    "transformers": hugging_face_cases,
}


# --- the table


def table(results: list[Result]) -> str:
    """The results as a page of Markdown."""
    refused = [result for result in results if not result.ok]
    libraries = dict.fromkeys(result.case.library for result in results)
    packages = ["torch", *(name for name in ("torchvision", "timm", "transformers") if name in libraries)]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    lines = [
        "# Classifiers that can be anchored",
        "",
        f"{len(results)} checked, {len(results) - len(refused)} anchored, {len(refused)} refused, with {versions}. "
        "Made by",
        "",
        "```bash",
        "python -m anchored.compatibility --out docs/compatibility.md",
        "```",
        "",
        "Random weights, two images of the side given, float64 unless the column says otherwise. *Anchored* is the",
        "largest difference between the anchored model and the original, *folded* that between the folded and the",
        "anchored model (for a random and the zero reference, after the halves of the stem were made to differ), both",
        "relative to the largest logit. Every model in the tables also had a gradient in both halves of its stem.",
        "",
    ]
    if "torchvision" in libraries and (large := _too_large()):
        lines += [f"Left out for their size, with the code of smaller members: {', '.join(large)}.", ""]
    if refused:
        lines += ["## Refused", "", "| library | family | model | reason |", "|---|---|---|---|"]
        lines += [f"| {r.case.library} | {r.case.family} | {r.case.name} | {r.reason} |" for r in refused] + [""]
    for library in libraries:
        lines += [
            f"## {library}",
            "",
            "| family | model | stem | side | anchored | folded |",
            "|---|---|---|---|---|---|",
        ]
        for r in results:
            if r.case.library == library and r.ok:
                side = f"{r.side}" if r.dtype == "float64" else f"{r.side}, {r.dtype}"
                lines.append(
                    f"| {r.case.family} | {r.case.name} | {', '.join(r.stems)} | {side} "
                    f"| {r.preserved:.0e} | {r.folded:.0e} |"
                )
        lines.append("")
    return "\n".join(lines)


def _too_large() -> list[str]:
    from torchvision import models

    names = models.list_models(module=models)
    return [name for name in names if models.get_model_weights(name).DEFAULT.meta["num_params"] > TOO_LARGE]


def main(arguments: list[str] | None = None) -> None:
    """The command: check, print a line a model on stderr and write the page."""
    p = argparse.ArgumentParser(prog="python -m anchored.compatibility", description=(__doc__ or "").split("\n")[0])
    p.add_argument("--out", default="docs/compatibility.md", help="the page to write (%(default)s)")
    p.add_argument("--library", nargs="+", choices=list(CASES), default=list(CASES), help="libraries (all)")
    flags = p.parse_args(arguments)
    results = []
    for library in flags.library:
        for case in CASES[library]():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the libraries, about their own models
                started = time.monotonic()
                result = check(case)
            seconds = f"{time.monotonic() - started:.0f} s"
            print(library, case.family, case.name, result.reason or "ok", seconds, file=sys.stderr, flush=True)
            results.append(result)
    write_text(flags.out, table(results))


if __name__ == "__main__":
    main()
