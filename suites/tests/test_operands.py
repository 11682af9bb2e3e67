"""Operands of `samebits.inputs` through the real operators: nothing is lost at the door or overflows inside."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import samebits_kernels
from samebits import inputs
from samebits.inputs.moe import ROUTINGS, MoeOperands
from samebits_suites import kernels
from samebits_suites.moe import Layer

DTYPES = (torch.bfloat16, torch.float16)


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    reason = kernels.needs(request.param)()
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [16, 112, 256, 2016])
def test_activations_quantise_back_to_their_codes(k: int, dtype: torch.dtype, backend: str) -> None:
    o = inputs.nvfp4_gemm(7, 4, k, seed=1)
    codes, scale = samebits_kernels.quantise(o.activations(dtype), torch.ones(1), backend=backend)
    assert torch.equal(codes, o.x)
    assert torch.equal(scale.view(torch.uint8), samebits_kernels.swizzle_scales(o.x_scale).view(torch.uint8))


def layer(o: MoeOperands, topk: int, backend: str, activation: str = "silu") -> torch.Tensor:
    weights = Layer(o).weights()
    return samebits_kernels.moe(
        o.hidden, o.logits, *weights, topk, renormalize=True, activation=activation, backend=backend
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["silu", "swiglustep"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_layers_give_ordinary_numbers(routing: str, activation: str, dtype: torch.dtype, backend: str) -> None:
    o = inputs.moe(12, 256, 128, 8, dtype=dtype, routing=routing, seed=1)
    for topk in (1, 2, 4):
        y = layer(o, topk, backend, activation)
        assert torch.isfinite(y).all()
        assert y.abs().max() < torch.finfo(dtype).max / 4
        assert y.any(1).all(), "in a row of zeros nothing can show"


@pytest.mark.parametrize("topk", [1, 2, 4])
@pytest.mark.parametrize("routing", ["mixed", "opposite"])
def test_the_order_of_both_gemms_shows_in_the_output(routing: str, topk: int, backend: str) -> None:
    """Blocks of either axis permuted, in activations and weights alike: the same sums in another order.

    GEMM 2 shows in the even columns (0.7 to 0.96 measured), GEMM 1 in the rows of the cancelling kind, one in two.
    """
    o = inputs.moe(16, 512, 512, 8, seed=1, routing=routing)
    usual = layer(o, topk, backend)
    g = torch.Generator().manual_seed(5)
    blocks = torch.randperm(512 // 16, generator=g)
    lanes = (blocks[:, None] * 16 + torch.arange(16)).flatten()
    packed = (blocks[:, None] * 8 + torch.arange(8)).flatten()
    rows = torch.cat([lanes, 512 + lanes])
    second = dataclasses.replace(
        o, w13=o.w13[:, rows], w13_scale=o.w13_scale[:, rows],
        w2=o.w2[:, :, packed].contiguous(), w2_scale=o.w2_scale[:, :, blocks].contiguous(),
    )  # fmt: skip
    first = dataclasses.replace(
        o, hidden=o.hidden[:, lanes].contiguous(),
        w13=o.w13[:, :, packed].contiguous(), w13_scale=o.w13_scale[:, :, blocks].contiguous(),
    )  # fmt: skip
    assert (layer(second, topk, backend) != usual)[:, 0::2].double().mean() > 0.5
    assert (layer(first, topk, backend) != usual)[0::2].double().mean() > 0.5
