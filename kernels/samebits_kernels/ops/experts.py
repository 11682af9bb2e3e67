"""Operators that a MoE layer is made of: `route`, `permute`, `experts_quantise`, `grouped_mm`, `combine`.

M tokens, k choices a token, R = M*k slots: rows sorted by expert, stable in token order.
`expert_offsets` int32 [E+1]: first slot of each expert. `blockscale_offsets` int32 [E+1]: the row of the scale
buffer at which its scales start, a multiple of 128.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.backends.registry import resolve
from samebits_kernels.errors import UsageError
from samebits_kernels.formats import ACTIVATION_DTYPES, BLOCK
from samebits_kernels.layout import padded_shape
from samebits_kernels.ops import arguments as check
from samebits_kernels.ops.allocate import empty
from samebits_kernels.ops.library import define

LOGITS = (torch.float32, *ACTIVATION_DTYPES)


def scale_capacity(slots: int, experts: int) -> int:
    """Rows that a scale buffer needs in the worst routing: each busy expert wastes up to 127."""
    return padded_shape(slots + min(slots, experts) * 127, 4)[0]


def _route_fake(
    router_logits: Tensor, topk: int, renormalize: bool = False, backend: str = ""
) -> tuple[Tensor, Tensor]:
    check.matrix("router_logits", router_logits, LOGITS)
    check.topk(topk, router_logits.shape[1])
    shape, device = (router_logits.shape[0], topk), router_logits.device
    return empty(shape, torch.float32, device), empty(shape, torch.int32, device)


def _route(
    router_logits: Tensor, topk: int, renormalize: bool = False, backend: str = ""
) -> tuple[Tensor, Tensor]:
    chosen = resolve(backend, router_logits.device.type)
    weights, ids = _route_fake(router_logits, topk, renormalize)
    chosen.route(weights, ids, router_logits, renormalize)
    return weights, ids


def _permute_fake(topk_ids: Tensor, num_experts: int, backend: str = "") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check.matrix("topk_ids", topk_ids, (torch.int32,))
    if num_experts < 1 or topk_ids.shape[1] < 1:
        raise UsageError(
            "experts to permute by",
            found=f"{num_experts} experts, topk_ids {list(topk_ids.shape)}",
            allowed="at least one of each",
        )
    m, k = topk_ids.shape
    device = topk_ids.device
    return (
        empty((m * k,), torch.int32, device),
        empty((m, k), torch.int32, device),
        empty((num_experts + 1,), torch.int32, device),
        empty((num_experts + 1,), torch.int32, device),
    )


def _permute(topk_ids: Tensor, num_experts: int, backend: str = "") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    chosen = resolve(backend, topk_ids.device.type)
    results = _permute_fake(topk_ids, num_experts)
    check.expert_ids(topk_ids, num_experts)
    chosen.permute(*results, topk_ids.contiguous())
    return results


def _offsets(expert_offsets: Tensor, blockscale_offsets: Tensor, experts: int) -> None:
    check.contiguous("expert_offsets", expert_offsets, torch.int32, (experts + 1,))
    check.contiguous("blockscale_offsets", blockscale_offsets, torch.int32, (experts + 1,))


def _offset_values(expert_offsets: Tensor, blockscale_offsets: Tensor, slots: int, scale_rows: int) -> None:
    check.ascending("expert_offsets", expert_offsets, slots)
    check.ascending("blockscale_offsets", blockscale_offsets, step=128)
    need = (expert_offsets[1:] - expert_offsets[:-1]) > (blockscale_offsets[1:] - blockscale_offsets[:-1])
    if bool(need.any()) or int(blockscale_offsets[-1]) > scale_rows:
        raise UsageError(
            "blockscale_offsets leave room for every expert's rows",
            found=str(blockscale_offsets.tolist()[:8]),
            allowed=f"each expert's rows rounded up to 128, at most {scale_rows} in all",
            fix="take the offsets that samebits_kernels.permute returns",
        )


def _experts_quantise_fake(
    input: Tensor,
    input_global_scale: Tensor,
    expert_offsets: Tensor,
    blockscale_offsets: Tensor,
    a_map: Tensor | None = None,
    backend: str = "",
) -> tuple[Tensor, Tensor]:
    check.same_device(
        input=input,
        input_global_scale=input_global_scale,
        expert_offsets=expert_offsets,
        blockscale_offsets=blockscale_offsets,
        a_map=a_map,
    )
    k = check.activations("input", input)
    experts = input_global_scale.shape[0] if input_global_scale.dim() == 1 else 0
    check.contiguous("input_global_scale", input_global_scale, torch.float32, (max(experts, 1),))
    _offsets(expert_offsets, blockscale_offsets, experts)
    slots = input.shape[0]
    if a_map is not None:
        slots = a_map.numel()
        check.contiguous("a_map", a_map, torch.int32, (slots,))
    q = empty((slots, k // 2), torch.uint8, input.device)
    shape = scale_capacity(slots, experts), padded_shape(1, k // BLOCK)[1]
    return q, empty(shape, torch.float8_e4m3fn, input.device)


def _experts_quantise(
    input: Tensor,
    input_global_scale: Tensor,
    expert_offsets: Tensor,
    blockscale_offsets: Tensor,
    a_map: Tensor | None = None,
    backend: str = "",
) -> tuple[Tensor, Tensor]:
    chosen = resolve(backend, input.device.type)
    q, q_scale = _experts_quantise_fake(input, input_global_scale, expert_offsets, blockscale_offsets, a_map)
    check.finite_positive("input_global_scale", input_global_scale)
    _offset_values(expert_offsets, blockscale_offsets, q.shape[0], q_scale.shape[0])
    if a_map is not None:
        check.rows("a_map", a_map, input.shape[0])
    chosen.experts_quantise(q, q_scale, input, input_global_scale, expert_offsets, blockscale_offsets, a_map, None)
    return q, q_scale


def _grouped_fake(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alphas: Tensor,
    expert_offsets: Tensor,
    blockscale_offsets: Tensor,
    out_dtype: torch.dtype,
    backend: str = "",
) -> Tensor:
    check.same_device(
        a=a,
        b=b,
        block_scale_a=block_scale_a,
        block_scale_b=block_scale_b,
        alphas=alphas,
        expert_offsets=expert_offsets,
        blockscale_offsets=blockscale_offsets,
    )
    check.out_dtype(out_dtype)
    k = check.packed("a", a)
    n = check.expert_weights("b", b, block_scale_b, k)
    check.contiguous("alphas", alphas, torch.float32, (b.shape[0],))
    _offsets(expert_offsets, blockscale_offsets, b.shape[0])
    rows = block_scale_a.shape[0] if block_scale_a.dim() == 2 else 0
    check.scales("block_scale_a", block_scale_a, rows // 128 * 128, k)
    return empty((a.shape[0], n), out_dtype, a.device)


def _grouped(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alphas: Tensor,
    expert_offsets: Tensor,
    blockscale_offsets: Tensor,
    out_dtype: torch.dtype,
    backend: str = "",
) -> Tensor:
    chosen = resolve(backend, a.device.type)
    d = _grouped_fake(a, b, block_scale_a, block_scale_b, alphas, expert_offsets, blockscale_offsets, out_dtype)
    _offset_values(expert_offsets, blockscale_offsets, a.shape[0], block_scale_a.shape[0])
    chosen.grouped_mm(d, a, b, block_scale_a, block_scale_b, alphas, expert_offsets, blockscale_offsets)
    return d


def _combine_fake(input: Tensor, topk_weights: Tensor, c_map: Tensor, backend: str = "") -> Tensor:
    check.same_device(input=input, topk_weights=topk_weights, c_map=c_map)
    check.matrix("input", input, ACTIVATION_DTYPES)
    check.matrix("c_map", c_map, (torch.int32,))
    check.contiguous("topk_weights", topk_weights, torch.float32, tuple(c_map.shape))
    if c_map.shape[1] < 1:
        raise UsageError("choices to combine", found=f"c_map {list(c_map.shape)}", allowed="at least one a token")
    return empty((c_map.shape[0], input.shape[1]), input.dtype, input.device)


def _combine(input: Tensor, topk_weights: Tensor, c_map: Tensor, backend: str = "") -> Tensor:
    chosen = resolve(backend, input.device.type)
    out = _combine_fake(input, topk_weights, c_map)
    check.rows("c_map", c_map, input.shape[0])
    chosen.combine(out, input, topk_weights, c_map.contiguous())
    return out


_ROUTE = define(
    'route(Tensor router_logits, int topk, bool renormalize=False, str backend="") -> (Tensor, Tensor)',
    _route,
    _route_fake,
)
_PERMUTE = define(
    'permute(Tensor topk_ids, int num_experts, str backend="") -> (Tensor, Tensor, Tensor, Tensor)',
    _permute,
    _permute_fake,
)
_EXPERTS_QUANTISE = define(
    "experts_quantise(Tensor input, Tensor input_global_scale, Tensor expert_offsets, Tensor blockscale_offsets, "
    'Tensor? a_map=None, str backend="") -> (Tensor, Tensor)',
    _experts_quantise,
    _experts_quantise_fake,
)
_GROUPED = define(
    "grouped_mm(Tensor a, Tensor b, Tensor block_scale_a, Tensor block_scale_b, Tensor alphas, "
    'Tensor expert_offsets, Tensor blockscale_offsets, ScalarType out_dtype, str backend="") -> Tensor',
    _grouped,
    _grouped_fake,
)
_COMBINE = define(
    'combine(Tensor input, Tensor topk_weights, Tensor c_map, str backend="") -> Tensor', _combine, _combine_fake
)


def route(
    router_logits: Tensor, topk: int, *, renormalize: bool = False, backend: str = ""
) -> tuple[Tensor, Tensor]:
    """The k experts of each token: fp32 softmax, by descending weight, ties to the lower id.

    Args:
        router_logits: fp32, bf16 or fp16 [M, E].
        topk: 1 to E.
        renormalize: divide the k weights by their sum.
        backend: by name; "" is the best available.

    Returns:
        topk_weights fp32 [M, k] and topk_ids int32 [M, k]. A NaN or +Inf among a row's logits gives NaN
        weights and the experts 0..k-1.
    """
    result: tuple[Tensor, Tensor] = _ROUTE(router_logits, topk, renormalize, backend)
    return result


def permute(topk_ids: Tensor, num_experts: int, *, backend: str = "") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sort the M*k choices by expert, stable in token order.

    Returns:
        a_map int32 [M*k]: the token of each slot; c_map int32 [M, k]: the slot of each choice;
        expert_offsets and blockscale_offsets int32 [E+1].

    Raises:
        UsageError: an id outside 0..E-1.
    """
    result: tuple[Tensor, Tensor, Tensor, Tensor] = _PERMUTE(topk_ids, num_experts, backend)
    return result


