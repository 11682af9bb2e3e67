"""The 128x4 swizzle of block scales that Blackwell's block-scaled MMA reads.

Scales of an operand with R rows and C = K/16 columns live in a buffer padded to P = ceil(R/128)*128 rows and
Q = ceil(C/4)*4 columns, at
`offset(r, c) = ((r // 128) * (Q / 4) + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.errors import UsageError

ROWS = 128
COLUMNS = 4


def padded_shape(rows: int, columns: int) -> tuple[int, int]:
    """Shape of the buffer that holds the scales of `rows` x `columns`."""
    return -(-rows // ROWS) * ROWS, -(-columns // COLUMNS) * COLUMNS


def offset(row: int, column: int, columns: int) -> int:
    """Byte offset of scale (row, column) in the buffer of an operand with `columns` scale columns."""
    return (
        ((row // 128) * -(-columns // 4) + column // 4) * 512
        + (row % 32) * 16
        + ((row % 128) // 32) * 4
        + column % 4
    )


def swizzle(scales: Tensor) -> Tensor:
    """Plain e4m3 [R, C] -> swizzled e4m3 [P, Q], padding zero. Leading dimensions (experts) are kept."""
    *lead, rows, columns = scales.shape
    p, q = padded_shape(rows, columns)
    plain = torch.zeros(*lead, p, q, dtype=torch.uint8, device=scales.device)
    plain[..., :rows, :columns] = scales.view(torch.uint8)
    tiles = plain.view(*lead, p // 128, 4, 32, q // 4, 4).transpose(-4, -2)  # [.., P/128, Q/4, 32, 4, 4]
    return tiles.reshape(*lead, p, q).view(torch.float8_e4m3fn)


def unswizzle(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """Swizzled e4m3 [P, Q] -> plain e4m3 [rows, columns]; padding is dropped.

    Raises:
        UsageError: the buffer does not have the padded shape of `rows` x `columns`.
    """
    *lead, p, q = buffer.shape
    if (p, q) != padded_shape(rows, columns):
        raise UsageError(
            f"scales of {rows} x {columns} blocks",
            found=f"a buffer of {p} x {q}",
            allowed="{} x {}".format(*padded_shape(rows, columns)),
            fix="samebits_kernels.swizzle_scales turns plain scales into this buffer",
        )
    tiles = buffer.view(torch.uint8).reshape(*lead, p // 128, q // 4, 32, 4, 4).transpose(-4, -2)
    plain = tiles.reshape(*lead, p, q)[..., :rows, :columns]
    return plain.contiguous().view(torch.float8_e4m3fn)
