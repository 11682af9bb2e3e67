"""Operators that make NVFP4: `quantise`, `activation_and_mul`, `activation_quantise`.

NaN and Inf, the same on every backend, and no other row changes:
- a block of 16 with a NaN gets the scale byte 0x7F (NaN) and sixteen codes 7, so its whole output row is NaN;
- Inf saturates: its block gets the largest scale, 448, the Inf becomes +-6 and the others are rounded on it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.backends.registry import resolve
from samebits_kernels.formats import BLOCK
from samebits_kernels.layout import padded_shape
from samebits_kernels.ops import arguments as check
from samebits_kernels.ops.allocate import empty
from samebits_kernels.ops.library import define


def _outputs(rows: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    q = empty((rows, k // 2), torch.uint8, device)
    return q, empty(padded_shape(rows, k // BLOCK), torch.float8_e4m3fn, device)


def _quantise_fake(input: Tensor, input_global_scale: Tensor, backend: str = "") -> tuple[Tensor, Tensor]:
    check.same_device(input=input, input_global_scale=input_global_scale)
    k = check.activations("input", input)
    check.scalar("input_global_scale", input_global_scale)
    return _outputs(input.shape[0], k, input.device)


def _quantise(input: Tensor, input_global_scale: Tensor, backend: str = "") -> tuple[Tensor, Tensor]:
    chosen = resolve(backend, input.device.type)
    check.same_device(input=input, input_global_scale=input_global_scale)
    k = check.activations("input", input)
    check.scalar("input_global_scale", input_global_scale)
    check.finite_positive("input_global_scale", input_global_scale)
    q, q_scale = _outputs(input.shape[0], k, input.device)
    chosen.quantise(q, q_scale, input, input_global_scale)
    return q, q_scale


def _activation_fake(input: Tensor, activation: str, backend: str = "") -> Tensor:
    check.activation(activation)
    k = check.activations("input", input, halves=2)
    return empty((input.shape[0], k), input.dtype, input.device)


def _activation(input: Tensor, activation: str, backend: str = "") -> Tensor:
    chosen = resolve(backend, input.device.type)
    out = _activation_fake(input, activation)
    chosen.activation(out, input, activation)
    return out


def _activation_quantise_fake(
    input: Tensor, input_global_scale: Tensor, activation: str, backend: str = ""
) -> tuple[Tensor, Tensor]:
    check.same_device(input=input, input_global_scale=input_global_scale)
    check.activation(activation)
    k = check.activations("input", input, halves=2)
    check.scalar("input_global_scale", input_global_scale)
    return _outputs(input.shape[0], k, input.device)


def _activation_quantise(
    input: Tensor, input_global_scale: Tensor, activation: str, backend: str = ""
) -> tuple[Tensor, Tensor]:
    chosen = resolve(backend, input.device.type)
    q, q_scale = _activation_quantise_fake(input, input_global_scale, activation)
    check.finite_positive("input_global_scale", input_global_scale)
    chosen.activation_quantise(q, q_scale, input, input_global_scale, activation)
    return q, q_scale


_QUANTISE = define(
    'quantise(Tensor input, Tensor input_global_scale, str backend="") -> (Tensor, Tensor)',
    _quantise,
    _quantise_fake,
)
_ACTIVATION = define(
    'activation_and_mul(Tensor input, str activation, str backend="") -> Tensor', _activation, _activation_fake
)
_ACTIVATION_QUANTISE = define(
    "activation_quantise(Tensor input, Tensor input_global_scale, str activation, "
    'str backend="") -> (Tensor, Tensor)',
    _activation_quantise,
    _activation_quantise_fake,
)


def quantise(input: Tensor, input_global_scale: Tensor, *, backend: str = "") -> tuple[Tensor, Tensor]:
    """Rows to NVFP4 (vLLM: `scaled_fp4_quant`).

    Args:
        input: bf16 or fp16 [M, K], K a multiple of 16, rows contiguous (any row stride).
        input_global_scale: fp32 [1], `448 * 6 / amax` of the calibration data.
        backend: by name; "" is the best available.

    Returns:
        uint8 [M, K/2] and e4m3 [ceil(M/128)*128, ceil(K/64)*4] in the 128x4 swizzled layout, padding zero.

    Raises:
        UsageError: an argument does not fit (see the message); nothing has been touched.
    """
    result: tuple[Tensor, Tensor] = _QUANTISE(input, input_global_scale, backend)
    return result


def activation_and_mul(input: Tensor, activation: str = "silu", *, backend: str = "") -> Tensor:
    """[R, 2*I] (gate, then up) -> [R, I]: `silu(g)*u`, or `min(silu(g), 7) * clamp(u, -7, 7)` ("swiglustep")."""
    result: Tensor = _ACTIVATION(input, activation, backend)
    return result


def activation_quantise(
    input: Tensor, input_global_scale: Tensor, activation: str = "silu", *, backend: str = ""
) -> tuple[Tensor, Tensor]:
    """`quantise(activation_and_mul(input))` in one pass, same bits (vLLM: `silu_and_mul_nvfp4_quant`)."""
    result: tuple[Tensor, Tensor] = _ACTIVATION_QUANTISE(input, input_global_scale, activation, backend)
    return result
