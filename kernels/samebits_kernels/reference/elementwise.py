"""fp32 functions whose bits depend on nothing but the element.

`torch.exp`, `torch.softmax` and `silu` take another path in the tail of a vector than in its body, so a row's
bits change with its neighbours (public fault P05). Here everything is +, -, *, / and comparisons, each rounded
once by IEEE rules and never fused. csrc/cpu/elementwise.h is the same text in C++; tests hold the two together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.formats import NAN_BITS

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693359375  # 9 bits, so n * LN2_HIGH is exact
LN2_LOW = -2.1219444005469058e-4
TAYLOR = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5)  # |r| <= ln(2)/2: the next term is below 2^-27


def exp(x: Tensor) -> Tensor:
    """e^x, fp32 to fp32, within 2 ulp; NaN stays NaN, overflow is Inf, underflow is gradual."""
    x = x.clamp(-104.0, 89.0)
    n = torch.round(x * LOG2_E)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    q = torch.full_like(r, TAYLOR[0])
    for coefficient in TAYLOR[1:]:
        q = q * r + coefficient
    p = (q * (r * r) + r) + 1.0
    # 2^n in two factors: n reaches -150 and 128, beyond one normal float's exponent.
    whole = torch.nan_to_num(n, nan=0.0).to(torch.int32)
    half = whole >> 1
    return p * _power_of_two(half) * _power_of_two(whole - half)


def _power_of_two(n: Tensor) -> Tensor:
    return ((n + 127) << 23).view(torch.float32)


def silu(x: Tensor) -> Tensor:
    """x / (1 + e^-x) in fp32; -Inf gives NaN, as IEEE does for this expression."""
    return x / (exp(-x) + 1.0)


def gated(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """`silu(g) * u` or `min(silu(g), 7) * clamp(u, -7, 7)` (the gate has no lower clamp), fp32."""
    if activation == "silu":
        return silu(gate) * up
    return silu(gate).clamp(max=7.0) * up.clamp(-7.0, 7.0)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """fp32 -> dtype, to nearest even, overflow to Inf, every NaN with the same bits."""
    y = x.to(dtype)
    integer = torch.int32 if dtype == torch.float32 else torch.int16
    nan = torch.full((), NAN_BITS[dtype], dtype=integer, device=x.device)
    return torch.where(x.isnan(), nan, y.view(integer)).view(dtype)
