"""cifar10 and cifar100: the official archives, unpacked, packed or downloaded; damaged and malicious ones refused."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import os
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torchvision
from fixtures import shared
from images import picture
from numpy.typing import NDArray

from anchored import data as sources
from anchored.data import cifar
from anchored.system.errors import InputError

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


class Python2:
    """Writes pickles byte for byte as Python 2 wrote the official files."""

    def __init__(self) -> None:
        self.count = 0

    def memo(self) -> bytes:
        self.count += 1
        return b"q" + bytes([self.count]) if self.count < 256 else b"r" + struct.pack("<I", self.count)

    def write(self, value: object) -> bytes:
        if isinstance(value, str):
            return b"U" + bytes([len(value)]) + value.encode() + self.memo()
        if isinstance(value, int):
            return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)
        if isinstance(value, dict):
            head = b"}" + self.memo()
            return head + b"(" + b"".join(self.write(k) + self.write(v) for k, v in value.items()) + b"u"
        if isinstance(value, np.ndarray):
            return self.array(value)
        assert isinstance(value, list)
        parts = [b"]" + self.memo()]
        for start in range(0, len(value), 1000):
            parts += [b"(", *(self.write(item) for item in value[start : start + 1000]), b"e"]
        return b"".join(parts)

    def array(self, value: NDArray[np.uint8]) -> bytes:
        head = b"cnumpy.core.multiarray\n_reconstruct\n" + self.memo() + b"cnumpy\nndarray\n" + self.memo()
        head += b"K\x00\x85U\x01b\x87R" + self.memo() + b"(K\x01" + b"".join(map(self.write, value.shape)) + b"\x86"
        head += b"cnumpy\ndtype\n" + self.memo() + b"U\x02u1K\x00K\x01\x87R" + self.memo()
        head += b"(K\x03U\x01|NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb\x89T" + struct.pack("<I", value.size)
        return head + value.tobytes() + b"tb"


def official(value: object) -> bytes:
    return b"\x80\x02" + Python2().write(value) + b"."


def flat(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def packed(members: dict[str, bytes], folder: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def tiny(name: str, **replaced: bytes) -> tuple[cifar.Archive, dict[str, bytes], bytes]:
    """(description, members, .tar.gz) of an archive of the official layout with 20 images a batch."""
    real = cifar.ARCHIVES[name]
    classes = 10 if name == "cifar10" else 100
    per_batch = 20 if name == "cifar10" else 200
    members = {}
    for number, (member, _) in enumerate((*real.train, *real.test)):
        images = np.stack([picture(1000 * number + i, 32) for i in range(per_batch)])
        labels = [(i + number) % classes for i in range(per_batch)]
        batch = {"batch_label": member, real.labels_key: labels, "data": flat(images)}
        members[member] = official(batch)
    members[real.meta[0]] = official({real.names_key: [f"class{i}" for i in range(classes)]})
    members |= replaced
    tar = packed({**members, "readme.html": b"x"}, real.folder)
    sums = {
        part: tuple((member, md5(members[member])) for member, _ in getattr(real, part)) for part in ("train", "test")
    }
    meta = (real.meta[0], md5(members[real.meta[0]]))
    return dataclasses.replace(real, md5=md5(tar), meta=meta, **sums), members, tar


@pytest.fixture
def use(monkeypatch):
    """Installs a tiny archive in place of the real one; nothing may reach the network."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("ANCHORED_DATA", raising=False)

    def install(name: str, url: str = "http://127.0.0.1:9/{file}", **replaced: bytes) -> tuple[dict[str, bytes], bytes]:
        archive, members, tar = tiny(name, **replaced)
        archive = dataclasses.replace(archive, url=url.format(file=archive.file))
        monkeypatch.setitem(cifar.ARCHIVES, name, archive)
        return members, tar

    return install


