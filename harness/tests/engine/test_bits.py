"""Bits, never values: what `torch.equal` gets wrong in both directions (public fault P14)."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samebits.engine import bits

DTYPES = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.uint8,
]


def nan32(payload: int) -> torch.Tensor:
    return torch.tensor([0x7FC00000 | payload], dtype=torch.int32).view(torch.float32)


def test_zero_signs_differ_though_torch_says_equal() -> None:
    a, b = torch.tensor([0.0]), torch.tensor([-0.0])
    assert torch.equal(a, b)
    assert not bits.same(a, b)
    assert bits.kind_of(a, b) == "signed zero"


def test_equal_nans_are_the_same_though_torch_says_they_differ() -> None:
    a = torch.tensor([float("nan")])
    assert not torch.equal(a, a.clone())
    assert bits.same(a, a.clone())


def test_nan_payloads_differ() -> None:
    assert not bits.same(nan32(1), nan32(2))
    assert bits.kind_of(nan32(1), nan32(2)) == "nan payload"


def test_a_value_that_becomes_nan_is_of_kind_finite() -> None:
    assert bits.kind_of(torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])) == "finite"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_flipped_bit_is_seen_in_every_dtype(dtype: torch.dtype) -> None:
    raw = torch.randint(0, 60, (4, 16 * dtype.itemsize), dtype=torch.uint8)
    a = raw.clone().view(dtype)
    raw[2, 5] ^= 1
    b = raw.view(dtype)
    assert bits.differing_rows(a, b).tolist() == [0, 0, 1, 0]
    assert bits.digest_rows(a)[[0, 1, 3]].tolist() == bits.digest_rows(b)[[0, 1, 3]].tolist()
    assert bits.digest_rows(a)[2] != bits.digest_rows(b)[2]
    first, greatest = bits.first_and_greatest(a[2], b[2])
    assert first == greatest
    assert first.expected != first.found
    assert len(first.expected) == 2 + 2 * dtype.itemsize


def test_complex_compares_both_parts() -> None:
    a = torch.ones(2, 3, dtype=torch.complex64)
    b = a.clone()
    b[1, 2] = 1 + 1e-7j
    assert bits.differing_rows(a, b).tolist() == [0, 1]
    assert bits.first_and_greatest(a[1], b[1])[0].index == (2,)


def test_shape_and_dtype_differ() -> None:
    assert not bits.same(torch.ones(2), torch.ones(3))
    assert not bits.same(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert bits.kind_of(torch.ones(2), torch.ones(3)) == "shape"


def test_strided_tensors_compare_by_value_order() -> None:
    a = torch.randn(6, 8)
    assert bits.same(a.t().contiguous().t(), a)


@given(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100), st.integers(1, 5))
def test_ulp_counts_the_floats_between(value: float, steps: int) -> None:
    start = other = np.float32(value)
    for _ in range(steps):
        other = np.nextafter(other, np.float32(np.inf))
    a, b = (struct.unpack("<I", struct.pack("<f", v))[0] for v in (start, other))
    assert bits.ordered(b, 32) - bits.ordered(a, 32) == steps


def test_tally_counts_per_launch() -> None:
    tally = bits.Tally(3, torch.device("cpu"))
    a = torch.zeros(4, 5)
    b = a.clone()
    b[1, 2] = b[3, 0] = -0.0
    tally.add(0, a, a)
    tally.add(1, b, a)
    tally.add(1, b, a)
    assert tally.read() == [0, 4, 0]


def test_a_row_of_one_number_is_fine() -> None:
    assert bits.differing_rows(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])).tolist() == [0, 1]
    assert bits.first_and_greatest(torch.tensor(2.0), torch.tensor(3.0))[0].ulp == 1 << 22
