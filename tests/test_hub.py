"""Runs go to the Hub and come back, over HTTP, to a server on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures import ROOT
from hub_stub import hub
from saved_run import saved_run

import anchored
from anchored.system.errors import InputError
from anchored.system.files import read_json, write_json

ONLINE = """
import sys, torch, anchored
run = anchored.load(sys.argv[1])
print(run.push_to_hub("someone/tiny", token="hf_for_a_test", private=True))
again = anchored.load("someone/tiny")
images = torch.arange(2 * 16 * 16 * 3).reshape(2, 16, 16, 3).to(torch.uint8)
assert again.folder != run.folder and again.classes == run.classes
assert torch.equal(again.predict(images).logits, run.predict(images).logits)
assert torch.equal(again.predict(images, protocol="k_random").std, run.predict(images, protocol="k_random").std)
for call in (lambda: run.push_to_hub("someone/tiny", token="hf_wrong"), lambda: anchored.load("someone/else")):
    try:
        call()
    except anchored.InputError as error:
        print("refused:", error)
"""
OFFLINE = """
import anchored
print(anchored.load("someone/tiny").classes)
anchored.load("someone/else")
"""


def run_script(script: str, *arguments: str, endpoint: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """The hub's address and cache are read as its library is imported, so in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


def test_push_and_load_over_http(tmp_path: Path) -> None:
    source = {"data": "folder:photos", "path": "/home/someone/photos", "root": None, "labels": None}
    run = saved_run(tmp_path / "run", model="resnet9", source=source)
    with hub() as server:
        where = {"endpoint": server.address, "cache": tmp_path / "cache"}
        done = run_script(ONLINE, str(run.folder), **where)
        assert done.returncode == 0, done.stderr + "\n".join(server.log)
        assert server.private == {"someone/tiny": True}
        files = server.repositories["someone/tiny"]
        assert set(files) == {"README.md", "run.json", "model.safetensors", "references.safetensors"}
        assert files["model.safetensors"] == (run.folder / "model.safetensors").read_bytes()
        assert b"/home/someone" not in files["run.json"] and b'"folder:photos"' in files["run.json"]
        assert 'anchored.load("someone/tiny")' in files["README.md"].decode()
        refused = [line for line in done.stdout.splitlines() if line.startswith("refused:")]
        assert "the run could not be pushed" in refused[0] and "someone/else is no folder here" in refused[1]
    # The server is gone: what is in the cache still loads, and what is not says so at once.
    offline = run_script(OFFLINE, **where)
    assert "cat" in offline.stdout
    assert "InputError: someone/else is no folder here" in offline.stderr and "no network" in offline.stderr


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache as the hub's library lays it out, holding the run someone/tiny, and no network."""
    from huggingface_hub import constants

    repository = tmp_path / "hub" / "models--someone--tiny"
    saved_run(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repository / "snapshots" / "abc"


def test_a_name_is_a_folder_first(offline_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved_run(tmp_path / "someone" / "tiny", "standard")
    assert anchored.load("someone/tiny").config.method == "standard"


def test_a_callable_of_a_package_is_not_called_for_a_stranger(offline_cache: Path) -> None:
    with pytest.raises(InputError, match="tiny_model:tiny, a callable of a Python package"):
        anchored.load("someone/tiny")
    info = read_json(offline_cache / "run.json")
    info["config"]["model"] = "os:system"
    write_json(offline_cache / "run.json", info)
    with pytest.raises(InputError, match="os:system, a callable"):
        anchored.load("someone/tiny")


def test_bad_names_are_refused(tmp_path: Path) -> None:
    run = saved_run(tmp_path / "run")
    with pytest.raises(InputError, match="named user/name; got 'tiny'"):
        run.push_to_hub("tiny")
    with pytest.raises(InputError, match="is not a run"):
        anchored.load(tmp_path / "no" / "where")
