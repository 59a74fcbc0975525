"""Where a run's data came from is kept so that it is found again: from other folders, in parts, on the Hub."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anchored.data.recorded import Located, locate, same_data, source_of


def touched(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize("spec", ["folder:photos", "npz:d/a.npz", "parquet:d/a.parquet,d/b.parquet", "hf:photos"])
def test_a_relative_path_is_found_where_it_is_given_and_from_elsewhere(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    touched(here / "photos" / "x", here / "d" / "a.npz", here / "d" / "a.parquet", here / "d" / "b.parquet")
    there.mkdir()
    monkeypatch.chdir(here)
    source = json.loads(json.dumps(source_of(spec)))
    assert source["data"] == spec and all(os.path.isabs(part) for part in source["path"].split(","))
    assert locate(source) == Located(spec)
    monkeypatch.chdir(there)
    kind, _, path = spec.partition(":")
    found = locate(source)
    assert found == Located(f"{kind}:{','.join(str(here / part) for part in path.split(','))}")
    monkeypatch.chdir(here)
    assert same_data(spec, found.data) and same_data(found.data, spec)
    (here / path.split(",")[0]).rename(here / "moved")  # of two files one gone is enough
    assert locate(source) is None


def test_another_folder_of_the_same_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched(tmp_path / "a" / "photos" / "x", tmp_path / "b" / "photos" / "x")
    monkeypatch.chdir(tmp_path / "a")
    source = source_of("folder:photos")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "photos").symlink_to(tmp_path / "a" / "photos")
    monkeypatch.chdir(tmp_path / "b")
    assert locate(source) == Located("folder:photos", not_used=str(tmp_path / "a" / "photos"))
    assert not same_data("folder:photos", f"folder:{tmp_path / 'a' / 'photos'}")
    monkeypatch.chdir(tmp_path / "c")  # a link to it is the same place
    assert locate(source) == Located("folder:photos")


def test_a_path_with_a_comma_is_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched(tmp_path / "cats, dogs" / "x")
    monkeypatch.chdir(tmp_path)
    source = source_of("folder:cats, dogs")
    assert source["path"] == str(tmp_path / "cats, dogs")
    monkeypatch.chdir("/")
    assert locate(source) == Located(f"folder:{tmp_path / 'cats, dogs'}")


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched(tmp_path / "home" / "photos" / "x")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    source = source_of("folder:~/photos", labels="~/labels.npy")
    assert source["path"] == str(tmp_path / "home" / "photos")
    assert source["labels"] == str(tmp_path / "home" / "labels.npy")
    assert locate(source) == Located("folder:~/photos")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate(source) == Located(f"folder:{tmp_path / 'home' / 'photos'}")


@pytest.mark.parametrize("spec", ["digits", "cifar10", "hf:owner/name", "hf:name@config"])
def test_data_without_a_path_is_there_by_its_name(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    source = source_of(spec, "root")
    assert source["path"] is None and source["root"] == str(tmp_path / "root")
    assert locate(source) == Located(spec, str(tmp_path / "root"))
    (tmp_path / "root").rmdir()  # downloads are elsewhere on another machine
    assert locate(source) == Located(spec)
    assert locate({"data": spec}) == Located(spec)


def test_a_path_that_json_cannot_hold_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(odd)
    touched(Path(odd) / "photos" / "x")
    monkeypatch.chdir(odd)
    source = source_of("folder:photos", labels="labels.npy")
    json.dumps(source, ensure_ascii=False).encode("utf-8")
    assert source["path"] is None and locate(source) == Located("folder:photos")
    monkeypatch.chdir(tmp_path)
    assert locate(source) is None
