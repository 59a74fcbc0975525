"""`anchored evaluate`, end to end: compare's own scores, resuming, class maps, stored corruptions, anomalies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from images import encoded, write_parquet
from numpy.typing import NDArray
from PIL import Image

from anchored import corrupt
from anchored.cli import main
from anchored.evaluation.rows import Row, read_rows
from anchored.evaluation.scores import read_scores

COLOURS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220)}
QUICK = ["--device", "cpu", "--image-size", "16"]


def tile(name: str, seed: int, side: int = 16) -> NDArray[np.uint8]:
    """A noisy tile of a colour."""
    noise = np.random.default_rng(seed).integers(-25, 26, (side, side, 3))
    return (np.array(COLOURS[name]) + noise).clip(0, 255).astype(np.uint8)


def folders(root: Path, counts: dict[str, int], *, names: dict[str, str] | None = None, side: int = 16) -> Path:
    """Class folders of tiles; names: what the folder of a colour is called."""
    for number, (name, count) in enumerate(counts.items()):
        folder = root / (names or {}).get(name, name)
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.fromarray(tile(name, 100 * number + i, side)).save(folder / f"{i:03}.png")
    return root


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"folder:{folders(tmp_path / 'colours', {'blue': 20, 'green': 20, 'red': 20})}"


def by_metric(out: Path, benchmark: str, metric: str) -> list[Row]:
    return [row for row in read_rows(out / "rows.jsonl") if (row.benchmark, row.metric) == (benchmark, metric)]


def test_runs_get_the_scores_that_compare_gave_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["--on", "clean", "gaussian_noise", "--severities", "3", "--limit", "100", "--anomalies", "photos"]
    main(["compare", "--model", "tiny_model:tiny", "--epochs", "1", "--out", str(tmp_path / "c"), *cells])
    runs = [str(tmp_path / "c" / "runs" / name) for name in ("standard-seed0", "masking-uniform-seed0")]
    out = tmp_path / "e"
    command = ["evaluate", *runs, f"fold:{runs[1]}", "--out", str(out), *cells]
    main(command)
    for name in ("standard-seed0", "masking-uniform-seed0"):
        for cell in ("clean", "corruptions-gaussian_noise-3", "photos"):
            before = read_scores(tmp_path / "c" / "runs" / name / "scores" / f"{cell}.parquet")
            after = read_scores(out / "runs" / name / "scores" / f"{cell}.parquet")
            for column, values in before.items():
                np.testing.assert_array_equal(after[column], values, err_msg=f"{name} {cell} {column}")
    folded = read_scores(out / "runs" / "masking-uniform-seed0-folded" / "scores" / "clean.parquet")
    whole = read_scores(out / "runs" / "masking-uniform-seed0" / "scores" / "clean.parquet")
    np.testing.assert_allclose(folded["energy"], whole["energy"], rtol=1e-4)
    rows = read_rows(out / "rows.jsonl")
    assert {row.method for row in rows} == {"standard", "masking"} and {row.n for row in rows} == {100}
    assert {"auroc", "fpr95", "aupr", "auroc_msp", "auroc_maxlogit", "top5", "nll"} <= {row.metric for row in rows}
    assert (out / "report.html").stat().st_size > 0 and "report.html" in capsys.readouterr().out

    lost = out / "runs" / "standard-seed0" / "scores" / "clean.parquet"
    kept = out / "runs" / "standard-seed0" / "scores" / "photos.parquet"
    first, stamp = (out / "rows.jsonl").read_bytes(), kept.stat().st_mtime_ns
    lost.unlink()
    main(command)  # goes on: only what is missing is evaluated again
    assert (out / "rows.jsonl").read_bytes() == first and kept.stat().st_mtime_ns == stamp
    with pytest.raises(SystemExit):
        main([*command, "--protocol", "k_random", "--k", "3"])
    assert "another --protocol" in capsys.readouterr().err
    main(["evaluate", runs[1], "--out", str(tmp_path / "k"), *cells, "--protocol", "k_random", "--k", "3"])
    spread = read_scores(tmp_path / "k" / "runs" / "masking-uniform-seed0" / "scores" / "clean.parquet")
    assert np.isfinite(spread["std"]).all() and set(np.round(3 * spread["disagreement"]).tolist()) <= {0, 1, 2, 3}
    assert {"auroc_std", "auroc_disagreement"} <= {row.metric for row in read_rows(tmp_path / "k" / "rows.jsonl")}


def test_a_shift_is_scored_in_the_classes_it_shares(data: str, tmp_path: Path) -> None:
    """The model's outputs are red, green, blue whatever the data calls them: names decide, then the file."""
    order = {"red": "a_red", "green": "b_green", "blue": "c_blue"}
    clean = f"folder:{folders(tmp_path / 'clean', dict.fromkeys(order, 10), names=order)}"
    shift = folders(tmp_path / "shift", {"blue": 7, "red": 5, "green": 3}, names={"blue": "C Blue", "red": "A-Red"})
    folders(tmp_path / "other", {"red": 4, "blue": 6}, names={"red": "x", "blue": "y"})
    (tmp_path / "map.json").write_text(json.dumps({"x": "a_red", "y": "c_blue"}))
    out = tmp_path / "out"
    flags = ["--data", clean, "--on", f"folder:{shift}", f"folder:{tmp_path / 'other'}"]
    main(
        [
            "evaluate",
            "tiny_model:colour",
            *flags,
            "--classes",
            str(tmp_path / "map.json"),
            "--part",
            "all",
            *QUICK,
            "--out",
            str(out),
        ]
    )
    (clean_row,) = by_metric(out, "clean", "top1")
    (shift_row,) = by_metric(out, "shift", "top1")
    (other_row,) = by_metric(out, "other", "top1")
    assert (clean_row.value, clean_row.n) == (100, 30)
    assert (shift_row.value, shift_row.n) == (100, 12)  # `green` is no class of the model
    assert (other_row.value, other_row.n) == (100, 10)
    notes = json.loads((out / "config.json").read_text())["data"]["notes"]
    assert any("shift" in note and "left out: 1 of 3: green" in note for note in notes)


