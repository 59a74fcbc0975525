"""Which outputs stand for the classes of a test set, and restricting a model to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from anchored.data.class_maps import (
    imagenet_classes,
    matching_outputs,
    read_class_mapping,
    restricted,
    scored_classes,
)
from anchored.method.protocols import Prediction, direct
from anchored.system.errors import InputError

MODEL = ("Fire truck", "n02102040", "n01440764 tench, Tinca tinca", "crane", "crane", "sea_lion")


def test_names_wordnet_ids_and_synonyms_find_their_class() -> None:
    names = ("fire-truck", "n02102040 English springer", "n01440764", "Tinca Tinca", "sea lion", "crane", "nothing")
    assert matching_outputs(names, MODEL) == ((0,), (1,), (2,), (2,), (5,), (), ())
    assert matching_outputs(("english springer",), MODEL) == (
        (1,),
    )  # a model of bare ids is known by WordNet's names too
    classes = imagenet_classes()
    assert len(classes) == 1000 and matching_outputs(("n02129604", "tiger shark"), classes) == ((292,), (3,))


def test_numbers_are_positions_only_where_they_have_to_be() -> None:
    assert matching_outputs(("10", "2", "0"), tuple("abcdefghijk"), numbered=True) == ((10,), (2,), (0,))
    assert matching_outputs(("0", "1", "2"), ("b", "a", "c")) == ((0,), (1,), (2,))
    assert matching_outputs(("0", "1"), ("b", "a", "c")) == ((), ())
    assert matching_outputs(("1", "0"), ("0", "1")) == ((1,), (0,))


def test_a_file_says_which_are_which(tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text("truck,Fire truck\ntruck,5\nfish,n01440764\ncat,\n")
    (tmp_path / "map.json").write_text(json.dumps({"truck": ["Fire truck", 5], "fish": "n01440764", "cat": None}))
    for name in ("map.csv", "map.json"):
        given = read_class_mapping(tmp_path / name)
        assert matching_outputs(("truck", "fish", "cat"), MODEL, given=given) == ((0, 5), (2,), ())
    with pytest.raises(InputError, match=r"unknown class .of 'truck' in the mapping file. 'ship'"):
        matching_outputs(("truck",), MODEL, given={"truck": ["ship"]})
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(InputError, match="--classes"):
        read_class_mapping(tmp_path / "bad.json")


def test_the_scored_classes_are_what_all_models_share() -> None:
    found = scored_classes("set", ("a", "b", "c", "d"), {"one": ("d", "c", "b", "a"), "two": ("x", "a", "b", "d")})
    assert found.names == ("a", "b", "d") and found.outputs == {"one": ((3,), (2,), (0,)), "two": ((1,), (2,), (3,))}
    assert found.note is not None and "1 of 4: c" in found.note
    assert found.relabelled(torch.tensor([3, 2, 0, 1]), 4).tolist() == [2, -1, 0, 1]
    with pytest.raises(InputError, match="at least 2 of its classes"):
        scored_classes("set", ("a", "z"), {"one": ("a", "b")})


def test_restricted_logits_are_those_of_the_classes() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    x = torch.randn(5, 3, 2, 2)
    whole = direct(net)
    assert restricted(whole, tuple((i,) for i in range(6)), 6) is whole
    logits = whole(x).logits
    some = restricted(whole, ((4,), (1,)), 6)(x)
    torch.testing.assert_close(some.logits, logits[:, [4, 1]], rtol=0, atol=0)
    torch.testing.assert_close(some.energy, whole(x).energy, rtol=0, atol=0)
    merged = restricted(whole, ((0, 2, 5), (1,)), 6)(x).probs
    probs = logits.softmax(1)
    expected = torch.stack([probs[:, [0, 2, 5]].sum(1), probs[:, 1]], 1)
    torch.testing.assert_close(merged, expected / expected.sum(1, keepdim=True))


def test_the_spread_is_restricted_too() -> None:
    import dataclasses

    std = torch.rand(4, 3)
    predict = dataclasses.replace(
        direct(nn.Identity()), predict=lambda x: Prediction(x, -x.logsumexp(1), std, torch.zeros(4))
    )
    assert torch.equal(restricted(predict, ((2,), (0,)), 3)(torch.randn(4, 3)).std, std[:, [2, 0]])  # type: ignore[arg-type]
