"""Rows for somebody else's weights: power where the kernel is linear, and no row that it could not be given."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from samebits import inputs
from samebits.inputs.adders import FMA, HOPPER
from samebits.inputs.derived import PER_KIND
from samebits.inputs.orders import flip_rates

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def operands(k=1024, n=128, dtype=torch.bfloat16, rows=8):
    g = torch.Generator().manual_seed(0)
    return torch.randn(rows, k, generator=g).to(dtype), (torch.randn(n, k, generator=g) / k**0.5).to(dtype)


def null_rows(made):
    return made[2 * PER_KIND :]


@pytest.mark.parametrize("adder", [FMA, HOPPER], ids=lambda a: a.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_null_space_rows_show_orders_that_the_given_rows_hide(dtype, adder):
    """Half of the outputs are chosen to cancel (64 of 128), so 0.5 is all there is; 0.46 measured."""
    x, w = operands(dtype=dtype)
    (made,) = inputs.derive((x,), fn=lambda x: F.linear(x, w))
    exact = dtype is not torch.float32
    ours = flip_rates(null_rows(made)[:2], w, adder, exact_products=exact)
    given = flip_rates(x[:2], w, adder, exact_products=exact)
    assert min(ours.values()) > 0.3, ours
    assert max(given.values()) < 0.05, given


@pytest.mark.parametrize("k", [64, 100, 3000])
def test_null_space_rows_of_any_length_are_small_sums_of_ordinary_addends(k):
    x, w = operands(k=k, n=32)
    (made,) = inputs.derive((x,), fn=lambda x: F.linear(x, w))
    rows = null_rows(made).double()
    assert rows.shape == (PER_KIND, k)
    addends = rows[:, None].abs() * w.double()[None].abs()
    share = (rows @ w.double().T).abs() / addends.sum(-1)
    assert (share.sort(1).values[:, : min(32, k // 8) // 2] < 2.0**-16).all()


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("element-wise", F.silu),
        ("softmax", lambda x: torch.softmax(x, 1)),
        ("affine", lambda x: x @ torch.ones(64, 8, dtype=x.dtype) + 1),
        ("refuses", lambda x: 1 / 0),
        ("several outputs", lambda x: (x.sum(1), x)),
        ("one output a row", lambda x: x.sum(1)),
    ],
)
def test_what_is_not_linear_gets_no_null_space_rows(name, fn):
    (made,) = inputs.derive((torch.randn(4, 64, generator=torch.Generator().manual_seed(0)),), fn=fn)
    assert made.shape == (2 * PER_KIND, 64)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_rows_keep_shape_and_dtype_and_stay_finite(dtype):
    x = torch.full((3, 5, 32), torch.finfo(dtype).max, dtype=dtype)
    (made,) = inputs.derive((x,), seed=1)
    assert made.shape[1:] == x.shape[1:]
    assert made.dtype == dtype
    assert torch.isfinite(made).all()


def test_indices_and_other_inputs_come_from_the_given_rows():
    g = torch.Generator().manual_seed(0)
    x, logits = torch.randn(5, 64, generator=g), torch.randn(5, 8, generator=g)
    experts = torch.tensor([[3, 1], [0, 2], [7, 7], [5, 4], [6, 0]])
    for rows in ((x, logits, experts), (experts, x, logits)):
        made = inputs.derive(rows)
        assert len({t.shape[0] for t in made}) == 1
        for given, more in zip(rows, made, strict=True):
            if given is not x:
                assert all(any(torch.equal(m, r) for r in given) for m in more)


@pytest.mark.parametrize(
    "rows",
    [
        (torch.arange(12).reshape(4, 3),),
        (torch.zeros(4),),
        (torch.zeros(4, 3),),
        (torch.zeros(4, 64, dtype=torch.uint8),),
        (torch.zeros(4, 64).to(torch.float8_e4m3fn),),
    ],
)
def test_nothing_is_derived_from_codes_and_indices(rows):
    assert inputs.derive(rows) == ()


def test_the_seed_decides():
    x, w = operands(k=128)
    first, second, other = (inputs.derive((x,), seed=s, fn=lambda x: F.linear(x, w))[0] for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_learning_gives_up_on_what_takes_too_long():
    launches = []

    def fn(x):
        launches.append(len(x))
        return torch.empty(len(x), 1 << 20).fill_(0)

    (made,) = inputs.derive((torch.randn(2, 1024, generator=torch.Generator().manual_seed(0)),), fn=fn)
    assert len(made) == 2 * PER_KIND
    assert len(launches) == 1