def test_a_shift_saved_by_datasets(data: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    names = ["green", "red", "violet"]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    images = [Image.fromarray(tile(name, seed)) for name in ("green", "red") for seed in range(4)]
    saved = datasets.Dataset.from_dict({"image": images, "label": [0] * 4 + [1] * 4}, features=features)
    saved.save_to_disk(tmp_path / "saved")
    flags = ["--data", data, "--on", f"hf:{tmp_path / 'saved'}", *QUICK]
    main(["evaluate", "tiny_model:colour", *flags, "--out", str(tmp_path / "out")])
    (row,) = by_metric(tmp_path / "out", "saved", "top1")
    assert row.n == 8


def test_stored_corruptions_are_the_generated_ones_and_missing_ones_are_named(data: str, tmp_path: Path) -> None:
    images = np.stack([tile(name, seed) for name in ("blue", "green", "red") for seed in range(10)])
    labels = np.repeat([0, 1, 2], 10)
    parquet = write_parquet(
        tmp_path / "d" / "test.parquet", [encoded(i) for i in images], labels.tolist(), names=["blue", "green", "red"]
    )
    write_parquet(
        tmp_path / "d" / "train.parquet", [encoded(i) for i in images], labels.tolist(), names=["blue", "green", "red"]
    )
    stored = tmp_path / "stored"
    stored.mkdir()
    for name in ("fog", "contrast"):
        np.save(stored / f"{name}.npy", np.concatenate([corrupt(images, name, s, seed=0) for s in range(1, 6)]))
    np.save(stored / "labels.npy", np.tile(labels, 5))
    common = ["--data", f"parquet:{parquet.parent}", "--severities", "2", "5", *QUICK]
    main(["evaluate", "tiny_model:colour", "--on", f"c:{stored}", *common, "--out", str(tmp_path / "disk")])
    main(["evaluate", "tiny_model:colour", "--on", "fog", "contrast", *common, "--out", str(tmp_path / "made")])
    for name in ("fog", "contrast"):
        for severity in (2, 5):
            one, other = (
                read_scores(
                    tmp_path / where / "runs" / "tiny_model-colour" / "scores" / f"{kind}-{name}-{severity}.parquet"
                )
                for where, kind in (("disk", "c"), ("made", "corruptions"))
            )
            for column in one:
                np.testing.assert_array_equal(one[column], other[column])
    rows = by_metric(tmp_path / "disk", "c", "top1")
    assert {row.corruption_source for row in rows} == {"official, on disk"} and len(rows) == 4
    assert [
        r.metric for r in read_rows(tmp_path / "disk" / "rows.jsonl") if r.benchmark == "c" and not r.corruption
    ] == ["top1_mean"] * 2
    notes = json.loads((tmp_path / "disk" / "config.json").read_text())["data"]["notes"]
    assert any("2 of 19 corruptions found" in note and "missing: gaussian_noise" in note for note in notes)


def test_anomalies_of_another_data_set_with_an_exclusion_list(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = folders(tmp_path / "odd", {"red": 4, "green": 5, "blue": 6}, names={"green": "moss", "blue": "sky"})
    command = ["evaluate", "tiny_model:colour", "--data", data, "--anomalies", f"folder:{odd}", *QUICK]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--out", str(tmp_path / "no")])
    assert ended.value.code == 2 and "1 of its classes are classes of the models: red" in capsys.readouterr().err
    for number, (words, n) in enumerate(((["known"], 11), (["red", "sky"], 5), (["none"], 15))):
        out = tmp_path / str(number)
        main([*command, "--exclude-classes", *words, "--out", str(out)])
        (row,) = by_metric(out, "odd", "auroc")
        assert row.n_other == n and row.n == 12
    with pytest.raises(SystemExit):
        main([*command, "--exclude-classes", "known", "purple", "--out", str(tmp_path / "x")])
    assert "no anomaly set has a class purple" in capsys.readouterr().err


def test_a_pretrained_model_of_imagenet_on_200_of_its_classes(tmp_path: Path) -> None:
    """Logits are restricted to the classes of the set before the arg-max; wnid folders find their outputs."""
    import timm
    import torch
    from safetensors.torch import save_file

    from anchored.data.class_maps import imagenet_classes

    torch.manual_seed(0)
    net = timm.create_model("test_resnet", num_classes=1000)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    wnids = [name.split()[0] for name in imagenet_classes()]
    chosen = [wnids[i] for i in (7, 321, 999)]
    folders(tmp_path / "r", {"red": 3, "green": 3, "blue": 3}, names=dict(zip(COLOURS, chosen, strict=True)), side=32)
    out = tmp_path / "out"
    flags = ["--weights", str(tmp_path / "w.safetensors"), "--data", f"folder:{tmp_path / 'r'}", "--part", "all"]
    main(["evaluate", "timm:test_resnet", *flags, "--image-size", "32", "--device", "cpu", "--out", str(out)])
    scores = read_scores(out / "runs" / "timm-test_resnet-w" / "scores" / "clean.parquet")
    assert set(scores["prediction"].tolist()) <= {0, 1, 2} and "top5" not in scores
    config = json.loads((out / "config.json").read_text())
    assert config["data"]["classes"] == sorted(chosen)
    from anchored.models.by_name import create

    model = create("timm:test_resnet", 1000, weights=str(tmp_path / "w.safetensors"), image_size=32)
    x = torch.from_numpy(np.stack([tile("red", i, 32) for i in range(3)])).permute(0, 3, 1, 2) / 255
    x = (x - torch.tensor(model.mean)[:, None, None]) / torch.tensor(model.std)[:, None, None]
    with torch.no_grad():
        logits = model.net.eval()(x)[:, [7, 321, 999]]
    where = {name: i for i, name in enumerate(sorted(chosen))}
    red = [i for i, label in enumerate(scores["label"].tolist()) if label == where[chosen[0]]]
    got = np.sort(scores["max_logit"][red])
    np.testing.assert_allclose(got, np.sort(logits.max(1).values.numpy()), rtol=1e-3)
