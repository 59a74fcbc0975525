"""Weights of models: from files in the forms people save them, and the libraries' own."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models as tv
from torchvision.models.vision_transformer import VisionTransformer

from anchored.models import weights as weights_module
from anchored.models.by_name import create
from anchored.system.errors import InputError

SMALL = "timm:test_resnet"


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No network (every request goes to a proxy that is not there), and empty caches in the folder returned."""
    from huggingface_hub import constants

    for name in ("https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path


# --- weights from files


@pytest.fixture
def trained() -> dict[str, Tensor]:
    """Weights of `SMALL` for five classes, in which every tensor differs from a new network's."""
    state = create(SMALL, 5, seed=11).net.state_dict()
    return {key: value + 1 if value.is_floating_point() else value + 3 for key, value in state.items()}


@pytest.mark.parametrize(
    "form", ["safetensors", "pt", "state_dict", "module.", "_orig_mod.module.", "lightning", "averaged", "half"]
)
def test_weights_in_the_forms_people_save_them(form: str, trained: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pt")
    expected = trained
    if form == "safetensors":
        save_file(trained, path)
    elif form == "pt":
        torch.save(trained, path)
    elif form == "state_dict":
        torch.save({"epoch": 3, "arch": "test_resnet", "state_dict": trained, "optimizer": {"lr": 0.1}}, path)
    elif form == "lightning":
        torch.save({"state_dict": {f"model.{key}": value for key, value in trained.items()}}, path)
    elif form == "averaged":  # torchvision's reference scripts: the model and an AveragedModel of it
        averaged = {f"module.{key}": value for key, value in trained.items()} | {"n_averaged": torch.tensor(9)}
        torch.save({"model": {key: 0 * value for key, value in trained.items()}, "model_ema": averaged}, path)
    elif form == "half":
        halves = {key: value.half() if value.is_floating_point() else value for key, value in trained.items()}
        torch.save(halves, path)
        expected = {key: value.to(trained[key].dtype) for key, value in halves.items()}
    else:
        torch.save({form + key: value for key, value in trained.items()}, path)
    model = create(SMALL, 5, weights=str(path))
    assert model.pretrained
    assert same(dict(model.net.state_dict()), expected)
    assert model.notes == ((f"the averaged weights (model_ema) of {path} are used",) if form == "averaged" else ())


def test_a_head_of_other_classes_stays_new_and_the_rest_is_loaded(trained: dict[str, Tensor], tmp_path: Path) -> None:
    save_file(trained, tmp_path / "w.safetensors")
    model = create(SMALL, 8, weights=str(tmp_path / "w.safetensors"), seed=4)
    fresh = create(SMALL, 8, seed=4).net.state_dict()
    loaded = model.net.state_dict()
    for key in loaded:
        assert torch.equal(loaded[key], fresh[key] if key.startswith("fc.") else trained[key]), key
    assert len(model.notes) == 1 and "for 5 classes" in model.notes[0]


@pytest.mark.parametrize("name", ["resnet9", "timm:test_vit", "torchvision:squeezenet1_1", "torchvision:mnasnet0_5"])
def test_heads_of_every_library(name: str, tmp_path: Path) -> None:
    old = create(name, 5, seed=1).net.state_dict()
    save_file(old, tmp_path / "w.safetensors")
    loaded = create(name, 6, weights=str(tmp_path / "w.safetensors"), seed=2).net.state_dict()
    new = [key for key, value in loaded.items() if value.shape != old[key].shape]
    assert {loaded[key].shape[0] for key in new} == {6}
    assert len({key.rpartition(".")[0] for key in new}) == 1, "one layer is the head"
    assert all(torch.equal(loaded[key], old[key]) for key in loaded if key not in new)


def test_a_checkpoint_of_another_model(trained: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(trained, path)
    assert create("timm:test_resnet.r160_in1k", 5, weights=str(path)).pretrained  # a tag names the same model
    for name in ("timm:test_vit", "resnet18"):
        with pytest.raises(InputError, match=f"another model than {name}: keys .* missing .* unexpected"):
            create(name, 5, weights=str(path))
    # The right names and a layer that is not the head of another shape.
    key = "layer1.0.conv1.weight"
    save_file(trained | {key: torch.zeros(3, 3)}, path)
    with pytest.raises(InputError, match=f"1 of another shape \\({key}\\)"):
        create(SMALL, 5, weights=str(path))


def test_nothing_is_loaded_when_something_does_not_fit(trained: dict[str, Tensor], tmp_path: Path) -> None:
    net = create(SMALL, 5, seed=3).net
    before = {key: value.clone() for key, value in net.state_dict().items()}
    del trained["conv1.0.weight"]
    save_file(trained, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"1 missing \(conv1.0.weight\)"):
        weights_module.load_weights(net, tmp_path / "w.safetensors", SMALL)
    assert same(before, dict(net.state_dict()))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file(suffix: str, share: float, trained: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    if suffix == ".pt":
        torch.save(trained, path)
    else:
        save_file(trained, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match="cannot be read safely"):
        create(SMALL, 5, weights=str(path))


class _Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_pickle_cannot_run_code(writer: str, tmp_path: Path) -> None:
    path, marker = tmp_path / "w.pth", tmp_path / "ran"
    payload = {"state_dict": {"conv1.0.weight": torch.zeros(1), "x": _Malicious(marker)}}
    if writer == "torch":
        torch.save(payload, path)
    else:
        path.write_bytes(pickle.dumps(_Malicious(marker)))
    with pytest.raises(InputError, match="tensors only"):
        create(SMALL, 5, weights=str(path))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [([1, 2], "no state dict but a list"), ({"lr": 0.1}, "no tensors; its keys are lr"), ({}, "no tensors")],
)
def test_a_file_of_something_else(content: object, says: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match=says):
        create("resnet9", 5, weights=str(tmp_path / "w.pt"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file; it is none, default or the PATH"):
        create("resnet9", 5, weights=str(tmp_path / "w.pt"))
    with pytest.raises(InputError, match="is no file"):
        create("resnet9", 5, weights=str(tmp_path))


def test_a_position_table_of_another_size_is_interpolated_as_timm_does(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    source = create("timm:test_vit", 5, seed=7).net
    nn.init.normal_(source.pos_embed, generator=torch.Generator().manual_seed(0))
    save_file(source.state_dict(), path)
    model = create("timm:test_vit", 5, weights=str(path), image_size=64)
    overlay = {"state_dict": source.state_dict(), "num_classes": 5}
    theirs = timm.create_model("test_vit", pretrained=True, pretrained_cfg_overlay=overlay, num_classes=5, img_size=64)
    assert same(dict(model.net.state_dict()), dict(theirs.state_dict()))
    assert any("position tables are interpolated" in note for note in model.notes)


def test_a_position_table_of_torchvision() -> None:
    def vit(side: int, classes: int) -> VisionTransformer:
        return VisionTransformer(side, 16, 1, 2, 8, 16, num_classes=classes)

    source, net = vit(64, 5), vit(32, 3)
    notes = weights_module.assign(net, source.state_dict(), "torchvision:vit", "w.pt")
    assert len(notes) == 2 and "interpolated" in notes[0] and "5 classes" in notes[1]
    assert torch.equal(net.encoder.pos_embedding[:, 0], source.encoder.pos_embedding[:, 0])
    assert torch.equal(net.conv_proj.weight, source.conv_proj.weight)


def test_old_names_of_densenet_and_no_counters() -> None:
    net = tv.DenseNet(4, (2, 2), 8, num_classes=3)
    state = {key: value + 1 for key, value in net.state_dict().items() if "num_batches" not in key}
    old = {
        key.replace("norm1.", "norm.1.").replace("norm2.", "norm.2.").replace("conv1.", "conv.1.")
        if "denselayer" in key
        else key: value
        for key, value in state.items()
    }
    assert len(old.keys() - state.keys()) > 4
    assert weights_module.assign(net, old, "torchvision:densenet", "w.pt") == ()
    assert all(torch.equal(net.state_dict()[key], value) for key, value in state.items())


def test_auxiliary_heads_of_a_checkpoint_are_left_out(tmp_path: Path) -> None:
    published = tv.GoogLeNet(num_classes=4, aux_logits=True, init_weights=False)
    torch.save(published.state_dict(), tmp_path / "w.pth")
    net = create("torchvision:googlenet", 4, weights=str(tmp_path / "w.pth")).net
    assert torch.equal(net.fc.weight, published.fc.weight)


# --- the libraries' own weights


@pytest.mark.parametrize("name", [SMALL, "torchvision:squeezenet1_1"])
def test_default_weights_without_a_network_fail_within_seconds(name: str, offline: Path) -> None:
    from huggingface_hub import constants

    began = time.monotonic()
    with pytest.raises(InputError, match=r"could not be fetched .* pass the file as --weights PATH"):
        create(name, 5, weights="default")
    assert time.monotonic() - began < 10
    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.parametrize("name", ["resnet9", "timm:test_vit4"])
def test_models_without_default_weights_say_so(name: str) -> None:
    with pytest.raises(InputError, match="has no pretrained weights"):
        create(name, 5, weights="default")


def test_cached_default_weights_of_timm_need_no_network(offline: Path) -> None:
    published = timm.create_model("test_resnet", num_classes=1000)
    folder = offline / "hub" / f"models--{published.pretrained_cfg['hf_hub_id'].replace('/', '--')}"
    commit = "0" * 40
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    save_file(published.state_dict(), folder / "snapshots" / commit / "model.safetensors")
    model = create(SMALL, 5, weights="default")
    assert model.pretrained
    assert torch.equal(model.net.conv1[0].weight, published.conv1[0].weight)
    assert model.net.fc.weight.shape[0] == 5


def test_cached_default_weights_of_torchvision_need_no_network(offline: Path) -> None:
    published = tv.squeezenet1_1(num_classes=1000)
    cache = offline / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(published.state_dict(), cache / Path(tv.SqueezeNet1_1_Weights.DEFAULT.url).name)
    model = create("torchvision:squeezenet1_1", 5, weights="default")
    assert model.pretrained and "1000 classes" in model.notes[0]
    assert torch.equal(model.net.features[0].weight, published.features[0].weight)
