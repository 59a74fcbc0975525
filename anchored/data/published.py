"""Published test sets by name, shifts and anomalies: where they are looked for, and where they can be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anchored.data.base import Listing, place
from anchored.data.decode import Source
from anchored.data.listings import array_listing, folder_listing
from anchored.system.errors import InputError
from anchored.system.files import read_json
from anchored.system.network import first_line, reachable

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_10_1 = "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/"
# MD5 of the labels; of the images no sum is published, so their shape is checked.
CIFAR_10_1_LABELS = "09a97fb7c430502fcbd69d95093a3f85"
OBJECTNET_BORDER = 2  # pixels of red around every image, as its authors ask to remove


@dataclass(frozen=True)
class PublishedShift:
    """A published shifted test set, not decoded.

    mapping: class -> classes of ImageNet, for sets that come with one. numbered: its classes are positions among the
    model's.
    """

    listing: Listing
    mapping: dict[str, list[str]] | None = None
    numbered: bool = False


def data_root(root: str | None) -> Path:
    """The folder of downloaded data: --root, $ANCHORED_DATA or ~/.cache/anchored."""
    return place(root or os.environ.get("ANCHORED_DATA") or "~/.cache/anchored")


def shift(name: str, root: str | None) -> PublishedShift:
    """A shifted test set by name, from the first of its places below the root that is there.

    Raises InputError, saying where to put it, where it is not there and cannot be downloaded.
    """
    base = data_root(root)
    if name == "cifar10.1":
        return PublishedShift(_cifar_10_1(base))
    found = _existing(base, SHIFTS[name])
    if found is None:
        raise _not_there(name, base, SHIFTS[name], "It is not downloaded for you.")
    if name == "objectnet":
        return _objectnet(found)
    return PublishedShift(folder_listing(found, name, name=name), numbered=name == "imagenet-v2")


def anomalies(name: str, root: str | None) -> Listing:
    """A set of anomalies by name; errors as of `shift`."""
    base = data_root(root)
    if name == "svhn":
        return _svhn(base)
    found = _existing(base, ANOMALIES[name]) or _existing(base, [_downloaded(name, base)] if name in DOWNLOADS else [])
    if found is None:
        raise _not_there(name, base, ANOMALIES[name], "It is not downloaded for you.")
    return folder_listing(found, name, name=name)


SHIFTS: dict[str, tuple[str, ...]] = {
    "imagenet-r": ("imagenet-r",),
    "imagenet-sketch": ("imagenet-sketch", "sketch"),
    "imagenet-v2": ("imagenet-v2", "imagenetv2-matched-frequency-format-val", "imagenetv2-matched-frequency"),
    "objectnet": ("objectnet-1.0", "objectnet"),
    "cifar10.1": ("cifar10.1_v6_data.npy",),
}
ANOMALIES: dict[str, tuple[str, ...]] = {
    "textures": ("dtd/dtd/images", "dtd/images", "textures/images", "textures"),
    "svhn": ("svhn/test_32x32.mat", "test_32x32.mat"),
    "isun": ("iSUN/iSUN_patches", "iSUN", "isun"),
    "places365": ("Places/images", "Places", "places365/val_256", "places365", "val_256"),
    "ninco": ("NINCO/NINCO_OOD_classes", "NINCO_OOD_classes", "NINCO", "ninco"),
}


def _existing(base: Path, places: Sequence[str]) -> Path | None:
    """The first of `places` below `base` that is there."""
    return next((base / each for each in places if (base / each).exists()), None)


def _not_there(name: str, base: Path, places: Sequence[str], how: str) -> InputError:
    return InputError(
        f"{name} is not below {base}. {how} Put it at {' or '.join(str(base / each) for each in places)}."
    )


# --- downloads -----------------------------------------------------------------------------------------------------


def _dtd(base: Path) -> str:
    from torchvision.datasets import DTD

    DTD(base, download=True)
    return "dtd/dtd/images"


def _places365(base: Path) -> str:
    from torchvision.datasets import Places365

    Places365(base / "places365", split="val", small=True, download=True)
    return "places365/val_256"


def _dtd_url() -> str:
    from torchvision.datasets import DTD

    return str(DTD._URL)


def _places_url() -> str:
    from torchvision.datasets import Places365

    return str(Places365._BASE_URL)


DOWNLOADS: dict[str, tuple[Callable[[Path], str], Callable[[], str]]] = {
    "textures": (_dtd, _dtd_url),
    "places365": (_places365, _places_url),
}


def _downloaded(name: str, base: Path) -> str:
    """Download through torchvision, which checks the MD5; where it is then, below `base`."""
    fetch, url = DOWNLOADS[name]
    return str(_fetched(name, base, ANOMALIES[name], url(), lambda: fetch(base)))


def _fetched(name: str, base: Path, places: Sequence[str], url: str, fetch: Callable[[], Any]) -> Any:
    """What `fetch` gives. Raises InputError, saying where to put the files, where it fails."""
    try:
        if not reachable(url):
            raise OSError("no network, or no such host")
        base.mkdir(parents=True, exist_ok=True)
        return fetch()
    except Exception as error:  # the network, the disk, the checksum
        raise _not_there(name, base, places, f"Downloading {url} failed ({first_line(error)}).") from error


def _svhn(base: Path) -> Listing:
    from scipy.io import loadmat
    from torchvision.datasets import SVHN

    path = _existing(base, ANOMALIES["svhn"])
    if path is None:
        url = SVHN.split_list["test"][0]
        _fetched("svhn", base, ANOMALIES["svhn"], url, lambda: SVHN(base / "svhn", split="test", download=True))
        path = base / ANOMALIES["svhn"][0]
    try:
        content = loadmat(path)
        images = np.ascontiguousarray(np.transpose(content["X"], (3, 0, 1, 2)))
        labels = content["y"].astype(np.int64).ravel() % 10  # the digit 0 is stored as 10
    except Exception as error:  # SciPy has errors of its own for files that are no matrices
        raise InputError(f"{path} is not SVHN's test_32x32.mat with X and y: {first_line(error)}.") from error
    return array_listing("svhn", images, labels, [f"digit {number}" for number in range(10)])


def _cifar_10_1(base: Path) -> Listing:
    from torchvision.datasets.utils import check_integrity, download_url

    data, target = "cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"
    for file, md5 in ((target, CIFAR_10_1_LABELS), (data, None)):
        if not (base / file).is_file():
            _fetched("cifar10.1", base, (file,), CIFAR_10_1, partial(download_url, CIFAR_10_1 + file, base, file, md5))
    if not check_integrity(base / target, CIFAR_10_1_LABELS):
        raise InputError(f"{base / target} is not the published file: its MD5 is not {CIFAR_10_1_LABELS}.")
    try:
        images = np.load(base / data, mmap_mode="r", allow_pickle=False)
        labels = np.load(base / target, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{base / data} is not a NumPy array: {first_line(error)}.") from error
    if images.shape != (2000, 32, 32, 3) or images.dtype != np.uint8:
        raise InputError(f"{base / data} holds uint8 [2000, 32, 32, 3]; got {images.dtype} {list(images.shape)}.")
    return array_listing("cifar10.1", images, labels, CIFAR10)


# --- ObjectNet -----------------------------------------------------------------------------------------------------


def _objectnet(root: Path) -> PublishedShift:
    """ObjectNet as published: images/FOLDER/*.png and its two tables from folders to ImageNet's classes."""
    tables = [root / "mappings" / f"{name}.json" for name in ("folder_to_objectnet_label", "objectnet_to_imagenet_1k")]
    for table in tables:
        if not table.is_file():
            raise InputError(f"objectnet: its folder holds mappings/{table.name}, as published; {root} does not.")
    labels, known = (read_json(table) for table in tables)
    mapping = {
        folder: [part.strip() for part in known[label].split(";") if part.strip()] if label in known else []
        for folder, label in labels.items()
    }
    listing = folder_listing(root / "images", "objectnet", name="objectnet")

    def pictures(rows: NDArray[np.int64]) -> Iterator[Source]:
        for file in listing.pictures(rows):
            yield _without_border(file)

    return PublishedShift(replace(listing, pictures=pictures), mapping)


def _without_border(file: Source) -> Source:
    try:
        with Image.open(file) as image:  # type: ignore[arg-type]
            width, height = image.size
            edge = OBJECTNET_BORDER
            return np.array(image.convert("RGB").crop((edge, edge, width - edge, height - edge)))
    except (OSError, ValueError):
        return None
