"""Whether a reordering could show: measured with a twin, estimated without one, and told apart from "no sum"."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from samebits import inputs
from samebits.inputs.derived import PER_KIND
from samebits.inputs.sensitivity import _rounds


def accumulated(x, w):
    """float32, one multiply and one add a column, so that the order is known."""
    total = torch.zeros(x.shape[0], w.shape[0])
    for k in range(x.shape[1]):
        total = total + x[:, k : k + 1].float() * w[:, k].float()
    return total


def chained(x, w):
    return accumulated(x, w).to(x.dtype)


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
    "fn", [torch.zeros_like, torch.ones_like, lambda x: torch.full_like(x, torch.nan), lambda x: torch.ones(4, 9)]
)
def test_a_kernel_that_ignores_its_rows_has_no_power(fn):
    s = inputs.sensitivity(fn, (torch.randn(4, 64, generator=torch.Generator().manual_seed(0)),))
    assert s.share == 0
    assert "no output element changes" in s.how


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


def integers(k, largest, dtype, rows=4, n=32):
    g = torch.Generator().manual_seed(0)
    return [torch.randint(-largest, largest + 1, (r, k), generator=g).to(dtype) for r in (rows, n)]


@pytest.mark.parametrize("cancel", [False, True], ids=["plain", "cancelling"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_exact_sums_show_no_order(dtype, cancel):
    """Small integers: their partial sums are exact whatever the order, and large beside a sum that cancels."""
    x, w = integers(512, 8, dtype)
    if cancel:
        x, w = torch.cat([x, -x], 1), torch.cat([w, w], 1)
    s = inputs.sensitivity(lambda x: (x.double() @ w.double().T).to(dtype), (x,))
    assert s.share == 0
    if cancel:
        assert "exact" in s.how


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_called_exact_changes_under_no_order(seed, dtype):
    """Around the edge of 24 bits, against sums that really are reordered."""
    g = torch.Generator().manual_seed(seed)
    k, largest = 256, 2 ** min(4 + seed, 7 if dtype is torch.bfloat16 else 16)
    x, w = (torch.randint(-largest, largest + 1, (r, k), generator=g).to(dtype) for r in (4, 16))
    w = w * 2.0 ** torch.randint(0, seed + 1, (k,), generator=g)
    w = w.to(dtype)

    def fn(x, order):
        total = torch.zeros(x.shape[0], 16)
        for i in order:
            total = (total.double() + x[:, i, None].double() * w[:, i].double()).float()
        return total

    rounds = _rounds(lambda x: fn(x, range(k)).to(dtype), x, torch.zeros(4, 16), 24)
    orders = [torch.randperm(k, generator=g).tolist() for _ in range(4)]
    flips = torch.stack([fn(x, o) != fn(x, range(k)) for o in orders]).any(0)
    assert not (flips & ~rounds).any()
    if seed == 0:
        assert not rounds.any()
    if seed == 11 and dtype is torch.float32:
        assert flips.double().mean() > 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_rows_of_a_bench_show_as_much_as_the_estimate_says(dtype):
    """Random weights of a library's GEMM: rows derived for it, against split-K of two that really is run."""
    g = torch.Generator().manual_seed(0)
    k, n = 1024, 256
    x = torch.randn(8, k, generator=g).to(dtype)
    w = (torch.randn(n, k, generator=g) / k**0.5).to(dtype)

    def split(x, parts):
        pieces = zip(x.chunk(parts, 1), w.chunk(parts, 1), strict=True)
        return sum(accumulated(a, b) for a, b in pieces).to(dtype)

    (made,) = inputs.derive((x,), fn=lambda x: split(x, 1))
    rows = made[2 * PER_KIND :]
    chosen = torch.arange(64) * n // 64
    flips = (split(rows, 1) != split(rows, 2)).double()
    assert flips[:, chosen].mean() > 0.7, "0.96 measured; the goal is 0.1"
    estimate = inputs.sensitivity(lambda x: split(x, 1), (rows,))
    assert estimate.share is not None, estimate.how
    assert abs(estimate.share - flips.mean()) < 0.25


def test_a_kernel_that_writes_to_its_rows_leaves_the_callers_alone():
    x = torch.ones(4, 64)
    inputs.sensitivity(lambda x: x.zero_().sum(1), (x,))
    assert x.all()
