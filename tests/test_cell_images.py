"""Which corrupted sets the names of benchmarks stand for."""

from __future__ import annotations

from anchored.corruptions import suite
from anchored.evaluation.cell_images import corrupted_cells


def test_cells_of_benchmarks() -> None:
    found = list(corrupted_cells(("clean", "c-mce", "fog", "snow", "folder:shift"), (1, 5), 32))
    assert [cell.corruption for cell in found[::2]] == [*suite("c-mce"), "fog", "snow"]
    assert {cell.severity for cell in found} == {1, 5} and all(cell.kind == "shift" for cell in found)
    assert [cell.benchmark for cell in found[::2]] == ["c"] * 15 + ["corruptions"] * 2


def test_no_cell_comes_twice_with_both_lists_of_c() -> None:
    assert list(corrupted_cells(("c-mce", "c"), (3,), 32)) == list(corrupted_cells(("c",), (3,), 32))


def test_the_list_of_c_bar_goes_by_the_size_of_the_images() -> None:
    for side, table in ((32, "cifar"), (96, "cifar"), (97, "imagenet")):
        names = [cell.corruption for cell in corrupted_cells(("c-bar",), (1,), side)]
        assert names == list(suite("c-bar", table=table))
