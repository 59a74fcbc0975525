"""Exported files give what the run gives, in another runtime."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from saved_run import CLASSES, saved_run

import anchored
from anchored import Run
from anchored.cli import main
from anchored.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return saved_run(tmp_path_factory.mktemp("run"))


def pictures(n: int) -> torch.Tensor:
    return torch.randint(0, 256, (n, 16, 16, 3), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)


@pytest.mark.parametrize("reference", ["mean", "zero"])
def test_onnxruntime_gives_the_logits_of_one_random(run: Run, reference: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path = anchored.export(run, tmp_path / "model.onnx", reference=reference)
    session = onnxruntime.InferenceSession(path)
    net = run.net
    assert isinstance(net, anchored.Anchored)
    for n in (1, 5):  # any batch size
        x = run.preprocess(pictures(n))
        expected = anchored.one_random(net, run.references, reference=reference)(x).logits
        (logits,) = session.run(["logits"], {"x": x.numpy()})
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)
    properties = {p.key: json.loads(p.value) for p in onnx.load(path).metadata_props}
    assert properties["anchored.classes"] == list(CLASSES)
    assert properties["anchored.preprocess"] == {
        "size": 16,
        "resize_shorter_side_to": 20,
        "interpolation": "bilinear",
        "mean": [0.4, 0.5, 0.6],
        "std": [0.2, 0.25, 0.3],
    }
    assert properties["anchored.reference"] == reference and properties["anchored.versions"]["torch"]
    stem = {i.name: tuple(i.dims) for i in onnx.load(path).graph.initializer}
    assert (8, 3, 3, 3) in stem.values() and (8, 6, 3, 3) not in stem.values(), "no trace of the wide stem"


def test_onnxruntime_gives_mean_spread_and_energy_of_k_random(run: Run, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path = tmp_path / "several.onnx"
    main(["export", str(run.folder), str(path), "--protocol", "k_random", "--k", "7", "--seed", "2"])
    x = run.preprocess(pictures(3))
    expected = run.predictor("k_random", k=7, seed=2)(x)
    assert expected.std is not None and expected.std.max() > 1e-3, "the test needs references that matter"
    outputs = onnxruntime.InferenceSession(path).run(["logits", "std", "energy"], {"x": x.numpy()})
    for output, value in zip(outputs, (expected.logits, expected.std, expected.energy), strict=True):
        np.testing.assert_allclose(output, value.numpy(), atol=1e-4)
    assert path.stat().st_size < 200_000, "the weights are stored once, not once a reference"


@pytest.mark.parametrize("method", ["masking", "standard"])
def test_a_torch_program_gives_the_same(method: str, tmp_path: Path) -> None:
    run = saved_run(tmp_path / "run", method)
    path = anchored.export(run, tmp_path / "model.pt2")
    extra = {"anchored.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    x = run.preprocess(pictures(3))
    torch.testing.assert_close(program(x), run.predictor()(x).logits, rtol=0, atol=1e-5)
    about = json.loads(extra["anchored.json"])
    assert about["protocol"] == ("one_random" if method == "masking" else "direct")
    assert about["classes"] == list(CLASSES)


def test_a_standard_run_exported_with_references_is_told_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a standard run has no references: k_random has no effect"):
        anchored.export(saved_run(tmp_path / "run", "standard"), tmp_path / "a.onnx", protocol="k_random")


def test_bad_input_is_refused_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cases = [
        ("model.pt", {}, "unknown ending '.pt'. Did you mean '.pt2'"),
        ("model", {}, "Choices: .onnx, .pt2"),
        ("model.pt2", {"protocol": "k_random", "k": 13}, "set of 12; got k = 13"),
        ("model.pt2", {"protocol": "k_random", "k": 1}, "k >= 2"),
        ("model.pt2", {"protocol": "transduction"}, "Choices: one_random, k_random"),
        ("model.pt2", {"reference": "median"}, "Choices: mean, zero"),
        ("file/model.pt2", {}, "cannot write"),
    ]
    for name, options, message in cases:
        with pytest.raises(InputError, match=message.replace(".", r"\.").replace("(", r"\(")):
            anchored.export(run, tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_export_leaves_the_old_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"before")

    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("data-dependent control flow")

    monkeypatch.setattr(torch.export, "export", refuse)
    with pytest.raises(InputError, match=r"cannot trace this model.*data-dependent"):
        anchored.export(run, path)
    assert path.read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 1


def test_onnx_not_installed_names_the_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object) -> object:
        if name == "onnx":
            raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
        return real(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run.folder), str(tmp_path / "model.onnx")])
    assert ended.value.code == 2 and "pip install 'anchored[onnx]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compile_works_on_folded_and_anchored_models(run: Run, backend: str) -> None:
    net = run.net
    assert isinstance(net, anchored.Anchored)
    x, r = run.preprocess(pictures(4)), run.preprocess(pictures(9)[8:])
    with torch.no_grad():
        expected = net(x, r)
        folded = torch.compile(anchored.fold(net, r), backend=backend, fullgraph=True)
        torch.testing.assert_close(folded(x), expected, rtol=0, atol=1e-5)
        compiled = torch.compile(net, backend=backend)
        torch.testing.assert_close(compiled(x, r), expected, rtol=0, atol=1e-5)
        masked = net(x, r, masked=True)
        torch.testing.assert_close(compiled(x, r, masked=True), masked, rtol=0, atol=1e-5)
    gradients = []
    for forward in (net, compiled):
        net.zero_grad()
        forward(x, r).square().sum().backward()
        gradients.append(net.stem_layers()[0].layer.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)
