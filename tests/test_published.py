"""Test sets by name: their places, downloads from a local server with checksums, and what is said without a network."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders, encoded, picture
from PIL import Image

from anchored.data import published
from anchored.data.base import Options
from anchored.evaluation.cell_images import streamed
from anchored.evaluation.rows import Cell
from anchored.system.errors import InputError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server and the folder it serves."""
    served = tmp_path / "served"
    served.mkdir()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}/", served
    http.shutdown()
    http.server_close()
    thread.join()


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(
        folder / "cifar10.1_v6_data.npy", np.random.default_rng(0).integers(0, 256, (2000, 32, 32, 3), dtype=np.uint8)
    )
    np.save(folder / "cifar10.1_v6_labels.npy", np.arange(2000) % 10)
    monkeypatch.setattr(published, "CIFAR_10_1_LABELS", md5(folder / "cifar10.1_v6_labels.npy"))


def test_cifar_10_1_from_its_place_and_from_the_network(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, served = server
    cifar(served, monkeypatch)
    monkeypatch.setattr(published, "CIFAR_10_1", url)
    for _ in range(2):  # downloaded, then found
        listing = published.shift("cifar10.1", str(tmp_path / "root")).listing
        assert len(listing) == 2000 and listing.classes[1] == "automobile" and listing.labels[:3].tolist() == [0, 1, 2]
        first = next(iter(listing.pictures(np.array([5]))))
        np.testing.assert_array_equal(first, np.load(served / "cifar10.1_v6_data.npy")[5])
        (served / "gone").mkdir(exist_ok=True)
    np.save(tmp_path / "root" / "cifar10.1_v6_labels.npy", np.zeros(2000, np.int64))
    with pytest.raises(InputError, match="is not the published file"):
        published.shift("cifar10.1", str(tmp_path / "root"))


def test_a_download_with_another_checksum_is_refused(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, served = server
    cifar(served, monkeypatch)
    monkeypatch.setattr(published, "CIFAR_10_1", url)
    np.save(served / "cifar10.1_v6_labels.npy", np.zeros(2000, np.int64))
    with pytest.raises(InputError, match=r"Downloading .* failed"):
        published.shift("cifar10.1", str(tmp_path / "root"))


def test_textures_are_downloaded_through_torchvision(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import DTD

    url, served = server
    with tarfile.open(served / "dtd.tar.gz", "w:gz") as archive:
        files = {f"images/{name}/{name}_0001.jpg": encoded(picture(1, 16), "JPEG") for name in ("banded", "dotted")}
        for name, content in {**files, "labels/train1.txt": b"banded/banded_0001.jpg\n"}.items():
            info = tarfile.TarInfo(f"dtd/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    monkeypatch.setattr(DTD, "_URL", f"{url}dtd.tar.gz")
    monkeypatch.setattr(DTD, "_MD5", md5(served / "dtd.tar.gz"))
    listing = published.anomalies("textures", str(tmp_path / "root"))
    assert len(listing) == 2 and listing.classes == ("banded", "dotted")
    monkeypatch.setattr(DTD, "_MD5", "0" * 32)
    with pytest.raises(InputError, match=r"Downloading .* failed.*Put it at"):
        published.anomalies("textures", str(tmp_path / "other"))


def test_svhn_from_its_mat_file(server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io import savemat
    from torchvision.datasets import SVHN

    url, served = server
    images = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 7), dtype=np.uint8)
    savemat(served / "test_32x32.mat", {"X": images, "y": np.array([[10], [1], [2], [3], [4], [5], [9]])})
    entry = [f"{url}test_32x32.mat", "test_32x32.mat", md5(served / "test_32x32.mat")]
    monkeypatch.setitem(SVHN.split_list, "test", entry)
    listing = published.anomalies("svhn", str(tmp_path / "root"))
    assert listing.labels.tolist() == [0, 1, 2, 3, 4, 5, 9] and len(listing.classes) == 10
    np.testing.assert_array_equal(next(iter(listing.pictures(np.array([3])))), images[..., 3])
    (tmp_path / "root" / "svhn" / "test_32x32.mat").write_bytes(b"no matrix")
    with pytest.raises(InputError, match=r"is not SVHN's test_32x32\.mat"):
        published.anomalies("svhn", str(tmp_path / "root"))


@pytest.mark.parametrize("name", ["textures", "svhn", "places365", "isun", "ninco"])
def test_without_a_network_it_says_where_to_put_the_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "reachable", lambda url: False)
    with pytest.raises(InputError) as raised:
        published.anomalies(name, str(tmp_path))
    assert f"Put it at {tmp_path / published.ANOMALIES[name][0]}" in str(raised.value)
    class_folders(tmp_path / published.ANOMALIES["isun"][0], {"a": 2})
    assert len(published.anomalies("isun", str(tmp_path))) == 2


def test_imagenet_v2_folders_are_numbers_of_classes(tmp_path: Path) -> None:
    class_folders(tmp_path / "imagenetv2-matched-frequency-format-val", {"10": 1, "2": 1, "0": 1})
    found = published.shift("imagenet-v2", str(tmp_path))
    assert found.numbered and found.listing.classes == ("0", "10", "2")


def test_objectnet_has_its_border_cut_and_its_own_table_of_classes(tmp_path: Path) -> None:
    root = tmp_path / "objectnet-1.0"
    (root / "images" / "air_freshener").mkdir(parents=True)
    (root / "images" / "banana").mkdir()
    image = np.zeros((20, 20, 3), np.uint8)
    image[[0, 1, -1, -2]] = image[:, [0, 1, -1, -2]] = (255, 0, 0)
    Image.fromarray(image).save(root / "images" / "banana" / "1.png")
    Image.fromarray(image).save(root / "images" / "air_freshener" / "1.png")
    (root / "mappings").mkdir()
    labels = {"air_freshener": "Air freshener", "banana": "Banana"}
    (root / "mappings" / "folder_to_objectnet_label.json").write_text(json.dumps(labels))
    (root / "mappings" / "objectnet_to_imagenet_1k.json").write_text(json.dumps({"Banana": "banana; lemon"}))
    found = published.shift("objectnet", str(tmp_path))
    assert found.mapping == {"air_freshener": [], "banana": ["banana", "lemon"]}
    cell = streamed(Cell("o"), found.listing, found.listing.labels, torch.arange(2), Options(16))
    assert cell.take(torch.tensor([0, 1])).sum() == 0  # nothing of the red border is left