def unpack(members: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in members.items():
        (folder / name).write_bytes(content)


def check(data, name: str) -> None:
    batches = 5 if name == "cifar10" else 1
    per_batch = 20 if name == "cifar10" else 200
    classes = 10 if name == "cifar10" else 100
    assert data.name == name and data.flip and data.notes == () and data.classes[3] == "class3"
    assert data.train.images.shape == (batches * per_batch, 32, 32, 3) and len(data.test) == per_batch
    for part, first in ((data.train, 0), (data.test, batches)):
        for i in range(0, len(part), 7):
            number, position = divmod(i, per_batch)
            assert np.array_equal(part.images[i].numpy(), picture(1000 * (number + first) + position, 32))
            assert int(part.labels[i]) == (position + number + first) % classes


def test_addresses_and_sums_are_those_torchvision_knows():
    for name, known in (("cifar10", torchvision.datasets.CIFAR10), ("cifar100", torchvision.datasets.CIFAR100)):
        ours = cifar.ARCHIVES[name]
        assert (ours.url, ours.file, ours.md5, ours.folder) == (
            known.url,
            known.filename,
            known.tgz_md5,
            known.base_folder,
        )
        assert [list(pair) for pair in ours.train] == known.train_list
        assert [list(pair) for pair in ours.test] == known.test_list
        assert (*ours.meta, ours.names_key) == (known.meta["filename"], known.meta["md5"], known.meta["key"])


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("below", ["", "own"])
def test_packed_and_unpacked_archives_give_the_same(tmp_path, use, name, below):
    members, tar = use(name)
    base = tmp_path / "packed" / (name if below else "")
    base.mkdir(parents=True)
    (base / cifar.ARCHIVES[name].file).write_bytes(tar)
    check(sources.load(name, root=str(tmp_path / "packed")), name)
    assert [file.name for file in base.iterdir()] == [cifar.ARCHIVES[name].file]  # nothing is unpacked
    unpack(members, tmp_path / "open" / (name if below else "") / cifar.ARCHIVES[name].folder)
    check(sources.load(name, root=str(tmp_path / "open")), name)


def test_the_root_comes_from_the_environment_and_images_are_resized(tmp_path, use, monkeypatch):
    _, tar = use("cifar10")
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(tar)
    monkeypatch.setenv("ANCHORED_DATA", str(tmp_path))
    check(sources.load("cifar10"), "cifar10")
    assert sources.load("cifar10", size=16).train.images.shape == (100, 16, 16, 3)
    name, images = sources.load_anomalies("cifar10", like=sources.load("digits"), size=32)
    assert name == "cifar10" and len(images) == 20 and images.labels.unique().tolist() == [-1]
    monkeypatch.delenv("ANCHORED_DATA")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(InputError, match=r"not in .*home/\.cache/anchored and cannot be downloaded"):
        sources.load("cifar10")


def test_archives_written_by_python_3_are_read_as_well(tmp_path, use):
    images = np.stack([picture(i, 32) for i in range(20)])
    batch = pickle.dumps({"labels": [i % 10 for i in range(20)], "data": flat(images)}, protocol=4)
    members, _ = use("cifar10", test_batch=batch)
    unpack(members, tmp_path / "cifar-10-batches-py")
    data = sources.load("cifar10", root=str(tmp_path))
    assert torch.equal(data.test.images, torch.from_numpy(images))


class Run:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, use, protocol):
    flag = tmp_path / "ran"
    for evil in (
        Run(os.system, f"touch {flag}"),
        Run(eval, f"open({str(flag)!r}, 'w')"),
        {"data": Run(Path.touch, flag), "labels": [0]},
        Run(np.save, str(flag), np.zeros(1)),
    ):
        content = pickle.dumps(evil, protocol=protocol)
        members, _ = use("cifar10", test_batch=content)
        unpack(members, tmp_path / str(hash(content)) / "cifar-10-batches-py")
        with pytest.raises(InputError, match=r"test_batch is not a pickle of plain arrays.*asks for"):
            sources.load("cifar10", root=str(tmp_path / str(hash(content))))
        assert not flag.exists() and not flag.with_suffix(".npy").exists()
        # It would have run, had the pickle been trusted.
    pickle.loads(pickle.dumps(Run(Path.touch, flag), protocol=protocol))
    assert flag.exists()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pickle.dumps([1, 2]), "it has no 'data'"),
        (pickle.dumps({"data": [1], "labels": [0]}), "it has no 'data'"),
        (
            official({"data": np.zeros((2, 3000), np.uint8), "labels": [0, 1]}),
            r"uint8 \[N, 3072\]; got uint8 \[2, 3000\]",
        ),
        (official({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}), "got 1 labels for 2 images"),
        (official({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 12]}), "labels are 0 to 9.*test has 12"),
        (official({"data": np.zeros((2, 3072), np.uint8)}), "it has no 'labels'"),
        (official({"data": np.zeros((2, 3072), np.uint8)})[:-3000], "not a pickle of plain arrays"),
        (pickle.dumps({"data": np.array([{}])}, protocol=4), "not a pickle of plain arrays.*'O8' are not expected"),
        (b"", "not a pickle of plain arrays"),
    ],
)
def test_batches_of_another_form_are_refused(tmp_path, use, batch, message):
    members, _ = use("cifar10", test_batch=batch)
    unpack(members, tmp_path / "cifar-10-batches-py")
    with pytest.raises(InputError, match=message):
        sources.load("cifar10", root=str(tmp_path))


