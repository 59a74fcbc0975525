"""The parts all data sources share: names, options, splits, statistics, digits and photographs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from images import class_folders
from sklearn.datasets import load_digits

from anchored import data as sources
from anchored.data.base import Data, ImageSet, Options, title
from anchored.data.checks import check_parts, integer_labels, same_classes
from anchored.data.decode import check_memory, machine_memory
from anchored.system.errors import InputError


def image_set(labels: list[int]) -> ImageSet:
    return ImageSet(torch.zeros(len(labels), 2, 2, 3, dtype=torch.uint8), torch.tensor(labels))


@pytest.fixture(scope="module")
def digits() -> Data:
    return sources.load("digits")


def test_every_source_is_found_by_its_module_name():
    assert sources.sources() == (
        "cifar10",
        "cifar100",
        "csv:FILE",
        "digits",
        "folder:PATH",
        "hf:ID_OR_PATH",
        "npz:PATH",
        "parquet:PATH",
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("digit", r"unknown data 'digit'\. Did you mean 'digits'\? Choices: .*folder:PATH"),
        ("splits", "unknown data 'splits'"),  # a module of the package, but no source
        ("", "unknown data ''"),
        ("../x", "unknown data"),
        ("folder", "the data source folder is written folder:PATH; got 'folder'"),
        ("digits:/x", "the data source digits is written digits; got 'digits:/x'"),
    ],
)
def test_unknown_sources_are_refused_with_the_choices(spec, message):
    with pytest.raises(InputError, match=message):
        sources.load(spec)


def test_a_bare_path_is_answered_with_the_spec_it_could_mean(tmp_path):
    with pytest.raises(InputError, match=f"Did you mean folder:{tmp_path}"):
        sources.load(str(tmp_path))
    (tmp_path / "train.csv").write_text("path,label\n")
    for path in (tmp_path, tmp_path / "train.csv"):
        with pytest.raises(InputError, match=f"Did you mean csv:{path}"):
            sources.load(str(path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 0}, "at least 1 pixel; got 0"),
        ({"crop": 0.0}, r"in \(0, 1\]; got 0.0"),
        ({"crop": 1.5}, "got 1.5"),
        ({"interpolation": "bicubix"}, "Did you mean 'bicubic'"),
    ],
)
def test_options_are_checked(values, message):
    with pytest.raises(InputError, match=message):
        sources.load("digits", **values)


def test_digits_are_all_there_once_and_split_by_class(digits):
    original = load_digits()
    assert len(digits.train) + len(digits.test) == len(original.target) == 1797
    assert digits.classes == tuple("0123456789") and not digits.flip
    for label, count in enumerate(np.bincount(original.target)):
        tested = int((digits.test.labels == label).sum())
        assert tested + int((digits.train.labels == label).sum()) == count
        assert abs(tested - 0.25 * count) <= 0.5
    assert digits.train.images.shape[1:] == (32, 32, 3)
    assert int(digits.train.images.min()) == 0 and int(digits.train.images.max()) == 255
    # Enlarging by 4 and shrinking again by the mean of 4x4 blocks gives nearly the original back.
    everything = torch.cat([digits.train.images, digits.test.images])[..., 0].double()
    small = everything.reshape(-1, 8, 4, 8, 4).mean((2, 4)) * (16 / 255)
    source = torch.from_numpy(original.images)
    order = [int((small - image).abs().mean((1, 2)).argmin()) for image in source[:40]]
    assert len(set(order)) == 40
    labels = torch.cat([digits.train.labels, digits.test.labels])
    assert labels[order].tolist() == original.target[:40].tolist()


def test_digits_do_not_depend_on_the_seed_of_the_run(digits):
    again = sources.load("digits", seed=7)
    assert torch.equal(digits.train.images, again.train.images) and torch.equal(digits.test.labels, again.test.labels)
    assert sources.load("digits", size=16).train.images.shape[1:] == (16, 16, 3)


def test_photos_look_like_the_digits_they_are_compared_with(digits):
    name, photos = sources.load_anomalies("photos", like=digits, size=32)
    assert name == "photos" and photos.images.shape == (500, 32, 32, 3) and set(photos.labels.tolist()) == {-1}
    assert torch.equal(photos.images[..., 0], photos.images[..., 2])  # grey
    # Bilinear enlargement by 4 is piecewise linear: between pixel centres the second differences vanish.
    for images in (photos.images, digits.test.images):
        row = images[:, 14:18, :, 0].double()  # 14..17 lie between the centres at 13.5 and 17.5
        assert float((row[:, 2:] - 2 * row[:, 1:-1] + row[:, :-2]).abs().max()) <= 2  # rounding
    assert torch.equal(photos.images, sources.load_anomalies("photos", like=digits, size=32)[1].images)
    assert len(photos.images.unique(dim=0)) > 490
    assert int((photos.images.amax((1, 2, 3)).int() - photos.images.amin((1, 2, 3)).int()).min()) >= 48


def test_photos_for_colour_images_are_crops_in_colour(tmp_path):
    like = sources.load(f"folder:{class_folders(tmp_path / 'x', {'a': 5, 'b': 5})}")
    _, photos = sources.load_anomalies("photos", like=like, size=24)
    assert photos.images.shape == (500, 24, 24, 3) and not torch.equal(photos.images[..., 0], photos.images[..., 2])
    assert sources.load_anomalies("photos", like=like, size=450)[1].images.shape == (500, 450, 450, 3)  # enlarged


def test_any_source_serves_as_anomalies_with_its_test_part(digits, tmp_path):
    name, images = sources.load_anomalies("digits", like=digits, size=32)
    assert name == "digits" and torch.equal(images.images, digits.test.images)
    assert images.labels.unique().tolist() == [-1]


def test_split_is_a_stratified_partition_that_the_seed_decides():
    images = image_set([0] * 50 + [1] * 10 + [2] * 3)
    rest, part, rest_indices, part_indices = sources.split(images, 0.2, seed=1)
    assert sorted(torch.cat([rest_indices, part_indices]).tolist()) == list(range(63))
    assert torch.bincount(part.labels).tolist() == [10, 2, 1]
    assert torch.equal(images.labels[rest_indices], rest.labels) and rest_indices.tolist() == sorted(rest_indices)
    assert torch.equal(part_indices, sources.split(images, 0.2, seed=1).part_indices)
    assert not torch.equal(part_indices, sources.split(images, 0.2, seed=2).part_indices)


def test_a_split_leaves_every_class_on_both_sides():
    for fraction in (0.01, 0.99):
        result = sources.split(image_set([0, 0, 1, 1, 1]), fraction, seed=0)
        assert result.rest.labels.unique().tolist() == result.part.labels.unique().tolist() == [0, 1]
    with pytest.raises(InputError, match="class 1 has 1"):
        sources.split(image_set([0, 0, 1]), 0.5, seed=0)
    with pytest.raises(InputError, match=r"in \(0, 1\); got 1"):
        sources.split(image_set([0, 0]), 1, seed=0)


def test_limit_keeps_the_proportions_and_takes_exactly_n():
    images = image_set([0] * 60 + [1] * 30 + [2] * 10)
    chosen = sources.limit(images, 20, seed=3)
    assert torch.bincount(images.labels[chosen]).tolist() == [12, 6, 2]
    assert chosen.tolist() == sorted(set(chosen.tolist())) and torch.equal(chosen, sources.limit(images, 20, seed=3))
    assert not torch.equal(chosen, sources.limit(images, 20, seed=4))
    for n in range(1, 101):
        assert len(sources.limit(images, n, seed=0).unique()) == n
    assert sources.limit(images, 1000, seed=0).tolist() == list(range(100))
    with pytest.raises(InputError, match="at least 1 image; got 0"):
        sources.limit(images, 0, seed=0)


def test_limit_below_the_number_of_classes_prefers_none():
    images = image_set(list(range(10)) * 3)
    first = {int(images.labels[sources.limit(images, 1, seed=seed)]) for seed in range(40)}
    assert len(first) > 5


def test_channel_statistics_are_those_of_all_pixels():
    pixels = torch.randint(0, 256, (300, 7, 5, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels[..., 2] = 51
    mean, std = sources.channel_statistics(ImageSet(pixels, torch.zeros(300, dtype=torch.int64)))
    flat = (pixels.double() / 255).reshape(-1, 3)
    assert mean == pytest.approx(flat.mean(0).tolist(), abs=1e-12)
    assert std[:2] == pytest.approx(flat.std(0, correction=0).tolist()[:2], abs=1e-12)
    assert mean[2] == pytest.approx(0.2) and std[2] == 1.0  # constant: nothing to divide by


def test_memory_is_refused_with_the_numbers():
    options = Options(memory_limit=1000)
    check_memory(1000, options, "x")
    with pytest.raises(InputError, match=r"12,000 images take 2\.0 GB, more than 1 KB \(the limit given\)"):
        check_memory(2_000_000_000, options, "12,000 images")
    with pytest.raises(InputError, match="half of this machine's memory"):
        check_memory(machine_memory(), Options(), "x")
    assert 2**27 < machine_memory() < 2**50


def test_labels_are_checked():
    ok, also = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1])
    assert check_parts("x", ok, also, None) == (("0", "1", "2"), ("no test images of class 2",))
    assert check_parts("x", ok, ok, ["a", "b", "c", "d"])[1] == (
        "no training images of class d",
        "no test images of class d",
    )
    for train, test, classes, message in [
        (ok, torch.tensor([0, 5]), ["a", "b", "c"], "labels are 0 to 2, as there are 3 classes; test has 5"),
        (torch.tensor([0, -1]), ok, None, "labels are 0 or more; train has -1"),
        (torch.tensor([0, 2]), also, None, "up to 2 but no 1"),
        (torch.tensor([0, 2**62]), also, None, f"up to {2**62} but no 1"),
        (ok, torch.tensor([2**62]), None, f"there are none of class {2**62}"),
        (torch.tensor([0, 2]), also, ["a", "b", "c"], "there are none of class b"),
        (ok, torch.tensor([3]), None, "there are none of class 3"),
        (torch.tensor([1, 1]), torch.tensor([1]), ["a", "b"], "at least 2 classes; all images are 'b'"),
        (ok, ok[:0], None, "test has no images"),
    ]:
        with pytest.raises(InputError, match=message):
            check_parts("x", train, test, classes)
    assert integer_labels(np.array([[3], [1]], np.uint8), 2, "x").tolist() == [3, 1]
    for labels, message in [
        (np.array([0.0, np.nan]), "got float64 with NaN"),
        (np.array([0.5, 1]), "got float64 like 0.5"),
        (np.zeros((2, 10), int), r"\[N\] or \[N, 1\]; got \[2, 10\]"),
        (np.array([1, 2, 3]), "got 3 labels for 2 images"),
        (np.array(["a", "b"]), "got <U1 like a"),
    ]:
        with pytest.raises(InputError, match=message):
            integer_labels(labels, 2, "x")
    assert same_classes("x", None, ["a"]) == ("a",)
    with pytest.raises(InputError, match="class 1 is 'b' and 'c'"):
        same_classes("x", ["a", "b"], ["a", "c"])
    with pytest.raises(InputError, match="1 and 2 of them"):
        same_classes("x", ["a"], ["a", "b"])


def test_titles_name_the_data_and_no_machine_path(tmp_path):
    (tmp_path / "my.flowers" / "test").mkdir(parents=True)
    assert title(str(tmp_path / "my.flowers") + "/") == "my.flowers"
    assert title(str(tmp_path / "my.flowers" / "test")) == "my.flowers"
    assert title("/data/pets/train.parquet") == "pets" and title("/data/pets/photo.parquet") == "photo"
