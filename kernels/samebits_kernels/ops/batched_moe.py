"""`batched_moe`: the masked format, [E, M_max, H] with a count for each expert.

Rows beyond an expert's count are never read and, in a supplied `out`, never written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.backends.registry import resolve
from samebits_kernels.errors import UsageError
from samebits_kernels.formats import ACTIVATION_DTYPES
from samebits_kernels.ops import arguments as check
from samebits_kernels.ops.library import define
from samebits_kernels.ops.moe import Weights, _check_layer, _check_values, _experts


def _check(hidden: Tensor, expert_num_tokens: Tensor, weights: Weights, activation: str) -> int:
    if hidden.dtype not in ACTIVATION_DTYPES or hidden.dim() != 3 or not hidden.is_contiguous():
        raise UsageError(
            "hidden in the batched-experts format",
            found=f"{hidden.dtype} {list(hidden.shape)}, strides {list(hidden.stride())}",
            allowed="bf16 or fp16 [E, M_max, H], contiguous",
        )
    h = check.activations("hidden", hidden.flatten(0, 1))
    experts = _check_layer(hidden, h, weights, activation)
    check.same_device(hidden=hidden, expert_num_tokens=expert_num_tokens)
    check.contiguous("expert_num_tokens", expert_num_tokens, torch.int32, (hidden.shape[0],))
    if hidden.shape[0] != experts:
        raise UsageError("hidden for every expert", found=f"{hidden.shape[0]} experts", allowed=str(experts))
    return experts


def _fake_out(
    hidden: Tensor,
    expert_num_tokens: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    activation: str = "silu",
    backend: str = "",
    *,
    out: Tensor,
) -> None:
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    _check(hidden, expert_num_tokens, weights, activation)
    check.contiguous("out", out, hidden.dtype, tuple(hidden.shape))
    check.same_device(hidden=hidden, out=out)


def _real_out(
    hidden: Tensor,
    expert_num_tokens: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    activation: str = "silu",
    backend: str = "",
    *,
    out: Tensor,
) -> None:
    chosen = resolve(backend, hidden.device.type)
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    experts = _check(hidden, expert_num_tokens, weights, activation)
    check.contiguous("out", out, hidden.dtype, tuple(hidden.shape))
    check.no_overlap(out, hidden=hidden, w13=w13, w2=w2, w13_scale=w13_scale, w2_scale=w2_scale)
    _check_values(weights)
    most = hidden.shape[1]
    check.rows("expert_num_tokens", expert_num_tokens, most + 1)
    counts = expert_num_tokens.long()
    zero = torch.zeros(1, dtype=torch.int64)
    offsets = torch.cat((zero, counts.cumsum(0))).to(torch.int32)
    scale_offsets = torch.cat((zero, ((counts + 127) // 128 * 128).cumsum(0))).to(torch.int32)
    valid = torch.arange(most).unsqueeze(0) < counts.unsqueeze(1)
    a_map = valid.flatten().nonzero().flatten()
    assert offsets.shape[0] == experts + 1
    y = _experts(
        chosen,
        hidden.view(-1, hidden.shape[2]),
        weights,
        activation,
        offsets,
        scale_offsets,
        a_map.to(torch.int32),
        None,
    )
    out.view(-1, hidden.shape[2])[a_map] = y


def _fake(
    hidden: Tensor,
    expert_num_tokens: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    activation: str = "silu",
    backend: str = "",
) -> Tensor:
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    _check(hidden, expert_num_tokens, weights, activation)
    return torch.empty_like(hidden)


def _real(
    hidden: Tensor,
    expert_num_tokens: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    activation: str = "silu",
    backend: str = "",
) -> Tensor:
    out = torch.zeros_like(hidden)  # rows beyond the counts: zero, the same in every run
    weights = (w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas)
    _real_out(hidden, expert_num_tokens, *weights, activation, backend, out=out)
    return out


_ARGUMENTS = (
    "Tensor hidden, Tensor expert_num_tokens, Tensor w13, Tensor w13_scale, Tensor w2, Tensor w2_scale, "
    "Tensor a1_gscale, Tensor w1_alphas, Tensor a2_gscale, Tensor w2_alphas, "
    'str activation="silu", str backend=""'
)
_OP = define(f"batched_moe({_ARGUMENTS}) -> Tensor", _real, _fake)
_OUT = define(f"batched_moe.out({_ARGUMENTS}, *, Tensor(a!) out) -> ()", _real_out, _fake_out)


def batched_moe(
    hidden: Tensor,
    expert_num_tokens: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    a1_gscale: Tensor,
    w1_alphas: Tensor,
    a2_gscale: Tensor,
    w2_alphas: Tensor,
    activation: str = "silu",
    *,
    out: Tensor | None = None,
    backend: str = "",
) -> Tensor:
    """The experts of a MoE layer on already dispatched tokens.

    Args:
        hidden: bf16 or fp16 [E, M_max, H], contiguous.
        expert_num_tokens: int32 [E], 0 to M_max; rows beyond are neither read nor written.
        w13: as for `moe`, like the seven tensors that follow.
        w13_scale: see `moe`.
        w2: see `moe`.
        w2_scale: see `moe`.
        a1_gscale: see `moe`.
        w1_alphas: see `moe`.
        a2_gscale: see `moe`.
        w2_alphas: see `moe`.
        activation: "silu" or "swiglustep".
        out: [E, M_max, H]; without it rows beyond the counts are zero.
        backend: by name; "" is the best available.
    """
    tensors = (
        hidden, expert_num_tokens, w13, w13_scale, w2, w2_scale, a1_gscale, w1_alphas, a2_gscale, w2_alphas,
    )  # fmt: skip
    if out is None:
        result: Tensor = _OP(*tensors, activation, backend)
        return result
    _OUT(*tensors, activation, backend, out=out)
    return out