def test_damaged_and_partial_files_are_named_with_their_sums(tmp_path, use):
    members, tar = use("cifar10")
    archive = cifar.ARCHIVES["cifar10"]
    path = tmp_path / archive.file
    path.write_bytes(tar[:-100])
    with pytest.raises(InputError) as caught:
        sources.load("cifar10", root=str(tmp_path))
    for part in (str(path), md5(tar[:-100]), archive.md5, "Delete it", "--root", archive.url):
        assert part in str(caught.value)
    folder = tmp_path / "open" / archive.folder
    unpack(members, folder)
    (folder / "data_batch_2").write_bytes(b"x")
    with pytest.raises(InputError, match=r"data_batch_2 is damaged.*\(1 bytes\)"):
        sources.load("cifar10", root=str(tmp_path / "open"))
    (folder / "data_batch_2").unlink()
    with pytest.raises(InputError, match=r"cifar-10-batches-py lacks data_batch_2\) and cannot be downloaded"):
        sources.load("cifar10", root=str(tmp_path / "open"))


def test_archives_without_all_members_are_refused(tmp_path, use, monkeypatch):
    members, _ = use("cifar10")
    for content, message in (
        (packed({"test_batch": members["test_batch"]}, "cifar-10-batches-py"), "lacks data_batch_1, .*batches.meta"),
        (packed(members, "elsewhere"), "lacks data_batch_1"),
        (b"no archive", "not a readable archive"),
    ):
        monkeypatch.setitem(cifar.ARCHIVES, "cifar10", dataclasses.replace(cifar.ARCHIVES["cifar10"], md5=md5(content)))
        (tmp_path / "cifar-10-python.tar.gz").write_bytes(content)
        with pytest.raises(InputError, match=message):
            sources.load("cifar10", root=str(tmp_path))


