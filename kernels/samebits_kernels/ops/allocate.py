"""Outputs and workspaces, and the switch that poisons them.

A kernel that leaves part of an output unwritten, or reads workspace before writing it, passes by luck when the
allocator hands out zeros. Under `poisoned(byte)` every allocation of these ops starts filled with that byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

_byte: int | None = None
_listeners: list[Callable[[int | None], object]] = []


def on_poison(listener: Callable[[int | None], object]) -> None:
    """Have a native library told which byte to fill its own workspaces with (None: none), now and on change."""
    _listeners.append(listener)
    listener(_byte)


def _set(byte: int | None) -> None:
    global _byte  # noqa: PLW0603 - a debugging switch, process-wide on purpose
    _byte = byte
    for listener in _listeners:
        listener(byte)


@contextlib.contextmanager
def poisoned(byte: int = 0xFF) -> Iterator[None]:
    """Fill outputs and workspaces with `byte` before each kernel runs (0xFF is NaN in every format here)."""
    before = _byte
    _set(byte)
    try:
        yield
    finally:
        _set(before)


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`torch.empty`, poisoned if asked."""
    out = torch.empty(shape, dtype=dtype, device=device)
    if _byte is not None:
        out.view(torch.uint8).fill_(_byte)
    return out
