"""Allocations that hold poison everywhere but in the one tensor that lies in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ALIGNMENT = 256
"""Bytes. Guards are rounded up to it, so that a guarded tensor starts where a fresh allocation could."""
RANDOM = -1
"""Instead of a byte: seeded random bytes."""
RANDOM_PERIOD = 65_521
"""Random bytes repeat after this many: a prime, so that no two rows get the same."""
BYTES = (0x00, 0xFF, 0x7F, RANDOM)
"""Zero hides, 0xFF is NaN in every float format and -1 in every integer, 0x7F is NaN or huge, random is both."""


def word(byte: int) -> str:
    """A poison as it is named in messages."""
    return "random bytes" if byte == RANDOM else f"0x{byte:02X}"


def pattern(nbytes: int, byte: int, device: torch.device) -> Tensor:
    """uint8 [nbytes] on `device`."""
    import torch

    if byte != RANDOM:
        return torch.full((nbytes,), byte, dtype=torch.uint8, device=device)
    generator = torch.Generator().manual_seed(0x7015)
    size = min(nbytes, RANDOM_PERIOD)
    some = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator).to(device)
    return some.repeat(math.ceil(nbytes / max(1, size)))[:nbytes]


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def guard(row: int, itemsize: int, rows: int = 128, most: int = 32 << 20) -> int:
    """Elements of a guard of `rows` rows of `row` elements (fewer where that takes more than `most` bytes)."""
    wanted = max(1, min(rows, most // max(1, row * itemsize))) * row * itemsize
    return math.ceil(wanted / ALIGNMENT) * ALIGNMENT // itemsize


class Block:
    """One allocation with a tensor inside.

    Args:
        shape: of the tensor.
        dtype: of the tensor.
        device: of the tensor.
        stride: in elements; None: contiguous.
        before: elements in front of the tensor's first.
        after: elements behind its last.
        byte: the poison, one of `BYTES` or any other byte.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        stride: Sequence[int] | None = None,
        before: int = 0,
        after: int = 0,
        byte: int = 0xFF,
    ) -> None:
        self.shape = tuple(shape)
        self.stride = tuple(stride) if stride is not None else contiguous_stride(self.shape)
        self.before, self.byte, self._size = before, byte, dtype.itemsize
        extent = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        self._pattern = pattern((before + extent + after) * self._size, byte, device)
        self.raw = self._pattern.clone()
        self.tensor: Tensor = self.raw.view(dtype).as_strided(self.shape, self.stride, before)

    def _inside(self, raw: Tensor) -> Tensor:
        """The bytes of the tensor, [*shape, itemsize]: no dtype's copy can touch a payload on its way."""
        stride = (*(s * self._size for s in self.stride), 1)
        return raw.as_strided((*self.shape, self._size), stride, self.before * self._size)

    def write(self, values: Tensor) -> Tensor:
        """Put values of the same shape and dtype in; returns the tensor."""
        import torch

        source = values.detach().contiguous().reshape(-1).view(torch.uint8)
        self._inside(self.raw).copy_(source.reshape(*self.shape, self._size))
        return self.tensor

    def touched(self) -> int:
        """Bytes outside the tensor that are no longer poison. Synchronises."""
        now = self.raw.clone()
        self._inside(now).copy_(self._inside(self._pattern))
        return int((now != self._pattern).sum())

    def unwritten(self) -> Tensor:
        """[M, E] bool: which elements of the tensor still hold the poison."""
        same = (self._inside(self.raw) == self._inside(self._pattern)).all(dim=-1)
        return same.reshape(self.shape[0], -1)


def guarded(values: Tensor, byte: int) -> Block:
    """The same rows, contiguous and aligned as a fresh allocation, with poisoned rows in front and behind."""
    row = max(1, math.prod(values.shape[1:]))
    rows = guard(row, values.element_size())
    block = Block(values.shape, values.dtype, values.device, before=rows, after=rows, byte=byte)
    block.write(values)
    return block
