"""The models whose compatibility is checked: of torchvision, timm and transformers, with random weights."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from anchored.models.by_name import create

Make = Callable[[], tuple[nn.Module, int]]  # a new model and the side in pixels of the input it takes
TOO_LARGE = 150_000_000  # parameters; such members of torchvision have the code of their smaller siblings


@dataclass(frozen=True)
class Case:
    """One model to check: its library, its family (the module it comes from), its name and how to make it."""

    library: str
    family: str
    name: str
    make: Make


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


def too_large() -> list[str]:
    """The classifiers of torchvision that `torchvision_cases` leaves out."""
    from torchvision import models

    names = models.list_models(module=models)
    return [name for name in names if models.get_model_weights(name).DEFAULT.meta["num_params"] > TOO_LARGE]
