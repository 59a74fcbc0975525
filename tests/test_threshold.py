"""The anomaly threshold: a quantile of energies, kept with the run, shown by predict."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from saved_run import saved_run

import anchored
from anchored.cli import main
from anchored.data.base import ImageSet
from anchored.runs.threshold import AnomalyThreshold, anomaly_threshold
from anchored.system.errors import InputError


def pictures(n: int, seed: int) -> ImageSet:
    stream = torch.Generator().manual_seed(seed)
    return ImageSet(torch.randint(0, 256, (n, 16, 16, 3), generator=stream, dtype=torch.uint8), torch.arange(n) % 4)


@pytest.mark.parametrize("method", ["masking", "standard"])
def test_it_keeps_the_part_asked_for(method: str, tmp_path: Path) -> None:
    run = saved_run(tmp_path / "run", method)
    validation, train = pictures(200, 1), pictures(90, 2)
    energy = run.predict(validation.images).energy
    for keep in (0.95, 0.5):
        found = anomaly_threshold(
            run.net, run.references, run.preprocess, validation=validation, train=train, keep=keep
        )
        kept = (energy.double() <= found.energy + 1e-5).double().mean()
        assert keep <= kept <= keep + 2 / 200
        assert (found.images, found.n) == ("validation", 200)
        assert found.protocol == ("one_random" if method == "masking" else "direct")
    from_train = anomaly_threshold(run.net, run.references, run.preprocess, validation=None, train=train, limit=40)
    assert (from_train.images, from_train.n) == ("training", 40)
    assert "40 training images" in str(from_train)
    with pytest.raises(InputError, match=r"in \(0, 1\); got 95"):
        anomaly_threshold(run.net, run.references, run.preprocess, validation=None, train=train, keep=95)


def test_it_is_saved_and_predict_flags_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = pictures(3, 5).images
    plain = saved_run(tmp_path / "plain")
    assert plain.anomaly is None
    energy = plain.predict(images, protocol="k_random", k=5).energy
    between = float(energy.sort().values[1:].mean())
    limit = AnomalyThreshold(between, 0.95, 200, "validation", "one_random")
    run = saved_run(tmp_path / "run", anomaly=limit)
    assert run.anomaly == limit
    assert json.loads((tmp_path / "run" / "run.json").read_text())["anomaly"] == dataclasses.asdict(limit)
    paths = []
    for i, image in enumerate(images):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.fromarray(np.asarray(image)).save(paths[-1])
    flags = ["--protocol", "k_random", "--k", "5", "--json"]
    main(["predict", str(tmp_path / "run"), *paths, *flags])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["anomaly"] for line in lines] == (energy > between).tolist()
    assert sum(line["anomaly"] for line in lines) == 1
    prediction = run.predict(images, protocol="k_random", k=5)
    assert prediction.std is not None
    for line, probs, std in zip(lines, prediction.probs, prediction.std, strict=True):
        assert line["class"] == run.classes[int(probs.argmax())]
        assert line["confidence"] == pytest.approx(float(probs.max()), abs=1e-4)
        assert line["std"] == pytest.approx(float(std.mean()), abs=1e-5)
    main(["predict", str(tmp_path / "run"), *paths])
    printed = " ".join(capsys.readouterr().out.split())
    assert "yes" in printed and "95% of 200 validation images" in printed
    main(["predict", str(tmp_path / "plain"), *paths, "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[0])["anomaly"] is None


def test_it_travels_with_an_export(tmp_path: Path) -> None:
    limit = AnomalyThreshold(-1.5, 0.95, 200, "validation", "one_random")
    extra = {"anchored.json": ""}
    path = anchored.export(saved_run(tmp_path / "run", anomaly=limit), tmp_path / "model.pt2")
    torch.export.load(path, extra_files=extra)
    assert json.loads(extra["anchored.json"])["anomaly"] == dataclasses.asdict(limit)
