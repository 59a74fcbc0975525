"""A run on disk: weights, references, preprocessing, classes and settings together; `load` gives it back."""

from __future__ import annotations

import dataclasses
import errno
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from anchored.arms.recipe import Recipe
from anchored.arms.run_config import RunConfig
from anchored.data.base import Images
from anchored.data.images import fit
from anchored.method import protocols
from anchored.method.core import Anchored
from anchored.method.protocols import Predict, Prediction
from anchored.method.references import ReferenceSet
from anchored.runs import hub
from anchored.runs.build import build
from anchored.runs.threshold import AnomalyThreshold
from anchored.system.errors import InputError, unknown
from anchored.system.files import as_tuple, read_json, write_atomic, write_json
from anchored.system.preprocess import Preprocess
from anchored.system.rng import generator

STORED_REFERENCES = 1000
Picture = Image.Image | str | os.PathLike[str] | NDArray[np.uint8] | Tensor
Shown = Picture | Sequence[Picture]


@dataclass
class Run:
    """A trained run. `net` is in eval mode; `references` is None for the standard method."""

    config: RunConfig
    net: nn.Module
    references: ReferenceSet | None
    preprocess: Preprocess
    classes: tuple[str, ...]
    folder: Path
    info: dict[str, Any]
    anomaly: AnomalyThreshold | None = None

    def predictor(self, protocol: str = "one_random", *, k: int = 10, seed: int = 0) -> Predict:
        """This run under an inference protocol; the standard method has none and is called directly.

        k: references of k_random, candidates of transduction. Raises InputError for an unknown protocol.
        """
        if protocol not in protocols.PROTOCOLS:
            raise unknown("protocol", protocol, protocols.PROTOCOLS)
        if not isinstance(self.net, Anchored):
            return protocols.direct(self.net)
        assert self.references is not None
        return protocols.PROTOCOLS[protocol](self.net, self.references, k, seed)

    def predict(self, images: Shown, *, protocol: str = "one_random", k: int = 10, seed: int = 0) -> Prediction:
        """Predict on pictures of any size: preprocessing is included.

        images: a PIL image, a path or uint8 [H, W, 3] (numpy or torch), a list of these, or uint8 [N, H, W, 3]. Raises
        InputError for anything else and for a file that is no readable image.
        """
        x = self.preprocess(_as_uint8(images, self.preprocess))
        device = next(self.net.parameters()).device
        return self.predictor(protocol, k=k, seed=seed)(x.to(device))

    def push_to_hub(
        self, repo_id: str, *, private: bool = False, message: str | None = None, token: str | None = None
    ) -> str:
        """Upload this run to the Hugging Face Hub as `repo_id` (user/name), for `load(repo_id)`; its address.

        token: that of `hf auth login` by default. Raises InputError where the Hub refuses or cannot be reached.
        """
        return hub.push(
            self.folder,
            repo_id,
            card=hub.card(self.config, self.classes, repo_id),
            private=private,
            message=message or f"A run of anchored: {self.config.run}",
            token=token,
        )


def _as_uint8(images: Shown, preprocess: Preprocess) -> Tensor:
    if isinstance(images, (np.ndarray, Tensor)) and images.ndim == 4:
        images = list(images)
    elif isinstance(images, (Image.Image, str, os.PathLike, np.ndarray, Tensor)):
        images = [images]
    if not images:
        raise InputError("predict needs at least one image; got none.")
    pictures = (_picture(image) for image in images)
    fitted = [fit(picture, preprocess.size, preprocess.interpolation, preprocess.crop) for picture in pictures]
    return torch.from_numpy(np.stack(fitted))