def experts_quantise(
    input: Tensor,
    input_global_scale: Tensor,
    expert_offsets: Tensor,
    blockscale_offsets: Tensor,
    a_map: Tensor | None = None,
    *,
    backend: str = "",
) -> tuple[Tensor, Tensor]:
    """Quantise each slot with its expert's global scale (vLLM: `scaled_fp4_experts_quant`).

    Args:
        input: bf16 or fp16 [rows, K]; slot r takes row `a_map[r]`, or row r without a_map.
        input_global_scale: fp32 [E].
        expert_offsets: int32 [E+1].
        blockscale_offsets: int32 [E+1].
        a_map: int32 [R].
        backend: by name; "" is the best available.

    Returns:
        uint8 [R, K/2] and one swizzled scale buffer; rows that belong to no slot are zero.
    """
    result: tuple[Tensor, Tensor] = _EXPERTS_QUANTISE(
        input, input_global_scale, expert_offsets, blockscale_offsets, a_map, backend
    )
    return result


def grouped_mm(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alphas: Tensor,
    expert_offsets: Tensor,
    blockscale_offsets: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    backend: str = "",
) -> Tensor:
    """Each slot times its expert's weights (vLLM: `cutlass_fp4_group_mm`): [R, K/2] x [E, N, K/2] -> [R, N].

    Each output element has the bits of `scaled_mm` on that expert alone. `alphas` is fp32 [E].
    """
    result: Tensor = _GROUPED(
        a, b, block_scale_a, block_scale_b, alphas, expert_offsets, blockscale_offsets, out_dtype, backend
    )
    return result


def combine(input: Tensor, topk_weights: Tensor, c_map: Tensor, *, backend: str = "") -> Tensor:
    """`out[m] = sum over j of topk_weights[m, j] * input[c_map[m, j]]`: fp32, j ascending from its first product,
    each product and each sum rounded (not fused), one rounding to the input's dtype."""
    result: Tensor = _COMBINE(input, topk_weights, c_map, backend)
    return result