class Server(http.server.ThreadingHTTPServer):
    content: bytes = b""
    promised: int = 0
    asked: int = 0


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        if not self.path.endswith("cifar-10-python.tar.gz"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.promised))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *arguments: object) -> None:
        """Not to the output of the tests."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_good_download_is_kept_and_not_repeated(tmp_path, use, server):
    _, tar = use("cifar10", f"http://127.0.0.1:{server.server_port}/{{file}}")
    server.content, server.promised = tar, len(tar)
    steps: list[tuple[int, int]] = []
    root = tmp_path / "new" / "folder"
    check(sources.load("cifar10", root=str(root), progress=lambda done, total: steps.append((done, total))), "cifar10")
    assert [file.name for file in root.iterdir()] == ["cifar-10-python.tar.gz"] and (len(tar), len(tar)) in steps
    check(sources.load("cifar10", root=str(root)), "cifar10")
    assert server.asked == 1


def refusals(tar: bytes) -> Sequence[tuple[bytes, int, str, str]]:
    return [
        (tar[:-50], len(tar), "{file}", f"it broke off after {len(tar) - 50:,} of {len(tar):,} bytes"),
        (tar[:-50], len(tar) - 50, "{file}", f"has the MD5 {md5(tar[:-50])}"),
        (b"<html>moved</html>", 18, "{file}", r"what came \(18 bytes\) has the MD5"),
        (tar, len(tar), "elsewhere/other", "HTTP Error 404"),
    ]


@pytest.mark.parametrize("case", range(4), ids=["truncated", "short", "page", "404"])
def test_a_bad_download_leaves_nothing_and_says_what_to_do(tmp_path, use, server, case):
    tar = tiny("cifar10")[2]
    server.content, server.promised, path, message = refusals(tar)[case]
    use("cifar10", f"http://127.0.0.1:{server.server_port}/{path}")
    with pytest.raises(InputError, match=message) as caught:
        sources.load("cifar10", root=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    for part in (cifar.ARCHIVES["cifar10"].md5, str(tmp_path), "--root", "without a network"):
        assert part in str(caught.value)


def test_without_a_network_one_error_says_what_goes_where(tmp_path, use):
    use("cifar10", "http://127.0.0.1:9/{file}")  # the discard port: nobody listens
    with pytest.raises(InputError) as caught:
        sources.load("cifar10", root=str(tmp_path))
    message = str(caught.value)
    assert "Connection refused" in message and "cifar-10-python.tar.gz" in message and str(tmp_path) in message
    assert cifar.ARCHIVES["cifar10"].md5 in message and "\n" not in message
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "train.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=f"the data is written parquet:{tmp_path}/cifar10"):
        sources.load("cifar10", root=str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be downloaded"):
        sources.load("cifar10", root=str(tmp_path / "file"))


def test_official_files_are_read_as_they_are(tmp_path, monkeypatch):
    """Two of the six, rebuilt byte for byte from the shared images; that the published MD5 sums hold is the proof."""
    real = cifar.ARCHIVES["cifar10"]
    monkeypatch.setitem(cifar.ARCHIVES, "cifar10", dataclasses.replace(real, train=real.train[:1]))
    source = shared("ANCHORED_DATA", "data") / "cifar10"
    tables = {part: pq.read_table(source / f"{part}.parquet").slice(0, 10_000) for part in ("train", "test")}
    for part, table in tables.items():
        pq.write_table(table, tmp_path / f"{part}.parquet", compression="none")
    whole = sources.load(f"parquet:{tmp_path}")
    members = {"batches.meta": official({"num_cases_per_batch": 10000, "label_names": CLASSES, "num_vis": 3072})}
    for part, member, title, images in (
        ("train", "data_batch_1", "training batch 1 of 5", whole.train),
        ("test", "test_batch", "testing batch 1 of 1", whole.test),
    ):
        paths = tables[part]["image"].combine_chunks().field("path").to_pylist()
        batch = {
            "batch_label": title,
            "labels": images.labels.tolist(),
            "data": flat(images.images.numpy()),
            "filenames": [path.replace(".webp", ".png") for path in paths],
        }
        members[member] = official(batch)
    unpack(members, tmp_path / "cifar-10-batches-py")
    data = sources.load("cifar10", root=str(tmp_path))
    assert len(data.train) == len(data.test) == 10_000
    assert torch.equal(data.train.images, whole.train.images) and torch.equal(data.train.labels, whole.train.labels)
    assert torch.equal(data.test.images, whole.test.images) and torch.equal(data.test.labels, whole.test.labels)
    assert data.classes == whole.classes == tuple(CLASSES)
