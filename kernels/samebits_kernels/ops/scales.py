"""Operators on block scales: `swizzle_scales`, `unswizzle_scales`."""

from __future__ import annotations

from torch import Tensor

from samebits_kernels import layout
from samebits_kernels.errors import UsageError
from samebits_kernels.ops import arguments as check
from samebits_kernels.ops.library import define


def _swizzle(scales: Tensor) -> Tensor:
    if scales.dtype not in check.SCALE_DTYPES or scales.dim() not in {2, 3}:
        raise UsageError(
            "scales to swizzle",
            found=f"{scales.dtype} {list(scales.shape)}",
            allowed="torch.float8_e4m3fn [R, K/16] or [E, R, K/16]",
        )
    return layout.swizzle(scales)


def _unswizzle(buffer: Tensor, rows: int, columns: int) -> Tensor:
    if buffer.dtype not in check.SCALE_DTYPES or buffer.dim() not in {2, 3}:
        raise UsageError(
            "a buffer of swizzled scales",
            found=f"{buffer.dtype} {list(buffer.shape)}",
            allowed="torch.float8_e4m3fn [P, Q] or [E, P, Q]",
        )
    return layout.unswizzle(buffer, rows, columns)


_SWIZZLE = define("swizzle_scales(Tensor scales) -> Tensor", _swizzle, _swizzle)
_UNSWIZZLE = define("unswizzle_scales(Tensor buffer, int rows, int columns) -> Tensor", _unswizzle, _unswizzle)


def swizzle_scales(scales: Tensor) -> Tensor:
    """Plain e4m3 [R, K/16] (or [E, R, K/16]) -> the padded 128x4 swizzled buffer; padding is zero."""
    result: Tensor = _SWIZZLE(scales)
    return result


def unswizzle_scales(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """The swizzled buffer -> plain e4m3 [rows, columns], without the padding."""
    result: Tensor = _UNSWIZZLE(buffer, rows, columns)
    return result
