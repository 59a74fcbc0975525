"""What is said before the work: parts that are not used, mirrored characters, few images, anomalies that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders
from safetensors.torch import save_file

from anchored import data as sources
from anchored.arms.recipe_choice import recipe
from anchored.cli import main
from anchored.comparison import preflight as cautions
from anchored.comparison.settings import comparison
from anchored.data.base import Data, ImageSet, unlabelled
from anchored.models.by_name import create
from anchored.system.errors import InputError


def images(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def data() -> Data:
    labels = torch.arange(20) % 2
    return Data("set", ImageSet(images(20, 1), labels), ImageSet(images(20, 2), labels), ("a", "b"))


def test_a_part_that_is_not_used_is_named(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        class_folders(tmp_path / "pets" / part, {"a": 3, "b": 3})
    assert sources.load(f"folder:{tmp_path / 'pets'}").notes[0].startswith("val is not used")
    arrays = {f"{part}_images": images(6).numpy() for part in ("train", "val", "test")}
    labels = {f"{part}_labels": np.arange(6) % 2 for part in ("train", "val", "test")}
    np.savez(tmp_path / "med.npz", **arrays, **labels)
    for found in (sources.load(f"npz:{tmp_path / 'med.npz'}"), sources.listing(f"npz:{tmp_path / 'med.npz'}")):
        assert found.notes[0].startswith("val_images is not used")


@pytest.mark.parametrize(
    ("augmentation", "classes", "said"),
    [
        ("crop_flip", ("0", "1", "2"), True),
        ("crop_flip+mixup", ("a", "b"), True),
        ("crop", ("0", "1", "2"), False),
        ("crop_flip", ("cat", "dog"), False),
    ],
)
def test_mirrored_characters(augmentation: str, classes: tuple[str, ...], said: bool) -> None:
    assert bool(list(cautions.mirrored(augmentation, classes))) == said


@pytest.mark.parametrize(
    ("n", "limit", "said"), [(30, None, "30 test images"), (500, 20, "--limit 20"), (500, None, "")]
)
def test_few_test_images(n: int, limit: int | None, said: str) -> None:
    settings = comparison("digits", "resnet9", recipe("cpu_quick"), limit=limit)
    assert "".join(cautions.few_images(settings, n)).startswith(said)


def test_anomalies_that_are_images_of_the_data_itself() -> None:
    known = data()
    strangers = images(10, 3)
    assert not list(cautions.known_anomalies("odd", unlabelled(strangers), known))
    some = torch.cat([strangers, known.test.take(torch.tensor([4])), known.train.take(torch.tensor([7]))])
    assert list(cautions.known_anomalies("odd", unlabelled(some), known)) == [
        "2 of the 12 anomalies of odd are images of set itself"
    ]
    most = torch.cat([strangers[:5], known.test.take(torch.arange(5))])
    with pytest.raises(InputError, match="5 of the 10 images of odd are images of set"):
        list(cautions.known_anomalies("odd", unlabelled(most), known))


def test_the_data_itself_is_no_anomaly_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--model", "tiny_model:tiny", "--anomalies", "digits", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2 and "digits is the data itself" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    net = create("tiny_model:tiny", 10).net
    state = {name: value.clone() for name, value in net.state_dict().items()}
    name = next(name for name, _ in net.named_parameters())
    state[name].view(-1)[0] = torch.nan
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=f"finite numbers; in .*{name}"):
        create("tiny_model:tiny", 10, weights=str(tmp_path / "w.safetensors"))
