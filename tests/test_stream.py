"""Streamed class folders: the same batches as from memory, whatever the workers; unreadable files."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from images import class_folders, picture
from PIL import Image
from safetensors.torch import load_file
from test_train import Killed, killed_after, same, settings

from anchored.arms.recipe_choice import recipe
from anchored.cli import main
from anchored.comparison.inputs import prepare
from anchored.comparison.settings import Comparison, comparison
from anchored.data.stream import Streamed
from anchored.method.references import ReferenceSet
from anchored.runs.build import reference_set
from anchored.system.errors import InputError
from anchored.training.loop import MEAN, train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("set")
    class_folders(root / "train", {"a": 20, "b": 20}, side=16)
    class_folders(root / "test", {"a": 5, "b": 5}, side=16, seed=500)
    return root


def stream(root: Path, *, stream: bool = True, **changed: Any) -> Comparison:
    fields = {"methods": ("masking",), "seeds": (0,), "anomalies": (), "on": ("clean",), "image_size": 16}
    for name in ("methods", "image_size", "val_fraction", "references", "reference_source", "recalibrate_bn"):
        if name in changed:
            fields[name] = changed.pop(name)
    made = recipe("cpu_quick", **{"epochs": 2, "batch_size": 8, "augmentation": "none", **changed})
    return comparison(f"folder:{root}", "tiny_model:tiny", made, stream=stream, **fields)  # type: ignore[arg-type]


def trained(out: Path, given: Comparison, *, strict: bool = False, **how: Any) -> torch.nn.Module:
    prepared = prepare(given, strict=strict)
    (config,) = prepared.settings.run_configs()
    return train(config, prepared.first.data, prepared.first.preprocess, out, device=CPU, **how)


@pytest.mark.parametrize("changed", [{}, {"methods": ("standard",)}, {"references": 7, "recalibrate_bn": 16}])
def test_streamed_training_is_training_from_memory(folder: Path, tmp_path: Path, changed: dict[str, Any]) -> None:
    memory = trained(tmp_path / "memory", stream(folder, stream=False, **changed))
    assert same(trained(tmp_path / "stream", stream(folder, **changed)), memory)


def test_neither_workers_nor_a_cut_change_the_bits(folder: Path, tmp_path: Path) -> None:
    given = stream(folder, augmentation="resized_crop_flip+randaugment+mixup", accumulate=2, repeats=2)
    alone = trained(tmp_path / "alone", given, workers=0)
    assert same(trained(tmp_path / "two", given, workers=2), alone)
    with pytest.raises(Killed):
        trained(tmp_path / "cut", given, workers=1, checkpoint_every=0.0, tick=killed_after(7))
    assert same(trained(tmp_path / "cut", given, workers=1), alone)


def test_an_unreadable_training_image_gives_way_to_the_next_and_is_named(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    class_folders(root / "train", {"a": 8, "b": 8}, side=16)
    class_folders(root / "test", {"a": 2, "b": 2}, side=16)
    (root / "train" / "a" / "003.png").write_bytes(b"no picture")
    said: list[str] = []
    how = {"methods": ("standard",)}
    trained(tmp_path / "run", stream(root, **how), say=said.append)
    assert len(said) == 1 and "1: " in said[0] and "003.png" in said[0]
    data = prepare(stream(root, **how)).first.data
    assert torch.equal(data.train.take(torch.tensor([3])), data.train.take(torch.tensor([4])))
    with pytest.raises(InputError, match=r"003\.png is not a readable image"):
        trained(tmp_path / "strict", stream(root, **how), strict=True)
    (root / "test" / "b" / "001.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"001\.png is not a readable image"):
        data.test.take(torch.arange(4))
    found = prepare(stream(root, **how))
    assert len(found.first.data.test) == 3 and "unreadable test images, left out: 1 of 4" in found.notes[0]
    with pytest.raises(InputError, match=r"001\.png is not a readable image"):
        prepare(stream(root, **how), strict=True)


def test_unreadable_validation_images_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "set"
    class_folders(root / "train", {"a": 8, "b": 8}, side=16)
    class_folders(root / "test", {"a": 2, "b": 2}, side=16)
    given = stream(root, val_fraction=0.25)
    validation = prepare(given).first.validation
    assert isinstance(validation, Streamed) and len(validation) == 4
    validation.path(1).write_bytes(b"no picture")
    found = prepare(given)
    assert isinstance(found.first.validation, Streamed)
    assert found.first.validation.files.tolist() == np.delete(validation.files, 1).tolist()
    assert torch.equal(found.first.validation.labels, validation.labels[[0, 2, 3]])
    assert "unreadable validation images, left out: 1 of 4" in found.notes[0]
    for place in (0, 2, 3):
        validation.path(place).write_bytes(b"no picture")
    with pytest.raises(InputError, match="none of the 4 validation images"):
        prepare(given)


def test_an_unreadable_image_is_named_though_the_run_was_cut_after_it(tmp_path: Path) -> None:
    root = tmp_path / "set"
    class_folders(root / "train", {"a": 8, "b": 8}, side=16)
    class_folders(root / "test", {"a": 2, "b": 2}, side=16)
    (root / "train" / "a" / "003.png").write_bytes(b"no picture")
    given, said = stream(root, methods=("standard",), epochs=2), []  # type: ignore[var-annotated]
    with pytest.raises(Killed):
        trained(tmp_path / "run", given, tick=killed_after(2), checkpoint_every=0.0, workers=0)
    for image in (root / "train").rglob("003.png"):
        Image.fromarray(picture(0, 16)).save(image)
    trained(tmp_path / "run", given, say=said.append, workers=0)
    assert len(said) == 1 and "003.png" in said[0]


def test_the_mean_reference_is_decoded_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    share = ReferenceSet.share
    monkeypatch.setattr(ReferenceSet, "share", lambda self, *given: calls.append(1) or share(self, *given))
    for number in range(2):
        with pytest.raises(Killed):
            trained(tmp_path / "run", stream(folder), tick=killed_after(2 + number), checkpoint_every=0.0, workers=0)
    trained(tmp_path / "run", stream(folder), workers=0)
    assert len(calls) == 1
    whole = reference_set(
        stream(folder).run_configs()[0], (inputs := prepare(stream(folder)).first).data.train, inputs.preprocess
    )
    assert whole is not None
    torch.testing.assert_close(load_file(tmp_path / "run" / MEAN)["mean"], whole.mean)


def test_validation_takes_the_mean_reference_that_was_decoded_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = ReferenceSet.mean.fget  # type: ignore[attr-defined]

    def mean(references: ReferenceSet) -> torch.Tensor:
        assert references._mean is not None, "every image of the set would be decoded for it"
        return decoding(references)

    monkeypatch.setattr(ReferenceSet, "mean", property(mean))
    given = stream(folder, epochs=2, val_fraction=0.25)
    lines: list[dict[str, Any]] = []
    trained(tmp_path / "run", given, validation=prepare(given).first.validation, record=lines.append, workers=0)
    assert all("validation_nll" in line for line in lines) and len(lines) == 2


def test_sigterm_to_the_whole_group_saves_and_leaves_no_worker(folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "anchored",
        "train",
        "--data",
        f"folder:{folder}",
        "--stream",
        "--image-size",
        "16",
    ]
    command += ["--model", "tiny_model:tiny", "--epochs", "2000", "--batch-size", "8", "--out", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 300
    while not (log.exists() and "checkpoint" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and b"which is saved" in errors, errors.decode()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_pictures_of_every_kind_and_size_are_fitted_as_in_memory(tmp_path: Path) -> None:
    for part, side in (("train", 40), ("test", 30)):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            image = Image.fromarray(picture(side, side, side + 7))
            image.convert("L").save(tmp_path / part / name / "grey.png")
            image.convert("P").save(tmp_path / part / name / "palette.png")
            image.convert("RGBA").save(tmp_path / part / name / "alpha.png")
            image.convert("CMYK").save(tmp_path / part / name / "cmyk.jpg")
            exif = Image.Exif()
            exif[0x0112] = 6
            image.save(tmp_path / part / name / "turned.jpg", exif=exif)
    streamed = prepare(stream(tmp_path, methods=("standard",))).first.data
    memory = prepare(stream(tmp_path, methods=("standard",), stream=False)).first.data
    for one, other in ((streamed.train, memory.train), (streamed.test, memory.test)):
        assert torch.equal(one.take(torch.arange(len(one))), other.take(torch.arange(len(other))))


def test_streaming_is_for_class_folders_of_a_known_size(folder: Path) -> None:
    with pytest.raises(InputError, match="only images in files can be streamed"):
        prepare(settings(stream=True, image_size=32))
    with pytest.raises(InputError, match="streamed images need a size"):
        prepare(stream(folder, image_size=None))


def test_compare_streams_and_predicts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data", f"folder:{folder}", "--model", "tiny_model:tiny", "--image-size", "16", "--stream"]
    flags += [
        "--epochs",
        "1",
        "--batch-size",
        "8",
        "--methods",
        "standard",
        "--on",
        "clean",
        "fog",
        "--severities",
        "2",
    ]
    main(["compare", *flags, "--workers", "1", "--out", str(tmp_path / "out")])
    assert "report.html" in capsys.readouterr().out
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(buffer, "PNG")
    (tmp_path / "black.png").write_bytes(buffer.getvalue())
    main(["predict", str(tmp_path / "out" / "runs" / "standard-seed0"), str(tmp_path / "black.png"), "--json"])
    assert '"class": ' in capsys.readouterr().out
