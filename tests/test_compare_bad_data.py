"""Bad data and weights through `anchored compare`: exit status 2, one message on stderr, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders, encoded, picture, write_parquet
from safetensors.torch import save_file

from anchored.cli import main
from anchored.models import resnet9

IMAGES = np.stack([picture(seed, 32) for seed in range(24)])
LABELS = np.arange(24) % 3


def npz(folder: Path, **changed: object) -> list[str]:
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:12], "y_test": LABELS[:12]} | changed
    np.savez(folder / "set.npz", **{name: value for name, value in arrays.items() if value is not None})
    return ["--data", f"npz:{folder / 'set.npz'}"]


def nan_pixels(folder: Path) -> list[str]:
    images = IMAGES.astype(np.float32) / 255
    images[3, 4, 5, 1] = np.nan
    return npz(folder, x_train=images)


def empty_folder(folder: Path) -> list[str]:
    (folder / "empty").mkdir()
    return ["--data", f"folder:{folder / 'empty'}"]


def empty_class(folder: Path) -> list[str]:
    class_folders(folder / "set" / "train", {"a": 4, "b": 4})
    class_folders(folder / "set" / "test", {"a": 2})
    (folder / "set" / "test" / "b").mkdir()
    return ["--data", f"folder:{folder / 'set'}"]


def unknown_test_class(folder: Path) -> list[str]:
    class_folders(folder / "set" / "train", {"a": 4, "b": 4})
    class_folders(folder / "set" / "test", {"a": 2, "c": 2})
    return ["--data", f"folder:{folder / 'set'}"]


def one_class(folder: Path) -> list[str]:
    class_folders(folder / "set", {"a": 9})
    return ["--data", f"folder:{folder / 'set'}"]


def unreadable(folder: Path, *more: str) -> list[str]:
    class_folders(folder / "set", {"a": 9, "b": 9}, side=32)
    (folder / "set" / "a" / "004.png").write_bytes(b"no picture")
    return ["--data", f"folder:{folder / 'set'}", "--image-size", "32", *more]


def unreadable_parquet(folder: Path) -> list[str]:
    write_parquet(folder / "set" / "train.parquet", [encoded(image) for image in IMAGES[:6]], [0, 1] * 3)
    write_parquet(folder / "set" / "test.parquet", [encoded(IMAGES[0]), b"no picture"], [0, 1])
    return ["--data", f"parquet:{folder / 'set'}", "--strict"]


def not_parquet(folder: Path) -> list[str]:
    (folder / "train.parquet").write_bytes(b"PAR1 and then nothing")
    (folder / "test.parquet").write_bytes(b"")
    return ["--data", f"parquet:{folder}"]


def other_model(folder: Path) -> list[str]:
    torch.manual_seed(0)
    save_file(resnet9(10).state_dict(), folder / "resnet9.safetensors")
    return ["--model", "resnet18", "--weights", str(folder / "resnet9.safetensors")]


def too_large(folder: Path) -> list[str]:
    return [*npz(folder), "--memory-limit", "0.00001"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (nan_pixels, "NaN"),
        (lambda folder: npz(folder, x_train=IMAGES[..., :2]), "[24, 32, 32, 2]"),
        (lambda folder: npz(folder, y_train=LABELS[:5]), "24"),
        (lambda folder: npz(folder, y_test=np.array([0, 1, 7] * 4)), "7"),
        (lambda folder: npz(folder, y_train=LABELS - 1), "-1"),
        (lambda folder: npz(folder, x_test=IMAGES[:0], y_test=LABELS[:0]), "no images"),
        (lambda folder: npz(folder, x_test=IMAGES[:, :16, :16], y_test=LABELS), "16"),
        (empty_folder, "empty has neither folders nor images in it"),
        (empty_class, "none in b"),
        (unknown_test_class, "class"),
        (one_class, "at least 2 classes"),
        (lambda folder: unreadable(folder, "--strict"), "a/004.png is not a readable image"),
        (unreadable_parquet, "is not a readable image"),
        (not_parquet, "parquet"),
        (other_model, "resnet18"),
        (too_large, "memory"),
    ],
)
def test_bad_data_ends_with_one_message_and_nothing_written(
    make: Callable[[Path], list[str]], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--epochs", "1", "--on", "clean", "--out", str(out), *flags])
    errors = capsys.readouterr().err
    assert ended.value.code == 2, errors
    assert message in errors and "Traceback" not in errors
    assert sum(line.startswith("Error: ") for line in errors.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_without_strict_an_unreadable_image_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = unreadable(tmp_path, "--model", "tiny_model:tiny", "--methods", "standard", "--batch-size", "4")
    out = tmp_path / "out"
    main(["compare", *flags, "--epochs", "1", "--on", "clean", "--anomalies", "--out", str(out)])
    assert "a/004.png" in capsys.readouterr().err
    assert any("a/004.png" in note for note in json.loads((out / "config.json").read_text())["data"]["notes"])


def test_a_run_with_the_weights_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", "tiny_model:tiny", "--methods", "standard", "--epochs", "1", "--on", "clean", "--anomalies"]
    main(["compare", *flags, "--out", str(tmp_path / "out")])
    run = tmp_path / "out" / "runs" / "standard-seed0"
    torch.manual_seed(0)
    save_file(resnet9(10).state_dict(), run / "model.safetensors")
    (tmp_path / "one.png").write_bytes(encoded(IMAGES[0]))
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(run), str(tmp_path / "one.png")])
    assert ended.value.code == 2 and "is not the model of this run" in capsys.readouterr().err


def test_a_process_ends_with_status_2_and_one_line() -> None:
    command = [sys.executable, "-m", "anchored", "compare", "--data", "folder:/nowhere/at/all"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stdout == ""
    assert len(ended.stderr.strip().splitlines()) == 1 and "/nowhere/at/all" in ended.stderr
