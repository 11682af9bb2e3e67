"""The bench: what it refuses, what it measures, and that its slices are what a fresh batch would be."""

from __future__ import annotations

import pytest
import torch

from samebits.engine.bench import Bench
from samebits.engine.bits import same
from samebits.engine.subject import Subject
from samebits.errors import UsageError


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def bench(fn: object = double, *rows: torch.Tensor, max_batch: int | None = 32) -> Bench:
    return Bench(Subject(fn, rows or (torch.randn(5, 7),), derive=False), max_batch=max_batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("m", [1, 2, 5, 6, 31, 32])
def test_sweep_slices_equal_a_fresh_batch(m: int) -> None:
    b = bench()
    shift, rows, expected = b.sweep(m)
    index = (torch.arange(m) + shift) % b.probes
    assert same(rows[0], b.pool[0][index])
    assert same(expected[0], b.pool[0][index] * 2)
    assert rows[0].data_ptr() % 256 == b.sweep(1)[1][0].data_ptr() % 256, "alignment must not vary with M"


def test_every_probe_visits_position_zero() -> None:
    b = bench()
    assert {b.sweep(m)[0] % b.probes for m in range(1, 33)} == set(range(b.probes))


def test_a_launch_is_counted() -> None:
    b = bench()
    b.run(b.rows_at([0, 1]))
    assert b.launches == 1
    _ = b.solo
    assert b.launches == 1 + b.probes


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((), "no row inputs"),
        ((torch.randn(3, 2), torch.randn(4, 2)), "same number of rows"),
        ((torch.tensor(1.0),), "has no rows"),
        ((torch.randn(0, 4),), "has no rows"),
        (("x",), "must be a tensor"),
    ],
)
def test_bad_rows_are_refused_with_what_to_do(rows: tuple[object, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Bench(Subject(double, rows))  # type: ignore[arg-type]


def test_an_output_without_a_row_per_row_is_refused() -> None:
    b = bench(lambda x: x.sum())
    with pytest.raises(UsageError, match="one row per input row"):
        _ = b.full
    with pytest.raises(UsageError, match="for a batch of 5"):
        _ = bench(lambda x: x[:2]).full


def test_a_bound_that_does_not_fit_is_refused_with_the_one_that_does() -> None:
    with pytest.raises(UsageError, match=r"allowed: max_batch <= 1024"):
        bench(double, torch.zeros(1, 1 << 18), max_batch=5000)


def test_a_tuple_of_outputs_and_a_tuple_of_rows() -> None:
    b = bench(lambda x, i: (x * 2, i + 1), torch.randn(4, 3), torch.arange(4))
    assert [tuple(y.shape) for y in b.full] == [(4, 3), (4,)]
    assert b.elements == 4


def test_distinct_counts_probes_by_their_bits() -> None:
    x = torch.randn(4, 3)
    x[3] = x[0]
    assert bench(double, x).distinct == 3
