"""The readable fp32 kernels: plain torch, batch invariant by construction, bit for bit what `cpu` computes.

How each step keeps a row's bits free of the batch:
- elementwise steps use only operations that IEEE defines per element (see `elementwise`);
- a maximum is exact in any order;
- sums are loops in a fixed order over K-blocks, experts or choices: the loop bounds never contain M;
- the one matrix product sums 16 products of e2m1 values: multiples of 0.25 below 2^10, exact in any order.

The accumulation tree of a scaled MM: fp32 chain over the K/16 block sums in ascending K, from +0. A block sum
times its two scales has at most 20 significant bits, so it is exact and the chain's additions are the only
roundings; whether they are fused with the multiplication cannot show.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.formats import BLOCK, E2M1, E2M1_MAX, E4M3_MAX, E4M3_NAN, NAN_CODE, pack, unpack
from samebits_kernels.layout import swizzle, unswizzle
from samebits_kernels.reference.elementwise import exp, gated, rounded

_CHUNK_BYTES = 32 << 20  # K-blocks computed at once; changes memory, never the order


def quantise(x: Tensor, global_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [R, K] with one global scale, or one a row [R, 1] -> uint8 [R, K/2], plain e4m3 [R, K/16]."""
    rows, k = x.shape
    blocks = x.float().view(rows, k // BLOCK, BLOCK)
    global_scale = global_scale.float().reshape(-1, 1)
    nan = blocks.isnan().any(dim=-1)
    amax = blocks.abs().amax(dim=-1)
    wanted = torch.where(nan, 0.0, (global_scale * (amax / E2M1_MAX)).clamp(max=E4M3_MAX))
    scale = wanted.to(torch.float8_e4m3fn)
    s = scale.float()
    r = torch.where(s == 0, 0.0, global_scale / s)
    codes = torch.where(nan.unsqueeze(-1), NAN_CODE, e2m1(blocks * r.unsqueeze(-1)))
    scale_bytes = torch.where(nan, E4M3_NAN, scale.view(torch.uint8)).to(torch.uint8)
    return pack(codes.to(torch.uint8).view(rows, k)), scale_bytes.view(torch.float8_e4m3fn)


def e2m1(y: Tensor) -> Tensor:
    """fp32 -> 4-bit codes, round to nearest even, saturating, sign of zero kept, NaN -> 7."""
    a = y.abs()
    code = torch.zeros(y.shape, dtype=torch.uint8, device=y.device)
    for boundary, tie_goes_up in ((0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)):
        code += (a >= boundary) if tie_goes_up else (a > boundary)
    code += torch.signbit(y).to(torch.uint8) * 8
    return torch.where(y.isnan(), NAN_CODE, code).to(torch.uint8)


def activation(x: Tensor, kind: str) -> Tensor:
    """[R, 2*I] (gate, then up) -> [R, I], one rounding to x's dtype."""
    half = x.shape[1] // 2
    return rounded(gated(x[:, :half].float(), x[:, half:].float(), kind), x.dtype)


def block_sums(a: Tensor, b: Tensor) -> Tensor:
    """Exact sums of each 16-block: codes uint8 [M, K], [N, K] -> fp32 [K/16, M, N]."""
    values = torch.tensor(E2M1, device=a.device)
    a16 = values[a.int()].view(a.shape[0], a.shape[1] // BLOCK, BLOCK).transpose(0, 1)
    b16 = values[b.int()].view(b.shape[0], b.shape[1] // BLOCK, BLOCK).permute(1, 2, 0)
    return torch.bmm(a16, b16)


def accumulate(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """The fp32 chain: uint8 [M, K/2], e4m3 [M, K/16], uint8 [N, K/2], e4m3 [N, K/16] -> fp32 [M, N]."""
    m, n, blocks = a.shape[0], b.shape[0], a_scale.shape[1]
    acc = torch.zeros(m, n, device=a.device)
    step = max(1, _CHUNK_BYTES // max(1, 4 * m * n))
    sa, sb = a_scale.float().T.unsqueeze(2), b_scale.float().T.unsqueeze(1)  # [K/16, M, 1], [K/16, 1, N]
    for start in range(0, blocks, step):
        at = slice(start, start + step)
        byte = slice(start * BLOCK // 2, (start + step) * BLOCK // 2)
        terms = block_sums(unpack(a[:, byte]), unpack(b[:, byte]))
        terms *= sa[at] * sb[at]
        for term in terms:
            acc += term
    return acc


def scaled_mm(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, alpha: Tensor, dtype: torch.dtype) -> Tensor:
    """`cast(alpha * chain)` with plain (unswizzled) scales -> [M, N]."""
    return rounded(accumulate(a, a_scale, b, b_scale) * alpha.reshape(()), dtype)


def route(logits: Tensor, topk: int, renormalize: bool) -> tuple[Tensor, Tensor]:
    """Softmax in fp32, the k largest by weight, ties to the lower expert -> fp32 [M, k], int32 [M, k].

    A NaN or +Inf logit makes the row's weights NaN and its choices experts 0..k-1.
    """
    x = logits.float()
    e = exp(x - x.amax(dim=1, keepdim=True))
    total = e[:, 0]
    for expert in range(1, e.shape[1]):
        total = total + e[:, expert]
    ordered, ids = torch.sort(e / total.unsqueeze(1), dim=1, descending=True, stable=True)
    weights = ordered[:, :topk]
    if renormalize:
        total = weights[:, 0]
        for j in range(1, topk):
            total = total + weights[:, j]
        weights = weights / total.unsqueeze(1)
    return rounded(weights, torch.float32), ids[:, :topk].to(torch.int32)


def permute(topk_ids: Tensor, num_experts: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slots sorted by expert, stable in token order; see `samebits_kernels.permute` for the four results."""
    m, k = topk_ids.shape
    order = torch.sort(topk_ids.flatten(), stable=True).indices  # slot -> m*k + j
    c_map = torch.empty_like(order)
    c_map[order] = torch.arange(m * k, device=order.device)
    counts = torch.zeros(num_experts, dtype=torch.int64)
    counts.scatter_add_(0, topk_ids.flatten().long(), torch.ones_like(order))
    zero = torch.zeros(1, dtype=torch.int64)
    offsets = torch.cat((zero, counts.cumsum(0)))
    scale_offsets = torch.cat((zero, ((counts + 127) // 128 * 128).cumsum(0)))
    a_map = order // k
    return (
        a_map.to(torch.int32),
        c_map.view(m, k).to(torch.int32),
        offsets.to(torch.int32),
        scale_offsets.to(torch.int32),
    )


def combine(y: Tensor, weights: Tensor | None, c_map: Tensor) -> Tensor:
    """`sum over j of w[m, j] * y[slot(m, j)]` in fp32, j ascending, each step rounded (not fused), one cast."""
    rows = y[c_map.long().flatten()].view(*c_map.shape, y.shape[1]).float()
    total: Tensor | None = None
    for j in range(c_map.shape[1]):
        term = rows[:, j] if weights is None else weights[:, j : j + 1] * rows[:, j]
        total = term if total is None else total + term
    assert total is not None
    return rounded(total, y.dtype)


def scale_rows(offsets: Tensor, scale_offsets: Tensor) -> Tensor:
    """Row of the padded scale buffer of every slot, from the two offset arrays."""
    counts = offsets[1:] - offsets[:-1]
    shift = (scale_offsets[:-1] - offsets[:-1]).repeat_interleave(counts)
    return torch.arange(int(offsets[-1]), device=offsets.device) + shift


def place_scales(out: Tensor, plain: Tensor, rows: Tensor) -> None:
    """Write plain scales [R, C] at `rows` of a swizzled buffer; everything else of it becomes zero."""
    logical = torch.zeros(out.shape[0], plain.shape[1], dtype=torch.uint8, device=out.device)
    logical[rows] = plain.view(torch.uint8)
    out.view(torch.uint8).copy_(swizzle(logical.view(torch.float8_e4m3fn)).view(torch.uint8))


def take_scales(buffer: Tensor, rows: Tensor, columns: int) -> Tensor:
    """Plain scales of `rows` of a swizzled buffer."""
    plain = unswizzle(buffer, buffer.shape[0], columns)
    return plain.view(torch.uint8)[rows].view(torch.float8_e4m3fn)
