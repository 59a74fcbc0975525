"""Classifiers of transformers from a folder with their configuration, without a network."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import pytest
import torch
from saved_run import saved_run

from anchored import load
from anchored.models.by_name import create
from anchored.system.errors import InputError

CONFIG = {
    "model_type": "vit",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 8,
}
STEPS = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"shortest_edge": 40},
    "crop_size": {"height": 32, "width": 32},
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.2, 0.3],
    "resample": 3,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("transformers")
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "vit"


def test_from_its_configuration_with_and_without_preprocessing(folder: Path) -> None:
    plain = create(f"hf:{folder}", 7, image_size=64)
    assert plain.net(torch.rand(2, 3, 64, 64)).logits.shape == (2, 7)
    assert plain.image_size == 64 and plain.mean is None and plain.crop == 1.0
    (folder / "preprocessor_config.json").write_text(json.dumps(STEPS))
    model = create(f"hf:{folder}", 7)
    assert (model.image_size, model.mean, model.std) == (32, (0.5, 0.4, 0.3), (0.2, 0.2, 0.3))
    assert (model.interpolation, model.crop, model.pretrained) == ("bicubic", 0.8, False)


def test_weights_of_the_folder_with_another_number_of_classes(folder: Path) -> None:
    first = create(f"hf:{folder}", 7, seed=1).net
    first.save_pretrained(folder)
    same = create(f"hf:{folder}", 7, weights="default", seed=2)
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(same.net.eval()(x).logits, first.eval()(x).logits)
    assert same.pretrained
    other = create(f"hf:{folder}", 4, weights="default", seed=2).net.eval()
    assert other(x).logits.shape == (2, 4)
    torch.testing.assert_close(other.vit(x).last_hidden_state, first.vit(x).last_hidden_state)


def test_a_run_of_it_predicts(folder: Path, tmp_path: Path) -> None:
    saved_run(tmp_path / "run", model=f"hf:{folder}")
    run = load(tmp_path / "run")
    prediction = run.predict(torch.zeros(2, 16, 16, 3, dtype=torch.uint8), protocol="k_random", k=3)
    assert prediction.logits.shape == (2, 4) and prediction.std is not None


def test_what_cannot_be_made_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(InputError, match="no image classifier of transformers"):
        create(f"hf:{folder}", 3)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="hf:someone/nothing is no image classifier"):
        create("hf:someone/nothing", 3)


def test_transformers_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object) -> object:
        if name == "transformers":
            raise ModuleNotFoundError("No module named 'transformers'", name=name)
        return real(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'anchored\[hf\]'"):
        create("hf:someone/vit", 3)
