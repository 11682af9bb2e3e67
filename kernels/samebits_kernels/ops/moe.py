"""The whole gated MoE layer: `moe` (standard activation format) and `batched_moe` (masked, per-expert rows).

Steps, each an operator of its own with the same bits: route, permute, quantise with the expert's scale, grouped
GEMM 1 rounded to the activation dtype, activation and quantise, grouped GEMM 2, combine.
The caller's tensors are never written, `out` apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.backends.protocol import Backend
from samebits_kernels.backends.registry import resolve
from samebits_kernels.errors import UsageError
from samebits_kernels.formats import BLOCK
from samebits_kernels.layout import padded_shape
from samebits_kernels.ops import arguments as check
from samebits_kernels.ops.allocate import empty
from samebits_kernels.ops.experts import LOGITS, scale_capacity
from samebits_kernels.ops.library import define

Weights = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas."""


def _check_layer(hidden: Tensor, h: int, weights: Weights, activation: str) -> int:
    """Shapes of the weights; returns E."""
    w13, w13_scale, w2, w2_scale, *per_expert = weights
    names = ("w13", "w13_scale", "w2", "w2_scale", "a1_gscale", "w1_alphas", "a2_gscale", "w2_alphas")
    check.same_device(hidden=hidden, **dict(zip(names, weights, strict=True)))
    check.activation(activation)
    both = check.expert_weights("w13", w13, w13_scale, h)
    if both % (2 * BLOCK) or both == 0:
        raise UsageError(
            "w13 holds the gate rows, then the up rows",
            found=f"{both} rows",
            allowed=f"a positive multiple of {2 * BLOCK} (I a multiple of {BLOCK})",
        )
    check.expert_weights("w2", w2, w2_scale, both // 2, h)
    experts = w13.shape[0]
    if w2.shape[0] != experts:
        raise UsageError("w13 and w2 of the same experts", found=f"{experts} and {w2.shape[0]}")
    for name, t in zip(names[4:], per_expert, strict=True):
        check.contiguous(name, t, torch.float32, (experts,))
    return experts


def _check_values(weights: Weights) -> None:
    check.finite_positive("a1_gscale", weights[4])
    check.finite_positive("a2_gscale", weights[6])


def _experts(
    backend: Backend,
    hidden: Tensor,
    weights: Weights,
    activation: str,
    offsets: Tensor,
    scale_offsets: Tensor,
    a_map: Tensor,
    row_weight: Tensor | None,
) -> Tensor:
    """Both grouped GEMMs over the slots: [R, H]."""
    w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas = weights
    slots, h, inter, device = a_map.shape[0], hidden.shape[1], w2.shape[2] * 2, hidden.device
    capacity = scale_capacity(slots, w13.shape[0])
    q = empty((slots, h // 2), torch.uint8, device)
    q_scale = empty((capacity, padded_shape(1, h // BLOCK)[1]), torch.float8_e4m3fn, device)
    backend.experts_quantise(q, q_scale, hidden, a1_gscale, offsets, scale_offsets, a_map, row_weight)
    gate_up = empty((slots, 2 * inter), hidden.dtype, device)
    backend.grouped_mm(gate_up, q, w13, q_scale, w13_scale, w1_alphas, offsets, scale_offsets)
    q2 = empty((slots, inter // 2), torch.uint8, device)
    q2_scale = empty((capacity, padded_shape(1, inter // BLOCK)[1]), torch.float8_e4m3fn, device)
    backend.experts_activation_quantise(q2, q2_scale, gate_up, a2_gscale, offsets, scale_offsets, activation)
    y = empty((slots, h), hidden.dtype, device)
    backend.grouped_mm(y, q2, w2, q2_scale, w2_scale, w2_alphas, offsets, scale_offsets)
    return y


def _check_moe(
    hidden: Tensor,
    router_logits: Tensor,
    weights: Weights,
    topk: int,
    activation: str,
    apply_router_weight_on_input: bool,
) -> int:
    h = check.activations("hidden", hidden)
    experts = _check_layer(hidden, h, weights, activation)
    check.same_device(hidden=hidden, router_logits=router_logits)
    check.matrix("router_logits", router_logits, LOGITS, experts)
    if router_logits.shape[0] != hidden.shape[0]:
        raise UsageError(
            "one row of router_logits for each token",
            found=f"{router_logits.shape[0]} rows",
            allowed=str(hidden.shape[0]),
        )
    check.topk(topk, experts)
    if apply_router_weight_on_input and topk != 1:
        raise UsageError("apply_router_weight_on_input", found=f"topk = {topk}", allowed="topk = 1")
    return experts


def _fake(
    hidden: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    topk: int,
    renormalize: bool = False,
    activation: str = "silu",
    apply_router_weight_on_input: bool = False,
    backend: str = "",
) -> Tensor:
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    _check_moe(hidden, router_logits, weights, topk, activation, apply_router_weight_on_input)
    return empty((hidden.shape[0], hidden.shape[1]), hidden.dtype, hidden.device)


def _fake_out(
    hidden: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    topk: int,
    renormalize: bool = False,
    activation: str = "silu",
    apply_router_weight_on_input: bool = False,
    backend: str = "",
    *,
    out: Tensor,
) -> None:
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    _check_moe(hidden, router_logits, weights, topk, activation, apply_router_weight_on_input)
    check.same_device(hidden=hidden, out=out)
    check.output("out", out, hidden.dtype, (hidden.shape[0], hidden.shape[1]))


def _real_out(
    hidden: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    topk: int,
    renormalize: bool = False,
    activation: str = "silu",
    apply_router_weight_on_input: bool = False,
    backend: str = "",
    *,
    out: Tensor,
) -> None:
    chosen = resolve(backend, hidden.device.type)
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    experts = _check_moe(hidden, router_logits, weights, topk, activation, apply_router_weight_on_input)
    check.output("out", out, hidden.dtype, (hidden.shape[0], hidden.shape[1]))
    check.no_overlap(
        out, hidden=hidden, router_logits=router_logits, w13=w13, w13_scale=w13_scale, w2=w2, w2_scale=w2_scale
    )
    _check_values(weights)
    m, device = hidden.shape[0], hidden.device
    topk_weights = empty((m, topk), torch.float32, device)
    topk_ids = empty((m, topk), torch.int32, device)
    chosen.route(topk_weights, topk_ids, router_logits, renormalize)
    a_map = empty((m * topk,), torch.int32, device)
    c_map = empty((m, topk), torch.int32, device)
    offsets = empty((experts + 1,), torch.int32, device)
    scale_offsets = empty((experts + 1,), torch.int32, device)
    chosen.permute(a_map, c_map, offsets, scale_offsets, topk_ids)
    on_input = apply_router_weight_on_input
    row_weight = topk_weights.view(m) if on_input else None
    y = _experts(chosen, hidden, weights, activation, offsets, scale_offsets, a_map, row_weight)
    chosen.combine(out, y, None if on_input else topk_weights, c_map)


def _real(
    hidden: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    topk: int,
    renormalize: bool = False,
    activation: str = "silu",
    apply_router_weight_on_input: bool = False,
    backend: str = "",
) -> Tensor:
    check.activations("hidden", hidden)
    out = empty((hidden.shape[0], hidden.shape[1]), hidden.dtype, hidden.device)
    _real_out(
        hidden,
        router_logits,
        w13,
        w13_scale,
        w2,
        w2_scale,
        a1_gscale,
        w1_alphas,
        a2_gscale,
        w2_alphas,
        topk,
        renormalize,
        activation,
        apply_router_weight_on_input,
        backend,
        out=out,
    )
    return out


_WEIGHTS = (
    "Tensor w13, Tensor w13_scale, Tensor w2, Tensor w2_scale, "
    "Tensor a1_gscale, Tensor w1_alphas, Tensor a2_gscale, Tensor w2_alphas"
)
_ARGUMENTS = (
    f"Tensor hidden, Tensor router_logits, {_WEIGHTS}, int topk, bool renormalize=False, "
    'str activation="silu", bool apply_router_weight_on_input=False, str backend=""'
)
_OP = define(f"moe({_ARGUMENTS}) -> Tensor", _real, _fake)
_OUT = define(f"moe.out({_ARGUMENTS}, *, Tensor(a!) out) -> ()", _real_out, _fake_out)


def moe(
    hidden: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    topk: int,
    *,
    renormalize: bool = False,
    activation: str = "silu",
    apply_router_weight_on_input: bool = False,
    out: Tensor | None = None,
    backend: str = "",
) -> Tensor:
    """One gated MoE layer with NVFP4 weights and activations (vLLM: `cutlass_moe_fp4`).

    Args:
        hidden: bf16 or fp16 [M, H], H a multiple of 16, rows contiguous.
        router_logits: fp32, bf16 or fp16 [M, E].
        w13: uint8 [E, 2*I, H/2], gate rows first, then up rows.
        w13_scale: swizzled e4m3 of each expert, [E, P, Q].
        w2: uint8 [E, H, I/2].
        w2_scale: swizzled e4m3 of each expert.
        a1_gscale: fp32 [E], global scale of each expert's input.
        w1_alphas: fp32 [E], `1 / (a1_gscale * w13 global scale)`.
        a2_gscale: fp32 [E], global scale of each expert's activations.
        w2_alphas: fp32 [E].
        topk: experts a token, 1 to E.
        renormalize: divide the k weights by their sum.
        activation: "silu" or "swiglustep".
        apply_router_weight_on_input: (topk = 1) multiply hidden, rounded once, instead of the outputs.
        out: [M, H] that receives the result in the caller's order; overlaps no input.
        backend: by name; "" is the best available.

    Raises:
        UsageError: an argument does not fit (see the message); nothing has been touched.
    """
    tensors = (
        hidden, router_logits, w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas,
    )  # fmt: skip
    options = (topk, renormalize, activation, apply_router_weight_on_input, backend)
    if out is None:
        result: Tensor = _OP(*tensors, *options)
        return result
    _OUT(*tensors, *options, out=out)
    return out
