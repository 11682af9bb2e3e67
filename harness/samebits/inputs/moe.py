"""A gated MoE layer in NVFP4: routing that crosses thresholds, experts that cancel."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.errors import UsageError
from samebits.inputs.gemm import check
from samebits.inputs.mirror import mirror
from samebits.inputs.nvfp4 import (
    BANDS,
    BLOCK,
    ORDINARY,
    Nvfp4Operands,
    block_codes,
    block_scales,
    dequantise,
    nvfp4_gemm,
    pack,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from samebits.inputs.mirror import Mirror

ROUTINGS = ("uniform", "one", "zipf", "ties", "opposite", "mixed")

APART = 2.0**-19
"""By which the logits of opposite experts differ. With equal ones their sum is zero, whatever the GEMMs do and
however the combine adds pair to pair; with 2**-13 it outgrows the combine's rounding (0.02 show, not 0.5)."""
GATE = (72, 60, 48, 36)
"""e4m3 codes of the gate's block scales, by the band of the intermediate block: 4, 1.5, 0.5, 0.2."""
QUIET = 48
"""Codes by which ordinary hidden rows lie lower: 2**-6, so that SwigluStep's clamps leave some of them alone."""
W1_ALPHA, W1_LENGTH = 2.0**-8, 4096
A2_GSCALE = 0.5
W2_ALPHA = 1.0
"""Powers of two that keep rounding errors above, and ordinary values below, what the next step can hold; alpha is
for sums of W1_LENGTH, and rises for shorter ones as their rounding errors fall."""


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
    """Inputs of a MoE layer in which a reordering shows in the output, wherever it happens.

    - GEMM 1: the up half cancels on every second row; its rounding reaches the output times an ordinary gate.
    - GEMM 2: blocks of the intermediate axis come in pairs of equal activations (their rows of w13 are equal),
      which even columns of the output weight with opposite signs over four bands; odd columns are ordinary.
    - Combine: experts come in pairs with equal w13 and opposite w2, and under "opposite" routing both of a pair
      get almost the same logit: their outputs cancel but for 2**-19, which keeps the row from being zero.

    Routing "one" sends every row to the same experts, "zipf" is skewed, "ties" has equal logits, "mixed" takes
    the kinds in turn, row by row.

    Raises:
        UsageError: sizes that are no multiples of 16, or an unknown routing.
    """
    import torch

    check(routing, ROUTINGS, rows=rows, hidden=hidden, intermediate=intermediate, experts=experts)
    for name, size in (("hidden", hidden), ("intermediate", intermediate)):
        if size % BLOCK:
            raise UsageError(f"{name} is a whole number of blocks", found=str(size), allowed="multiples of 16")
    kept = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    g = torch.Generator().manual_seed(seed + 7)
    pairs = -(-experts // 2)
    blocks = intermediate // BLOCK
    m = mirror(blocks, len(BANDS), g, tile=len(BANDS))
    first = gated(rows, pairs * intermediate, hidden, m, seed, g)
    w1_alpha = W1_ALPHA * 2.0 ** round(0.5 * math.log2(W1_LENGTH / hidden))
    w2, w2_scale = _down(pairs * hidden, m, g)

    def expand(t: Tensor) -> Tensor:
        return t.reshape(pairs, t.shape[0] // pairs, -1).repeat_interleave(2, dim=0)[:experts].contiguous()

    w2 = expand(w2)
    w2[1::2] ^= 0x88  # both nibbles' signs
    return MoeOperands(
        hidden=dequantise(first.x, first.x_scale).to(kept).to(device),
        logits=_logits(rows, experts, routing, g).to(device),
        w13=expand(first.w).to(device),
        w13_scale=expand(first.w_scale).to(device),
        w2=w2.to(device),
        w2_scale=expand(w2_scale).to(device),
        a1_gscale=torch.ones(experts, device=device),
        a2_gscale=torch.full((experts,), A2_GSCALE, device=device),
        w1_alphas=torch.full((experts,), w1_alpha, device=device),
        w2_alphas=torch.full((experts,), W2_ALPHA, device=device),
    )


def gated(rows: int, n: int, k: int, m: Mirror, seed: int, g: torch.Generator) -> Nvfp4Operands:
    """Operands of GEMM 1: `w` [experts * 2 * intermediate, k/2] from n = experts * intermediate up rows.

    Gate rows before up rows in each expert, and rows of image blocks copied from their originals.
    """
    import torch

    up = nvfp4_gemm(rows, n, k, seed=seed)
    quiet = torch.arange(rows) % 2 == 1
    x_scale = torch.where(quiet[:, None], up.x_scale - QUIET, up.x_scale)
    # The gate of a band-0 block is the largest: activations have bands, too.
    place = torch.arange(m.band.shape[0])
    image = m.sign < 0
    original = torch.zeros(max(1, m.originals), dtype=torch.int64)
    original[m.source[m.sign > 0]] = place[m.sign > 0]
    block = torch.where(image, original[m.source.clamp(min=0)], place)
    row = (block[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    low = torch.tensor(GATE)[m.band].repeat_interleave(BLOCK).repeat(n // row.shape[0])
    gate_scale = low[:, None] + torch.randint(8, (n, k // BLOCK), generator=g)
    gate = pack(block_codes(n, k // BLOCK, g))

    def weave(gates: Tensor, ups: Tensor) -> Tensor:
        both = torch.stack([t.reshape(-1, row.shape[0], t.shape[1])[:, row] for t in (gates, ups)], dim=1)
        return both.flatten(0, 2)

    return dataclasses.replace(
        up, x_scale=x_scale, w=weave(gate, up.w), w_scale=weave(gate_scale.to(torch.uint8), up.w_scale)
    )


def _down(n: int, m: Mirror, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """uint8 (w2 [n, intermediate/2], its scales): even rows weight images with the opposite sign."""
    import torch

    blocks = m.band.shape[0]
    place = m.source.clamp(min=0)
    codes, scale = block_codes(n, max(1, m.originals), g)[:, place], block_scales(n, m.band, m.source, g)
    codes = torch.where(m.sign[None, :, None] < 0, codes ^ 8, codes)
    plain, plain_scale = block_codes(n, blocks, g), torch.randint(*ORDINARY, (n, blocks), generator=g)
    cancels = (torch.arange(n) % 2 == 0)[:, None] & (m.sign != 0)[None]
    codes = torch.where(cancels[..., None], codes, plain)
    return pack(codes), torch.where(cancels, scale, plain_scale).to(torch.uint8)


def _logits(rows: int, experts: int, routing: str, g: torch.Generator) -> Tensor:
    import torch

    uniform = torch.randn(rows, experts, generator=g)
    pair = torch.randn(rows, -(-experts // 2), generator=g).repeat_interleave(2, dim=1)[:, :experts]
    pair = pair - APART * (torch.arange(experts) % 2)
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
