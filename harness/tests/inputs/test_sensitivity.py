"""Whether a reordering could show: measured with a twin, estimated without one, and told apart from "no sum"."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from samebits import inputs


def chained(x, w):
    """One multiply and one add a column, so that the order is known."""
    total = torch.zeros(x.shape[0], w.shape[0])
    for k in range(x.shape[1]):
        total = total + x[:, k : k + 1].float() * w[:, k].float()
    return total.to(x.dtype)


def pair(kind, k=256, dtype="bfloat16"):
    o = inputs.gemm(4, 32, k, dtype=dtype, kind=kind)
    x, w = o.reordered()
    return (lambda x: chained(x, o.w)), (o.x,), ((lambda x: chained(x, w)), (x,))


def test_a_twin_measures():
    fn, rows, twin = pair("stratified")
    s = inputs.sensitivity(fn, rows, reordered=twin, addends=256)
    assert s.share > 0.9
    assert (s.elements, s.addends) == (128, 256)
    assert "of 128 output elements change" in s.how


def test_a_twin_that_cannot_differ_measures_zero():
    rows = (torch.arange(64.0).reshape(4, 16),)
    fn = lambda x: x @ torch.ones(16, 8)  # noqa: E731
    s = inputs.sensitivity(fn, rows, reordered=(fn, (rows[0].flip(1),)))
    assert s.share == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_estimate_knows_stratified_from_ordinary(dtype):
    fn, rows, _ = pair("stratified", dtype=dtype)
    ours = inputs.sensitivity(fn, rows)
    fn, rows, _ = pair("ordinary", dtype=dtype)
    plain = inputs.sensitivity(fn, rows)
    assert ours.share > 0.9
    assert ours.how.startswith("estimated")
    assert plain.share < 0.1 or dtype == "float32", "a float32 output shows the rounding of any sum"


def test_the_estimate_is_close_to_what_a_twin_measures():
    fn, rows, twin = pair("mixed")
    estimate, measured = inputs.sensitivity(fn, rows), inputs.sensitivity(fn, rows, reordered=twin)
    assert abs(estimate.share - measured.share) < 0.15


@pytest.mark.parametrize("fn", [F.silu, lambda x: x * 2, lambda x: x], ids=["silu", "scale", "copy"])
def test_no_sum_is_not_no_power(fn):
    s = inputs.sensitivity(fn, (torch.randn(4, 64, generator=torch.Generator().manual_seed(0)),))
    assert s.share is None
    assert s.addends is None
    assert "no sum" in s.how


@pytest.mark.parametrize(
    ("fn", "rows", "why"),
    [
        (lambda x: torch.softmax(x, 1), (torch.ones(4, 64),), "not linear"),
        (lambda x, y: x + y, (torch.ones(4, 64), torch.ones(4, 64)), "several or integer row inputs"),
        (lambda x: x + 1, (torch.ones(4, 64, dtype=torch.int64),), "several or integer row inputs"),
        (lambda x: (x, x), (torch.ones(4, 64),), "several or integer outputs"),
        (lambda x: x.argmax(1), (torch.ones(4, 64),), "several or integer outputs"),
    ],
)
def test_what_cannot_be_measured_says_why(fn, rows, why):
    s = inputs.sensitivity(fn, rows)
    assert s.share is None
    assert why in s.how


def test_kernels_that_refuse_zeros():
    def fn(x):
        assert (x != 0).all()
        return x @ torch.ones(64, 4)

    s = inputs.sensitivity(fn, (torch.ones(4, 64),))
    assert s.share is None
    assert "AssertionError" in s.how


def test_non_finite_rows_do_not_spoil_the_others():
    fn, (x,), _ = pair("stratified", dtype="float32")
    x = x.clone()
    x[0, 3] = torch.nan
    s = inputs.sensitivity(fn, (x,))
    assert 0.6 < s.share <= 0.75


def test_short_sums_know_their_addends():
    s = inputs.sensitivity(lambda x: x.sum(1, keepdim=True), (torch.tensor([[1.0, 2.0], [3.0, 0.0]]),))
    assert s.addends == 2