def opened(path: str | os.PathLike[str]) -> Image.Image:
    """The picture in a file. Raises InputError where it cannot be read."""
    try:
        with Image.open(path) as file:
            file.load()
            return file.copy()
    except (OSError, ValueError, SyntaxError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{os.fspath(path)} is not a readable image: {reason}") from error


def _picture(image: Any) -> Image.Image:
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, (str, os.PathLike)):
        return opened(image)
    if not isinstance(image, (np.ndarray, Tensor)):
        raise InputError(f"an image is a PIL image, a path or a uint8 array [H, W, 3]; got {type(image).__name__}.")
    array = np.asarray(image.cpu() if isinstance(image, Tensor) else image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        hint = ""
        if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
            hint = " Channels come last: images.permute(0, 2, 3, 1) or transpose(0, 2, 3, 1)."
        elif array.dtype != np.uint8:
            hint = " Of pixels in [0, 1]: (255 * images).round() as uint8."
        elif array.ndim == 2 or array.shape[-1] == 1:
            hint = " Of grey images: Image.fromarray, or the plane repeated three times."
        raise InputError(f"an array of an image is uint8 [H, W, 3]; got {array.dtype} {list(array.shape)}.{hint}")
    return Image.fromarray(array)


def save(
    folder: str | os.PathLike[str],
    config: RunConfig,
    net: nn.Module,
    preprocess: Preprocess,
    classes: Sequence[str],
    references: ReferenceSet | None,
    train: Images,
    *,
    anomaly: AnomalyThreshold | None = None,
    **info: Any,
) -> None:
    """Write a run to `folder`; `run.json` comes last, so a folder that has it is complete.

    Of the references it keeps the indices, their mean and at most 1,000 of the images, as uint8. anomaly: from
    `anchored.runs.threshold.anomaly_threshold`, for the flags of `predict`.
    """
    folder = Path(folder)
    state = {name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}
    write_atomic(folder / "model.safetensors", lambda path: _save(state, path))
    if references is not None:
        n = len(references)
        kept = torch.arange(n)
        if n > STORED_REFERENCES:
            kept = torch.randperm(n, generator=generator(config.seed, "stored references"))[:STORED_REFERENCES]
        tensors = {
            "indices": references.indices.cpu().contiguous(),
            "mean": references.mean.float().cpu().contiguous(),
            "stored": kept,
            "images": train.take(references.indices[kept].cpu()).cpu().contiguous(),
        }
        write_atomic(folder / "references.safetensors", lambda path: _save(tensors, path))
    description = {
        "config": dataclasses.asdict(config),
        "preprocess": dataclasses.asdict(preprocess),
        "classes": list(classes),
        "stems": list(net.stems) if isinstance(net, Anchored) else [],
        "references": len(references) if references is not None else 0,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "anomaly": dataclasses.asdict(anomaly) if anomaly is not None else None,
        **info,
        "versions": versions(),
    }
    write_json(folder / "run.json", description)


def load(folder: str | os.PathLike[str], *, revision: str | None = None) -> Run:
    """The run in `folder`, or in the Hugging Face Hub repository of that name (user/name), ready to predict.

    revision: of the repository. Raises InputError where there is no such run, or not a complete one.
    """
    name, folder = os.fspath(folder), Path(folder)
    if not folder.exists() and hub.REPOSITORY.fullmatch(name):
        folder = hub.fetch(name, revision)
    if not (folder / "run.json").is_file():
        inside = sorted(str(path.parent) for path in folder.glob("runs/*/run.json"))
        hint = f"Runs in it: {', '.join(inside)}" if inside else "A run folder is written by compare or train"
        raise InputError(f"{folder} is not a run: it has no run.json. {hint}.")
    info = read_json(folder / "run.json")
    config = run_config(info["config"])
    preprocess = Preprocess(**{key: as_tuple(value) for key, value in info["preprocess"].items()})
    net = build(dataclasses.replace(config, weights="none"), len(info["classes"]), preprocess.size)
    try:
        net.load_state_dict(load_file(folder / "model.safetensors"))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise InputError(f"{folder}/model.safetensors is not the model of this run: {error}") from error
    references = None
    if config.anchored:
        stored = load_file(folder / "references.safetensors")
        references = ReferenceSet.from_images(
            preprocess(stored["images"]), indices=stored["indices"][stored["stored"]], mean=stored["mean"]
        )
    anomaly = AnomalyThreshold(**info["anomaly"]) if info.get("anomaly") else None
    return Run(config, net.eval(), references, preprocess, tuple(info["classes"]), folder, info, anomaly)


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        if "No space left" in str(error):  # the library wraps what the system said
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def run_config(values: dict[str, Any]) -> RunConfig:
    """The RunConfig in a run.json."""
    recipe = Recipe(**{key: as_tuple(value) for key, value in values["recipe"].items()})
    return RunConfig(**{**values, "recipe": recipe})


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on, and the processor's kind."""
    names = ("anchored", "torch", "torchvision", "timm", "numpy", "pillow", "scikit-learn")
    return {"python": platform.python_version(), "machine": platform.machine()} | {
        name: metadata.version(name) for name in names
    }
