"""Outputs and workspaces, and the switch that poisons them.

A kernel that leaves part of an output unwritten, or reads workspace before writing it, passes by luck when the
allocator hands out zeros. Under `poisoned(byte)` every allocation of these ops starts filled with that byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

_byte: int | None = None


@contextlib.contextmanager
def poisoned(byte: int = 0xFF) -> Iterator[None]:
    """Fill outputs and workspaces with `byte` before each kernel runs (0xFF is NaN in every format here)."""
    global _byte  # noqa: PLW0603 - a debugging switch, process-wide on purpose
    before, _byte = _byte, byte
    try:
        yield
    finally:
        _byte = before


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`torch.empty`, poisoned if asked."""
    out = torch.empty(shape, dtype=dtype, device=device)
    if _byte is not None:
        out.view(torch.uint8).fill_(_byte)
    return out
