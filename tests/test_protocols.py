"""Protocols and reference sets: identities, independence of batching, exactness of the search."""

from __future__ import annotations

import pytest
import torch
from test_core import halves_differ, padded, randomise, seeded
from torch import Tensor

from anchored import Anchored, Anchoring, ReferenceSet, anchor, direct, energy, fold, k_random, one_random, transduction
from anchored.method.protocols import nearest_reference
from anchored.system.errors import InputError


@pytest.fixture
def net() -> Anchored:
    return halves_differ(anchor(randomise(padded()), example=seeded(2, 3, 6, 6)))


@pytest.fixture
def references() -> ReferenceSet:
    return ReferenceSet.from_images(seeded(20, 3, 6, 6, seed=3))


def test_one_random_is_the_model_at_the_mean_reference(net: Anchored, references: ReferenceSet) -> None:
    x = seeded(5, 3, 6, 6)
    mean = references.take(torch.arange(20)).mean(0, keepdim=True)
    prediction = one_random(net, references)(x)
    torch.testing.assert_close(prediction.logits, net(x, mean), rtol=0, atol=1e-12)
    torch.testing.assert_close(prediction.energy, energy(prediction.logits), rtol=0, atol=1e-12)
    assert prediction.std is None
    zero = one_random(net, None, reference="zero")(x)
    torch.testing.assert_close(zero.logits, net(x, torch.zeros_like(x[:1])), rtol=0, atol=1e-12)
    torch.testing.assert_close(direct(fold(net, mean))(x).logits, prediction.logits, rtol=0, atol=1e-12)


def test_k_random_with_one_reference_equals_one_random_with_it(net: Anchored, references: ReferenceSet) -> None:
    x = seeded(5, 3, 6, 6)
    one = one_random(net, references, reference=references.sample(1, seed=4))(x)
    several = k_random(net, references, k=1, seed=4)(x)
    torch.testing.assert_close(several.logits, one.logits, rtol=0, atol=1e-12)
    torch.testing.assert_close(several.energy, one.energy, rtol=0, atol=1e-12)
    assert several.std is None


def test_k_random_averages_and_measures_the_spread(net: Anchored, references: ReferenceSet) -> None:
    x = seeded(5, 3, 6, 6)
    logits = torch.stack([net(x, r) for r in references.sample(6, seed=1).split(1)])
    by_logits = k_random(net, references, k=6, seed=1)(x)
    torch.testing.assert_close(by_logits.logits, logits.mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(by_logits.std, logits.softmax(-1).std(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(by_logits.energy, energy(logits).mean(0), rtol=0, atol=1e-12)
    by_probs = k_random(net, references, k=6, seed=1, average="probs")(x)
    torch.testing.assert_close(by_probs.probs, logits.softmax(-1).mean(0), rtol=0, atol=1e-12)
    tempered = k_random(net, references, k=6, seed=1, tempering="amp")
    divisor = 1 + logits.sigmoid().std(0).mean(-1, keepdim=True).exp()
    torch.testing.assert_close(tempered(x).logits, logits.mean(0) / divisor, rtol=0, atol=1e-12)
    assert tempered.tempering == "amp" and k_random(net, references, k=6).tempering is None


@pytest.mark.parametrize("make", [one_random, k_random, transduction], ids=lambda make: make.__name__)
def test_results_do_not_depend_on_the_batch_size(net: Anchored, references: ReferenceSet, make) -> None:
    predict = make(net, references, **({"candidates": 7, "bank": 30} if make is transduction else {}))
    x = seeded(9, 3, 6, 6)
    whole = predict(x).logits
    parts = torch.cat([predict(part).logits for part in x.split(4)])
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)


def naive_search(x: Tensor, r: Tensor, residuals: Tensor) -> Tensor:
    distance = (x[:, None, None] - r[None, :, None] - residuals[None, None]).square().sum(-1)
    return distance.amin(2).argmin(1)


def test_transduction_finds_what_the_naive_search_finds() -> None:
    x, r, residuals = seeded(40, 12), seeded(6, 12, seed=1), seeded(30, 12, seed=2)
    expected = naive_search(x, r, residuals)
    assert len(expected.unique()) > 3, "the test needs different choices"
    for memory in (1, 3000, 2**26):
        assert torch.equal(nearest_reference(x, r, residuals, memory), expected)


def test_transduction_predicts_with_the_chosen_reference(net: Anchored, references: ReferenceSet) -> None:
    x, residuals = seeded(8, 3, 6, 6), seeded(25, 3, 6, 6, seed=8)
    r = references.sample(7, seed=2)
    choice = naive_search(x.flatten(1), r.flatten(1), residuals.flatten(1))
    prediction = transduction(net, references, candidates=7, seed=2, residuals=residuals)(x)
    torch.testing.assert_close(prediction.logits, net(x, r[choice]), rtol=0, atol=1e-12)


def test_predicting_leaves_the_mode_and_batch_norm_alone(net: Anchored, references: ReferenceSet) -> None:
    net.train()
    before = net.net[1].running_mean.clone()
    assert not one_random(net, references)(seeded(4, 3, 6, 6)).logits.requires_grad
    assert net.training and torch.equal(net.net[1].running_mean, before)


class Labelled:
    def __init__(self, labels: list[int]) -> None:
        self.targets = labels

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3, 2, 2), float(index)), self.targets[index]


