"""A gated MoE layer in NVFP4: routing that crosses thresholds, experts that cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.inputs.gemm import check
from samebits.inputs.nvfp4 import BLOCK, Nvfp4Operands, nvfp4_gemm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ROUTINGS = ("uniform", "one", "zipf", "ties", "opposite", "mixed")


@dataclass(frozen=True)
class MoeOperands:
    """Rows and weights of a layer; block scales are e4m3 bits, not swizzled."""

    hidden: Tensor
    """[rows, hidden] bf16 or fp16."""
    logits: Tensor
    """[rows, experts] fp32."""
    w13: Tensor
    """uint8 [experts, 2 * intermediate, hidden/2], gate rows first."""
    w13_scale: Tensor
    """uint8 [experts, 2 * intermediate, hidden/16]."""
    w2: Tensor
    """uint8 [experts, hidden, intermediate/2]."""
    w2_scale: Tensor
    """uint8 [experts, hidden, intermediate/16]."""
    a1_gscale: Tensor
    """[experts] fp32, all 1: `hidden` is quantised without loss."""
    a2_gscale: Tensor
    """[experts] fp32: puts the activations of GEMM 1 into the range of the block scales."""
    w1_alphas: Tensor
    """[experts] fp32, factor of GEMM 1's accumulators."""
    w2_alphas: Tensor
    """[experts] fp32, factor of GEMM 2's accumulators."""


def moe(
    rows: int,
    hidden: int,
    intermediate: int,
    experts: int,
    *,
    dtype: torch.dtype | str = "bfloat16",
    seed: int = 0,
    device: torch.device | str = "cpu",
    routing: str = "mixed",
) -> MoeOperands:
    """Inputs of a MoE layer.

    Experts come in pairs with equal w13 and opposite w2, and under "opposite" routing both of a pair get the
    same logit, so that the combine of top-k cancels and shows its order. "one" sends every row to the same
    experts, "zipf" is skewed, "ties" has equal logits, "mixed" takes the kinds in turn, row by row.

    Raises:
        UsageError: sizes that are no multiples of 16, or an unknown routing.
    """
    import torch

    check(routing, ROUTINGS, rows=rows, hidden=hidden, intermediate=intermediate, experts=experts)
    kept = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    g = torch.Generator().manual_seed(seed + 7)
    pairs = -(-experts // 2)
    up = nvfp4_gemm(rows, pairs * 2 * intermediate, hidden, seed=seed)
    down = nvfp4_gemm(1, pairs * hidden, intermediate, seed=seed + 1, kind="ordinary")

    def expand(t: Tensor, n: int) -> Tensor:
        return t.reshape(pairs, n, -1).repeat_interleave(2, dim=0)[:experts].contiguous()

    w2 = expand(down.w, hidden)
    w2[1::2] ^= 0x88  # both nibbles' signs
    # Ordinary rows leave GEMM 1 around 2**11 with ALPHA; further down, the products of gate and up stay
    # inside fp16.
    w1_alphas = torch.full((experts,), up.alpha * 2.0**-10)
    return MoeOperands(
        hidden=up.activations(kept).to(device),
        logits=_logits(rows, experts, routing, g).to(device),
        w13=expand(up.w, 2 * intermediate).to(device),
        w13_scale=expand(up.w_scale, 2 * intermediate).to(device),
        w2=w2.to(device),
        w2_scale=expand(down.w_scale, hidden).to(device),
        a1_gscale=torch.ones(experts, device=device),
        a2_gscale=torch.full((experts,), 16.0, device=device),
        w1_alphas=w1_alphas.to(device),
        w2_alphas=torch.full((experts,), 2.0**-10, device=device),
    )


def _logits(rows: int, experts: int, routing: str, g: torch.Generator) -> Tensor:
    import torch

    uniform = torch.randn(rows, experts, generator=g)
    pair = torch.randn(rows, -(-experts // 2), generator=g).repeat_interleave(2, dim=1)[:, :experts]
    by_kind = {
        "uniform": uniform,
        "one": torch.linspace(4, -4, experts).expand(rows, experts),
        "zipf": uniform - 2 * torch.log(torch.arange(1.0, experts + 1)),
        "ties": uniform.round(),
        "opposite": pair,
    }
    if routing != "mixed":
        return by_kind[routing].contiguous()
    kinds = list(by_kind.values())
    return torch.stack([kinds[i % len(kinds)][i] for i in range(rows)])


__all__ = ["BLOCK", "MoeOperands", "Nvfp4Operands", "moe"]
