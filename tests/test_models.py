from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models as tv
from torchvision.models.vision_transformer import VisionTransformer

import anchored
from anchored.models import weights as weights_module
from anchored.models.by_name import create
from anchored.system.errors import InputError

SMALL = "timm:test_resnet"


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


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


# --- the networks


@pytest.mark.parametrize(
    ("name", "classes", "millions"),
    [
        ("resnet18", 10, 11.17),
        ("resnet18", 100, 11.22),
        ("wrn40_2", 10, 2.24),
        ("wrn40_2", 100, 2.26),
    ],
)
def test_parameters_as_in_the_paper(name: str, classes: int, millions: float) -> None:
    assert round(parameters(create(name, classes).net) / 1e6, 2) == millions


def test_resnet9_is_small() -> None:
    assert round(parameters(create("resnet9", 10).net) / 1e6, 1) == 1.6


@pytest.mark.parametrize("name", ["resnet9", "resnet18", "wrn40_2"])
def test_logits_at_several_sizes_and_gradients_everywhere(name: str) -> None:
    net = create(name, 7).net
    for side in (16, 32, 64):
        assert net.eval()(torch.rand(2, 3, side, side)).shape == (2, 7)
    net.train()
    F.cross_entropy(net(torch.rand(4, 3, 16, 16)), torch.tensor([0, 1, 2, 6])).backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in net.parameters())


def test_wide_residual_network_has_40_layers_and_the_released_dropout() -> None:
    net = create("wrn40_2", 10).net
    # depth = 6 n + 4: three groups of n blocks of two convolutions, behind a stem.
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 1 + 2 * 3 * ((40 - 4) // 6)
    assert {m.p for m in net.modules() if isinstance(m, nn.Dropout)} == {0.3}


@pytest.mark.parametrize("name", ["resnet9", "wrn40_2", SMALL, "torchvision:squeezenet1_1"])
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = create(name, 5, seed=1).net.state_dict()
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    torch.rand(3)
    assert same(first, create(name, 5, seed=1).net.state_dict())
    assert not same(first, create(name, 5, seed=2).net.state_dict())


# --- names


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet81", "Did you mean 'resnet18'"),
        ("wrn402", "Did you mean 'wrn40_2'"),
        ("resnet50", "timm:resnet50 and torchvision:resnet50"),
        ("timm:resnet1", "Near: resnet1[0-9]"),
        ("timm:test_resnet.nothing", "r160_in1k"),
        ("timm:", "timm:NAME"),
        ("torchvision:resnet181", "Did you mean 'resnet18'"),
        ("torchvison:resnet18", "Did you mean torchvision:resnet18"),
        ("no_such_package:net", "No module named 'no_such_package'"),
        ("math:nothing_here", "nothing_here"),
        ("math:pi", "not callable"),
        ("math:sqrt", "num_classes=3"),
    ],
)
def test_unknown_names_say_what_there_is(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        create(name, 3)


def test_a_callable_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_a_test.py").write_text(
        "from torch import nn\n"
        "def net(num_classes, width=4):\n"
        "    return nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),"
        " nn.Linear(width, num_classes))\n"
        "def wrong(num_classes):\n"
        "    return net(num_classes + 1)\n"
        "def nothing(num_classes):\n"
        "    return None\n"
    )
    (tmp_path / "broken_for_a_test.py").write_text("def net(:\n")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    model = create("mine_for_a_test:net", 6, image_size=12)
    assert model.net(torch.rand(2, 3, 12, 12)).shape == (2, 6)
    assert model.mean is None and model.image_size is None and not model.pretrained
    with pytest.raises(InputError, match=r"logits \[B, 6\]; for 2 images it gives \[2, 7\]"):
        create("mine_for_a_test:wrong", 6, image_size=12)
    with pytest.raises(InputError, match="returned NoneType"):
        create("mine_for_a_test:nothing", 6)
    with pytest.raises(InputError, match="SyntaxError"):
        create("broken_for_a_test:net", 6)
    with pytest.raises(InputError, match="no default weights"):
        create("mine_for_a_test:net", 6, weights="default")


# --- image sizes and preprocessing


def test_a_position_table_is_made_for_the_image_size() -> None:
    model = create("timm:test_vit", 3, image_size=64)
    assert model.image_size == 64
    assert model.net.pos_embed.shape[1] == (64 // 16) ** 2 + 1
    assert create("timm:test_vit", 3).image_size == 160


def test_a_convolutional_network_takes_any_size() -> None:
    model = create(SMALL, 3, image_size=48)
    assert model.image_size == 48 and model.net(torch.rand(2, 3, 48, 48)).shape == (2, 3)


@pytest.mark.parametrize(("name", "side"), [("timm:test_vit", 50), ("torchvision:alexnet", 32)])
def test_a_size_the_model_fails_on_is_refused_at_once(name: str, side: int) -> None:
    with pytest.raises(InputError, match=f"RGB images of {side} px"):
        create(name, 3, image_size=side)


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_vit2"])
def test_preprocessing_of_timm(name: str) -> None:
    model = create(f"timm:{name}", 3)
    config = timm.data.resolve_model_data_config(model.net)
    assert (model.mean, model.std, model.crop) == (config["mean"], config["std"], config["crop_pct"])
    assert model.interpolation == config["interpolation"]


@pytest.mark.parametrize(
    ("name", "interpolation", "crop"),
    [("resnet18", "bilinear", 224 / 256), ("efficientnet_b0", "bicubic", 224 / 256)],
)
def test_preprocessing_of_torchvision(name: str, interpolation: str, crop: float) -> None:
    model = create(f"torchvision:{name}", 3)
    assert (model.interpolation, model.crop, model.image_size) == (interpolation, crop, 224)
    assert model.mean == (0.485, 0.456, 0.406) and model.std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize(("name", "side"), [("googlenet", 64), ("inception_v3", 96)])
def test_inception_trains_without_auxiliary_heads(name: str, side: int) -> None:
    net = create(f"torchvision:{name}", 4, image_size=side).net
    assert net.training and net.transform_input
    logits = net(torch.rand(2, 3, side, side))
    assert isinstance(logits, Tensor) and logits.shape == (2, 4)
    assert not any(key.startswith(("aux", "Aux")) for key in net.state_dict())


# --- anchoring


@pytest.mark.parametrize(
    "name",
    ["resnet9", "wrn40_2", "timm:test_vit", "timm:test_efficientnet", "torchvision:googlenet", "timm:test_nfnet"],
)
def test_what_create_returns_can_be_anchored(name: str) -> None:
    net = create(name, 5, image_size=64).net.double().eval()
    x = torch.rand(3, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wide = anchored.anchor(net, example=x[:2]).eval()
    with torch.no_grad():
        expected, logits = net(x), wide(x, x.flip(0) - 0.5)
    assert not torch.equal(expected[0], expected[1])
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-12)
    assert parameters(wide) > parameters(net)


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
