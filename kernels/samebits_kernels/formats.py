"""NVFP4 data: e2m1 values, two a byte, with one e4m3 scale for every 16 consecutive elements along K.

Every product e2m1 x e4m3 is exact in fp32 (it has at most 6 significant bits), so `dequantise` is exact.
The even index sits in the low nibble.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.errors import UsageError
from samebits_kernels.layout import unswizzle

BLOCK = 16
"""Elements that share a scale."""
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""Value of each 4-bit code."""
E2M1_MAX = 6.0
E4M3_MAX = 448.0
E4M3_NAN = 0x7F
"""The scale byte of a block that held a NaN."""
NAN_CODE = 0x7
"""The code of every element of such a block (what the hardware conversion gives for NaN)."""
ACTIVATION_DTYPES = (torch.bfloat16, torch.float16)
NAN_BITS = {torch.bfloat16: 0x7FC0, torch.float16: 0x7E00, torch.float32: 0x7FC00000}
"""The one NaN that any backend writes: conversions in libraries give others in vector bodies than in tails."""


def pack(codes: Tensor) -> Tensor:
    """Two codes a byte: uint8 [..., K] with values 0..15 -> uint8 [..., K/2].

    Raises:
        UsageError: not uint8, or K odd.
    """
    if codes.dtype != torch.uint8 or codes.shape[-1] % 2:
        raise UsageError(
            "pack takes one code a byte",
            found=f"{codes.dtype} {list(codes.shape)}",
            allowed="uint8 [..., K], K even",
        )
    return (codes[..., 0::2] & 15) | (codes[..., 1::2] << 4)


def unpack(data: Tensor) -> Tensor:
    """One code a byte: uint8 [..., K/2] -> uint8 [..., K]."""
    return torch.stack((data & 15, data >> 4), dim=-1).flatten(-2)


def dequantise(data: Tensor, block_scale: Tensor) -> Tensor:
    """The exact values, without the global scale: uint8 [R, K/2], swizzled e4m3 -> fp32 [R, K].

    Divide by the global scale for the values that were quantised.
    """
    rows, k = data.shape[0], data.shape[1] * 2
    scales = unswizzle(block_scale, rows, k // BLOCK).float()
    values = torch.tensor(E2M1, device=data.device)[unpack(data).int()]
    return values * scales.repeat_interleave(BLOCK, dim=1)


def global_scale_for(x: Tensor) -> Tensor:
    """`448 * 6 / amax(x)` as fp32 [1], the usual convention.

    For weights and calibration only: computed from the batch at hand it makes every row depend on its neighbours.
    """
    return (E4M3_MAX * E2M1_MAX / x.float().abs().amax().clamp(min=1e-12)).reshape(1)