def test_reference_sets_are_nested_stratified_and_seeded() -> None:
    data = Labelled([0] * 30 + [1] * 10 + [2] * 5)
    small, large = (ReferenceSet.from_dataset(data, size, seed=1) for size in (6, 20))
    assert torch.equal(large.indices[:6], small.indices)
    labels = torch.tensor(data.targets)[large.indices]
    assert labels[:15].bincount().tolist() == [5, 5, 5], "classes take turns until one is used up"
    assert not torch.equal(ReferenceSet.from_dataset(data, 6, seed=2).indices, small.indices)
    assert torch.equal(small.take(torch.tensor([3]))[0, 0, 0, 0].long(), small.indices[3])
    everything = ReferenceSet.from_dataset(data, seed=1)
    assert len(everything) == 45 and everything.mean[0, 0, 0, 0] == 22.0
    assert sorted(everything.sample(45, seed=0)[:, 0, 0, 0].int().tolist()) == list(range(45))


def test_masking_is_a_function_of_seed_and_step() -> None:
    plan = Anchoring(alpha=0.25, seed=3, source="batch")
    decisions = [plan.masked(step) for step in range(4000)]
    assert decisions == [Anchoring(alpha=0.25, seed=3, source="batch").masked(step) for step in range(4000)]
    assert abs(sum(decisions) / 4000 - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    periodic = Anchoring(alpha=0.2, seed=3, source="batch", schedule="periodic")
    assert [step for step in range(20) if periodic.masked(step)] == [4, 9, 14, 19]
    assert not any(Anchoring(alpha=0.0, seed=0, source="batch").masked(step) for step in range(99))
    assert all(Anchoring(alpha=1.0, seed=0, source="batch").masked(step) for step in range(99))


def test_references_of_ranks_are_slices_of_the_global_draw(references: ReferenceSet) -> None:
    plan = Anchoring(alpha=0.2, seed=1, references=references)
    x = seeded(8, 3, 6, 6)
    halves = [plan.draw(x[:4], 7, rank=rank, world=2) for rank in (0, 1)]
    assert torch.equal(torch.cat(halves), plan.draw(x, 7))
    assert not torch.equal(plan.draw(x, 8), plan.draw(x, 7))


def test_references_from_the_batch_have_no_fixed_points() -> None:
    plan = Anchoring(alpha=0.2, seed=1, source="batch")
    x = torch.arange(6.0).reshape(6, 1, 1, 1)
    for step in range(200):
        drawn = plan.draw(x, step)
        assert sorted(drawn.flatten().tolist()) == x.flatten().tolist()
        assert not (drawn == x).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net, r: k_random(net, r, k=21), "set of 20; got k = 21"),
        (lambda net, r: one_random(net, None), "needs a reference set"),
        (lambda net, r: one_random(net, r, reference="median"), "'mean', 'zero' or a tensor"),
        (lambda net, r: k_random(net, r, average="votes"), "'logits' or 'probs'"),
        (lambda net, r: k_random(net, r, tempering="yes"), "None or 'amp'"),
        (lambda net, r: Anchoring(alpha=1.5, seed=0, references=r), r"\[0, 1\]; got 1.5"),
        (lambda net, r: Anchoring(alpha=0.5, seed=0), "needs a ReferenceSet"),
        (lambda net, r: Anchoring(alpha=0.5, seed=0, source="batch").draw(seeded(1, 3, 6, 6), 0), "at least 2 images"),
        (lambda net, r: ReferenceSet.from_dataset(Labelled([0, 1]), 3, seed=0), r"1\.\.2.*got 3"),
    ],
)
def test_bad_values_are_refused(net: Anchored, references: ReferenceSet, call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(net, references)
