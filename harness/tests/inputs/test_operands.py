"""Exactly representable, cancelling, finite, and the same again for the same arguments."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits import inputs
from samebits.errors import UsageError
from samebits.inputs.mirror import mirror
from samebits.inputs.nvfp4 import dequantise

DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn")


def bits(t):
    return t.contiguous().view(torch.uint8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 300), st.sampled_from([1, 2, 4]), st.integers(0, 9))
def test_every_original_has_one_image_of_its_band(length, bands, seed):
    m = mirror(length, bands, torch.Generator().manual_seed(seed), tile=16)
    originals, images = m.source[m.sign > 0], m.source[m.sign < 0]
    assert sorted(originals.tolist()) == sorted(images.tolist()) == list(range(m.originals))
    assert (m.source[m.sign == 0] == -1).all()
    assert (m.sign == 0).sum() <= bands, "at most one place of each band has no partner"
    for place in range(length):
        if m.sign[place] > 0:
            image = int(((m.source == m.source[place]) & (m.sign < 0)).nonzero())
            assert m.band[place] == m.band[image] < bands
    assert sorted(m.paired().tolist()) == list(range(length))


def test_large_bands_lie_in_tiles_of_one_sign():
    m = mirror(1024, 4, torch.Generator().manual_seed(0))
    net = [int(m.sign[i : i + 64][m.band[i : i + 64] == 0].sum()) for i in range(0, 1024, 64)]
    assert {abs(n) for n in net} == {16}
    assert all(a + b == 0 for a, b in zip(net[::2], net[1::2], strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 15, 33, 64, 100, 512])
def test_stratified_sums_are_zero_in_real_numbers(dtype, k):
    o = inputs.gemm(3, 8, k, dtype=dtype, kind="stratified")
    x, w = o.x.double(), o.w.double()
    assert torch.isfinite(x).all()
    assert torch.isfinite(w).all()
    ordered = (x[:, o.order, None] * w.T[o.order]).cumsum(1)
    assert (ordered[:, -1] == 0).all(), "each product next to its negative: every step is exact"
    if k >= 8:
        assert (x != 0).any(1).all()


def test_fp16_rows_do_not_overflow():
    assert torch.isfinite(inputs.gemm(512, 1, 4096, dtype="float16").x).all()


def test_mixed_alternates_over_one_weight():
    mixed = inputs.gemm(6, 8, 256, seed=4)
    assert torch.equal(bits(mixed.x[0::2]), bits(inputs.gemm(6, 8, 256, seed=4, kind="stratified").x[0::2]))
    assert mixed.x[1::2].abs().max() < 10 < mixed.x[0::2].abs().max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_reordered_is_the_same_matrix_product(dtype):
    o = inputs.gemm(4, 8, 128, dtype=dtype, kind="mixed")
    x, w = o.reordered()
    assert x.shape == o.x.shape
    for a, b in ((x, o.x), (w, o.w)):
        assert torch.equal(a.double().sort(1).values, b.double().sort(1).values)
    assert torch.equal(x.double(), o.x.double()[:, o.order])


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: inputs.gemm(4, 8, 96, seed=seed),
        lambda seed: inputs.nvfp4_gemm(4, 8, 96, seed=seed),
        lambda seed: inputs.moe(10, 32, 32, 5, seed=seed),
    ],
)
def test_arguments_decide_everything(make):
    torch.manual_seed(1)
    first = vars(make(3))
    torch.manual_seed(2)
    second, third = vars(make(3)), vars(make(4))
    tensors = [n for n, t in first.items() if isinstance(t, torch.Tensor)]
    assert all(torch.equal(bits(first[n]), bits(second[n])) for n in tensors)
    assert any(not torch.equal(bits(first[n]), bits(third[n])) for n in tensors)


@pytest.mark.parametrize("k", [16, 32, 48, 64, 112, 240, 256, 1024, 2016])
def test_nvfp4_rows_survive_their_quantiser(k):
    """Each block has an element of 6, so the quantiser finds scale and codes again: amax / 6 is the scale."""
    o = inputs.nvfp4_gemm(6, 8, k, seed=1)
    for dtype in (torch.bfloat16, torch.float16):
        x = o.activations(dtype)
        assert torch.equal(x.double(), dequantise(o.x, o.x_scale)), "nothing is lost in 16 bits"
        amax = x.float().unflatten(1, (-1, 16)).abs().amax(-1)
        found = (amax / 6).clamp(max=448).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(found, o.x_scale)
    assert int(o.x_scale.max()) < 0x7F
    assert int(o.w_scale.max()) < 0x7F, "0x7f is NaN"


@pytest.mark.parametrize("k", [128, 1024, 8192])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_nvfp4_outputs_are_ordinary_numbers(k, dtype):
    o = inputs.nvfp4_gemm(16, 64, k, seed=2)
    x, w = dequantise(o.x, o.x_scale).float(), dequantise(o.w, o.w_scale).float()
    y = ((x @ w.T) * o.alpha).to(dtype)
    assert torch.isfinite(y).all()
    assert y.abs().max() < torch.finfo(dtype).max / 4
    assert (y.abs() >= torch.finfo(dtype).tiny).double().mean() > 0.85, "subnormals round what should show"


@pytest.mark.parametrize("k", [256, 2048])
def test_nvfp4_stratified_rows_cancel(k):
    o = inputs.nvfp4_gemm(4, 8, k, kind="stratified")
    exact = dequantise(o.x, o.x_scale)[:, None] * dequantise(o.w, o.w_scale)[None]
    assert (exact.unflatten(2, (-1, 16)).sum(-1).sum(-1) == 0).all()


@pytest.mark.parametrize("kind", ["mixed", "stratified", "ordinary"])
def test_reduction_rows(kind):
    rows = inputs.reduction(8, 200, kind=kind)
    assert rows.shape == (8, 200)
    assert torch.isfinite(rows).all()
    zero = [math.fsum(row) == 0 for row in rows.tolist()]
    assert zero == {"mixed": [True, False] * 4, "stratified": [True] * 8, "ordinary": [False] * 8}[kind]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: inputs.gemm(1, 1, 8, kind="random"), "mixed, stratified, ordinary"),
        (lambda: inputs.gemm(0, 1, 8), "rows must be positive"),
        (lambda: inputs.nvfp4_gemm(1, 1, 24), "multiples of 16"),
        (lambda: inputs.moe(1, 32, 32, 4, routing="random"), "zipf"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(UsageError, match=words):
        call()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_lifelike_rows_are_what_they_are_called(dtype):
    def x(kind):
        return inputs.gemm(16, 4, 256, dtype=dtype, kind=kind).x.double()

    tiny = torch.finfo(getattr(torch, dtype)).smallest_normal
    largest = x("outliers").abs().amax(0)
    assert (largest > 20).sum() == 4
    assert 0.85 < (x("sparse") == 0).double().mean() < 0.95
    subnormal = x("subnormal")
    assert (subnormal.abs() <= tiny).all()
    assert (subnormal != 0).double().mean() > 0.9
    zeros = x("signed-zeros")
    negative = (zeros == 0) & zeros.signbit()
    assert 0.15 < negative.double().mean() < 0.35
    assert 0.15 < ((zeros == 0) & ~zeros.signbit()).double().mean() < 0.35
