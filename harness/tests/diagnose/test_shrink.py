"""The smallest failing launch of kernels whose smallest failing launch is known."""

from __future__ import annotations

import pytest
import torch

from samebits import checks
from samebits.diagnose.shrink import bisect, shrink
from samebits.engine.bench import Bench
from samebits.engine.subject import Subject


def bench(fn) -> Bench:
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    return Bench(Subject(fn, (x,), derive=False), max_batch=16)


def test_one_guilty_column_is_found() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        bias = torch.zeros_like(x)
        if x.shape[0] >= 5:
            bias[:, 37] = x[:, 37]
        return x + bias

    smallest = shrink(bench(kernel), 5, 2, 3)
    assert smallest is not None
    assert (smallest.batch, smallest.row, smallest.position) == (5, 2, 3)
    assert (smallest.columns, smallest.of, smallest.rows) == (1, 64, 1)
    assert "1 of 64 columns kept" in smallest.words()


def test_neighbours_that_matter_are_kept() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        return x / x.abs().amax()  # only another row's value changes this row

    b = bench(kernel)
    largest = int(b.pool[0].abs().amax(1).argmax())
    smallest = shrink(b, 6, (largest + 1) % 6, 2)
    assert smallest is not None
    assert smallest.rows > 1


def test_a_launch_that_does_not_fail_gives_nothing() -> None:
    assert shrink(bench(lambda x: x * 2), 5, 0, 1) is None


@pytest.mark.parametrize("edge", [2, 3, 25, 100])
def test_a_sample_of_batch_sizes_is_refined_to_the_edge(edge: int) -> None:
    tried: list[int] = []

    def fails(m: int) -> bool:
        tried.append(m)
        return m >= edge

    assert bisect(fails, 100) == edge
    assert len(tried) <= 7


def test_the_control_of_the_sweep_shrinks_to_its_edge_and_a_few_columns() -> None:
    """It splits K = 96 in four from M = 25 on; three addends are the fewest whose order shows."""
    b = Bench(checks.get("batch-size").control(), max_batch=40)
    index, rows = b.batch(40)
    alone, together = b.solo[0][index], b.run(rows)[0]
    position = int((alone != together).any(1).nonzero()[0])
    smallest = shrink(b, 40, int(index[position]), position)
    assert smallest is not None
    assert (smallest.batch, smallest.of, smallest.rows) == (25, 96, 1)
    assert 3 <= smallest.columns <= 4


def test_the_edge_below_a_failing_batch_is_found() -> None:
    b = bench(lambda x: x * (2 if x.shape[0] >= 7 else 1))
    smallest = shrink(b, 16, 1, 14)
    assert smallest is not None
    assert (smallest.batch, smallest.position) == (7, 6)
