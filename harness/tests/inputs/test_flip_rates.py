"""What the designs are for: nearly every element shows nearly every change of the order, where randn shows none.

The bounds lie far below the measured rates (harness/benchmarks/flip_probability.py: 0.74 at least, 0.99 as a rule)
and far above those of randn (0.01 at most; 0.3 where the unit keeps 13 bits).
"""

from __future__ import annotations

import pytest
import torch

from samebits import inputs
from samebits.inputs.adders import BLACKWELL_NVFP4, FMA, HOPPER, HOPPER_FP8, MULTIPLY_ADD
from samebits.inputs.nvfp4 import dequantise
from samebits.inputs.orders import flip_rates

LENGTHS = (128, 1024, 2048)
UNITS = [
    ("bfloat16", FMA), ("bfloat16", HOPPER), ("float16", FMA), ("float16", HOPPER), ("float8_e4m3fn", FMA),
    ("float8_e4m3fn", HOPPER), ("float8_e4m3fn", HOPPER_FP8), ("nvfp4", FMA), ("nvfp4", HOPPER),
    ("nvfp4", BLACKWELL_NVFP4), ("float32", FMA), ("float32", MULTIPLY_ADD),
]  # fmt: skip
LEAST, USUAL = 0.5, 0.85


def operands(name, k, kind, seed=3):
    if name == "nvfp4":
        o = inputs.nvfp4_gemm(2, 128, k, seed=seed, kind=kind)
        return dequantise(o.x, o.x_scale), dequantise(o.w, o.w_scale)
    o = inputs.gemm(2, 128, k, dtype=name, seed=seed, kind=kind)
    return o.x, o.w


@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize(("name", "adder"), UNITS, ids=lambda v: getattr(v, "name", v))
def test_every_order_shows(name, adder, k):
    rates = flip_rates(*operands(name, k, "stratified"), adder, exact_products=name != "float32")
    assert len(rates) >= 4
    assert min(rates.values()) >= LEAST, rates
    assert sorted(rates.values())[len(rates) // 2] >= USUAL - 0.1 * (adder is HOPPER_FP8), rates


@pytest.mark.parametrize(("name", "adder"), UNITS, ids=lambda v: getattr(v, "name", v))
def test_ordinary_rows_would_fail_these_bounds(name, adder):
    rates = flip_rates(*operands(name, 1024, "ordinary"), adder, exact_products=name != "float32")
    assert min(rates.values()) < LEAST / 5


@pytest.mark.parametrize("seed", range(6))
def test_the_rates_do_not_hang_on_the_seed(seed):
    rates = flip_rates(*operands("nvfp4", 1024, "stratified", seed), BLACKWELL_NVFP4)
    assert min(rates.values()) >= LEAST, rates


def test_contraction_cannot_show_where_products_are_exact():
    x, w = operands("bfloat16", 128, "stratified")
    products = (x.double()[:, None] * w.double()[None]).reshape(-1, 128).numpy()
    assert (FMA.chain(products) == MULTIPLY_ADD.chain(products)).all()


def test_the_adders_agree_with_arithmetic_done_by_hand():
    """1 + 2**-24 rounds to even; 25 fraction bits keep 2**-25 and lose 2**-26; the result is cut to 24 bits."""
    half = torch.tensor([1.0, 2.0**-24, 2.0**-24], dtype=torch.float64).numpy()
    assert FMA.chain(half) == 1
    padded = torch.zeros(16, dtype=torch.float64)
    padded[0], padded[1], padded[2] = 1, 2.0**-24, 2.0**-24
    assert HOPPER.chain(padded.numpy()) == 1 + 2.0**-23, "one step adds both before it rounds"
    padded[1:3] = 2.0**-26
    padded[3:5] = 2.0**-26
    assert HOPPER.chain(padded.numpy()) == 1, "below 25 bits each addend is truncated by itself"
    groups = torch.zeros(64, dtype=torch.float64)
    groups[0], groups[16:20] = 1, 2.0**-25
    assert BLACKWELL_NVFP4.chain(groups.numpy()) == 1 + 2.0**-23, "sums of 16 are exact"
