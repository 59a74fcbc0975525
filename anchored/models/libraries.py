"""Classifiers of timm, torchvision and transformers, each with the input that it wants."""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from typing import Any

from torch import nn

from anchored.models.weights import assign, downloaded, not_fetched
from anchored.system.errors import InputError, unknown
from anchored.system.network import first_line, hub_without_waiting


@dataclass(frozen=True)
class Model:
    """A classifier and how it wants its input.

    image_size: native side in pixels, None where any will do. mean, std: per channel in [0, 1] units, None to use
    the statistics of the data. crop: centre-crop fraction of the resized shorter side.
    """

    net: nn.Module
    name: str
    pretrained: bool = False
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: str = "bilinear"
    crop: float = 1.0
    notes: tuple[str, ...] = ()


def timm_model(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    import timm

    if not timm.is_model(rest):
        near = difflib.get_close_matches(rest, timm.list_models(), n=5, cutoff=0.5)
        hint = f"Near: {', '.join(near)}." if near else "timm.list_models('*resnet*') lists those with a word in them."
        raise InputError(f"timm has no model {rest!r}. {hint}")
    architecture, _, tag = rest.partition(".")
    try:
        native = timm.get_pretrained_cfg(rest)
    except RuntimeError as error:
        tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
        raise unknown(f"weights of timm's {architecture}", tag, tags) from error
    if pretrained and not timm.is_model_pretrained(rest):
        raise InputError(f"{name} has no pretrained weights; --weights is none or a PATH.")
    make = functools.partial(timm.create_model, rest, pretrained=pretrained, num_classes=num_classes)

    def sized() -> nn.Module:
        if image_size is None or (native is not None and native.input_size[1] == image_size):
            return make()
        # Models with position tables need their size at creation; the others take any and refuse the argument.
        try:
            return make(img_size=image_size)
        except TypeError:
            return make()
        except (AssertionError, ValueError, RuntimeError) as error:
            if pretrained:
                raise
            raise InputError(f"{name} cannot be made for {image_size} px images ({first_line(error)}).") from error

    if pretrained:
        assert native is not None  # is_model_pretrained says so
        source = f"https://huggingface.co/{native.hf_hub_id}" if native.hf_hub_id else str(native.url)
        try:
            with hub_without_waiting():
                net = sized()
        except Exception as error:  # the hub, its HTTP client, the disk and torch each have their own
            raise not_fetched(name, source, error) from error
    else:
        net = sized()
    config = timm.data.resolve_model_data_config(net)
    return Model(
        net,
        name,
        pretrained,
        image_size or config["input_size"][1],
        tuple(config["mean"]),
        tuple(config["std"]),
        config["interpolation"] if config["interpolation"] in ("bilinear", "bicubic") else "bicubic",
        float(config["crop_pct"]),
    )


def torchvision_model(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    from torchvision import models

    classifiers = models.list_models(module=models)
    if rest not in classifiers:
        raise unknown("torchvision model", rest, classifiers)
    options: dict[str, Any] = {}
    if rest in ("googlenet", "inception_v3"):
        # Without the auxiliary heads, so that the output is logits in training too; and always with the change of
        # normalisation their published weights expect, so that a saved run does not depend on where it started.
        options = {"aux_logits": False, "transform_input": True, "init_weights": True}
    elif image_size is not None and rest.startswith("vit_"):
        options = {"image_size": image_size}
    elif image_size is not None and rest == "maxvit_t":
        options = {"input_size": (image_size, image_size)}
    try:
        net = models.get_model(rest, num_classes=num_classes, **options)
    except (AssertionError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} cannot be made for {image_size} px images ({first_line(error)}).") from error
    weights = models.get_model_weights(rest).DEFAULT
    kind = weights.transforms()
    notes = assign(net, downloaded(weights.url, name), name, "the default weights") if pretrained else ()
    size = kind.crop_size[0]
    return Model(
        net,
        name,
        pretrained,
        image_size or size,
        tuple(kind.mean),
        tuple(kind.std),
        kind.interpolation.value,
        size / kind.resize_size[0],
        notes,
    )


def hugging_face_model(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    """A classifier of transformers from its configuration; its outputs are objects with `.logits`."""
    try:
        from transformers import AutoConfig, AutoModelForImageClassification, ImageProcessingMixin
    except ImportError as error:
        raise InputError(f"{name} needs the package transformers: pip install 'anchored[hf]'.") from error
    make = AutoModelForImageClassification
    try:
        with hub_without_waiting():
            config = AutoConfig.from_pretrained(rest, num_labels=num_classes)
            if image_size is not None and hasattr(config, "image_size"):
                config.image_size = image_size if isinstance(config.image_size, int) else [image_size, image_size]
            if pretrained:
                net = make.from_pretrained(rest, config=config, ignore_mismatched_sizes=True)
            else:
                net = make.from_config(config)
            try:
                steps = ImageProcessingMixin.get_image_processor_dict(rest)[0]
            except OSError:  # a configuration alone
                steps = {}
    except Exception as error:  # the hub, the file and the architecture each have their own
        raise InputError(
            f"{name} is no image classifier of transformers that can be made here ({first_line(error)}). It is "
            "hf:USER/NAME on the Hub, or hf:FOLDER with a config.json."
        ) from error
    size, crop = _side(steps.get("size")), _side(steps.get("crop_size"))
    native = getattr(config, "image_size", None) or crop or size
    return Model(
        net,
        name,
        pretrained,
        image_size or _side(native),
        tuple(steps["image_mean"]) if "image_mean" in steps else None,
        tuple(steps["image_std"]) if "image_std" in steps else None,
        {2: "bilinear", 3: "bicubic"}.get(steps.get("resample", 2), "bicubic"),
        crop / size if crop and size and steps.get("do_center_crop", True) else 1.0,
    )


def _side(size: Any) -> int | None:
    """Pixels in one of the ways image processors write a size."""
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    return int(size[0]) if isinstance(size, (list, tuple)) else size
