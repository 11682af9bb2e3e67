"""The quantiser is exact to the bit against the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import samebits_kernels as sk
from samebits_kernels.reference import oracle
from samebits_kernels.reference.elementwise import exp

DTYPES = [torch.bfloat16, torch.float16]


def agrees(x, global_scale, backend):
    q, q_scale = sk.quantise(x, torch.tensor([global_scale]), backend=backend)
    rows, k = x.shape
    expected, scales = oracle.quantise(x, global_scale)
    assert np.array_equal(q.numpy(), expected)
    assert np.array_equal(oracle.unswizzle(q_scale, rows, k // 16), scales)
    padding = sk.swizzle_scales(sk.unswizzle_scales(q_scale, rows, k // 16))
    assert torch.equal(q_scale.view(torch.uint8), padding.view(torch.uint8)), "padding is zero"
    return q, q_scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "k"), [(0, 64), (1, 16), (2, 32), (3, 48), (33, 80), (127, 16), (129, 2016), (5, 7168)]
)
def test_shapes(backend, m, k, dtype):
    x = torch.randn(m, k, generator=torch.Generator().manual_seed(m)).to(dtype)
    agrees(x, 37.5, backend)


@pytest.mark.parametrize("global_scale", [1e-6, 0.3, 1.0, 448.0 * 6, 1e6, 3e38])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_finite_value(backend, dtype, global_scale):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(dtype)
    x = x[x.isfinite()]
    x = x[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))]
    agrees(x[: x.numel() // 32 * 32].view(-1, 32), global_scale, backend)


def test_ties_go_to_even(backend):
    x = torch.tensor([[6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, 0.0]])
    q, _ = sk.quantise(x.to(torch.bfloat16), torch.ones(1), backend=backend)
    assert sk.unpack(q)[0].tolist() == [7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 10, 12, 12, 14, 14, 0]


def test_zeros_keep_their_sign(backend):
    x = torch.tensor([[0.0, -0.0] * 8]).to(torch.bfloat16)
    q, q_scale = agrees(x, 1.0, backend)
    assert sk.unpack(q)[0].tolist() == [0, 8] * 8
    assert int(q_scale.view(torch.uint8).max()) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_inf_stay_in_their_block(backend, dtype):
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    clean, clean_scale = agrees(x, 10.0, backend)
    x[1, 20], x[2, 40], x[2, 41] = math.nan, math.inf, -math.inf
    q, q_scale = agrees(x, 10.0, backend)
    scales, before = (sk.unswizzle_scales(s, 4, 4).view(torch.uint8) for s in (q_scale, clean_scale))
    assert int(scales[1, 1]) == 0x7F
    assert (sk.unpack(q)[1, 16:32] == 7).all()
    assert int(scales[2, 2]) == 0x7E
    assert sk.unpack(q)[2, 40:42].tolist() == [7, 15]
    same = torch.ones(4, 4, dtype=torch.bool)
    same[1, 1] = same[2, 2] = False
    assert torch.equal(scales[same], before[same])
    assert torch.equal(q.view(4, 4, 8)[same], clean.view(4, 4, 8)[same])


def test_rows_may_be_strided(backend, same):
    wide = torch.randn(5, 100).to(torch.bfloat16)
    got = sk.quantise(wide[1:, 3:67], torch.ones(1), backend=backend)
    expected = sk.quantise(wide[1:, 3:67].contiguous(), torch.ones(1), backend=backend)
    assert all(same(g, e) for g, e in zip(got, expected, strict=True))


@pytest.mark.parametrize("kind", ["silu", "swiglustep"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_activation(backend, same, dtype, kind):
    g = torch.Generator().manual_seed(2)
    x = (torch.randn(33, 96, generator=g) * torch.exp(2 * torch.randn(33, 96, generator=g))).to(dtype)
    y = sk.activation_and_mul(x, kind, backend=backend)
    assert oracle.activation(x, kind).violations(y) == 0
    fused = sk.activation_quantise(x, torch.tensor([50.0]), kind, backend=backend)
    apart = sk.quantise(y, torch.tensor([50.0]), backend=backend)
    assert all(same(f, a) for f, a in zip(fused, apart, strict=True))


@pytest.mark.parametrize("kind", ["silu", "swiglustep"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_activation_has_one_set_of_bits(same, cpu, dtype, kind):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = torch.stack((bits, bits.flip(0)), dim=1).reshape(-1, 32)
    expected = sk.activation_and_mul(x, kind, backend="reference")
    for isa in cpu.isas():
        cpu.force_isa(isa)
        assert same(sk.activation_and_mul(x, kind, backend="cpu"), expected)


def test_exp_is_within_two_ulp_and_the_same_in_both(cpu):
    x = torch.cat((torch.linspace(-105, 89.5, 200_001), torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])))
    y = exp(x)
    native = torch.empty_like(x)
    for isa in cpu.isas():
        cpu.force_isa(isa)
        cpu._native.exp(x.data_ptr(), x.numel(), native.data_ptr())
        good = ~x.isnan()
        assert torch.equal(native[good].view(torch.int32), y[good].view(torch.int32))
        assert native[~good].isnan().all()
    exact = np.exp(x.double().numpy())
    normal = (exact > 1.2e-38) & (exact < 3.4e38)
    ulp = np.spacing(exact[normal].astype(np.float32)).astype(np.float64)
    assert np.abs(y.double().numpy()[normal] - exact[normal]).max() > 0
    assert (np.abs(y.double().numpy()[normal] - exact[normal]) / ulp).max() <= 2
