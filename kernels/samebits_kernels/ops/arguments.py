"""Argument checks, shared by the real and the fake implementation of each operator.

Each says what was asked, what was found, what is allowed and what to do, before any memory is touched.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from samebits_kernels.errors import UsageError
from samebits_kernels.formats import ACTIVATION_DTYPES, BLOCK
from samebits_kernels.layout import padded_shape

E4M3 = torch.float8_e4m3fn
SCALE_DTYPES = (E4M3, torch.uint8)
ACTIVATIONS = ("silu", "swiglustep")


def _describe(t: Tensor) -> str:
    return f"{t.dtype} {list(t.shape)}, strides {list(t.stride())}, on {t.device}"


def same_device(**tensors: Tensor | None) -> None:
    """All on one device."""
    first: Tensor | None = None
    for name, t in tensors.items():
        if t is None:
            continue
        if first is None:
            first = t
        elif t.device != first.device:
            raise UsageError(
                "all tensors of a call on one device",
                found=f"{name} on {t.device}, others on {first.device}",
                fix=f"{name}.to({str(first.device)!r})",
            )


def matrix(name: str, t: Tensor, dtypes: tuple[torch.dtype, ...], columns: int | None = None) -> None:
    """2-D, rows of unit stride that do not overlap; any row stride and storage offset."""
    if t.dtype not in dtypes:
        raise UsageError(f"{name} has a dtype", found=str(t.dtype), allowed=" or ".join(map(str, dtypes)))
    if t.dim() != 2 or (columns is not None and t.shape[1] != columns):
        raise UsageError(
            f"{name} is a matrix",
            found=f"shape {list(t.shape)}",
            allowed="2 dimensions" if columns is None else f"[rows, {columns}]",
        )
    if (t.shape[1] > 1 and t.stride(1) != 1) or (t.shape[0] > 1 and t.stride(0) < t.shape[1]):
        raise UsageError(
            f"{name} has contiguous rows",
            found=f"strides {list(t.stride())}",
            allowed="unit stride along the last dimension, rows that do not overlap",
            fix=f"{name}.contiguous()",
        )


def activations(name: str, x: Tensor, *, halves: int = 1) -> int:
    """bf16 or fp16 [M, halves*K] with K a positive multiple of 16; returns K."""
    matrix(name, x, ACTIVATION_DTYPES)
    k = x.shape[1] // halves
    if x.shape[1] % halves or k == 0 or k % BLOCK:
        raise UsageError(
            f"{name} is quantised in blocks of {BLOCK}",
            found=f"{x.shape[1]} columns" + (f" for {halves} halves" if halves > 1 else ""),
            allowed=f"a positive multiple of {BLOCK * halves}",
            fix="pad K with zeros",
        )
    return k


def packed(name: str, t: Tensor, k: int | None = None) -> int:
    """uint8 [R, K/2]; returns K."""
    matrix(name, t, (torch.uint8,))
    found = t.shape[1] * 2
    if found == 0 or found % BLOCK or (k is not None and found != k):
        raise UsageError(
            f"{name} holds two e2m1 values a byte",
            found=f"{t.shape[1]} bytes a row (K = {found})",
            allowed=f"K = {k}" if k is not None else f"K a positive multiple of {BLOCK}",
            fix="pad K with zeros" if k is None else "quantise both operands with the same K",
        )
    return found


def contiguous(name: str, t: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Exactly this dtype and shape, contiguous."""
    if t.dtype != dtype or tuple(t.shape) != shape or not t.is_contiguous():
        raise UsageError(name, found=_describe(t), allowed=f"{dtype} {list(shape)}, contiguous")


def scales(name: str, t: Tensor, rows: int, k: int, lead: tuple[int, ...] = ()) -> None:
    """Swizzled e4m3 (or its bytes as uint8) of `rows` x K/16 blocks."""
    want = (*lead, *padded_shape(rows, k // BLOCK))
    if t.dtype in SCALE_DTYPES and tuple(t.shape) == want and t.is_contiguous():
        return
    plain = tuple(t.shape) == (*lead, rows, k // BLOCK)
    raise UsageError(
        f"{name}: e4m3 block scales in the 128x4 swizzled layout",
        found=_describe(t) + (" (the plain layout)" if plain else ""),
        allowed=f"{E4M3} {list(want)}, contiguous",
        fix=f"samebits_kernels.swizzle_scales({name})" if plain else "take the buffer that quantise returns",
    )


def scalar(name: str, t: Tensor) -> None:
    """fp32 with one element."""
    if t.dtype != torch.float32 or t.numel() != 1:
        raise UsageError(f"{name} is one fp32 number in a tensor", found=_describe(t), allowed="torch.float32 [1]")


def out_dtype(dtype: torch.dtype) -> None:
    """bf16 or fp16."""
    if dtype not in ACTIVATION_DTYPES:
        raise UsageError("an output dtype", found=str(dtype), allowed=" or ".join(map(str, ACTIVATION_DTYPES)))


def activation(kind: str) -> None:
    """A known activation."""
    if kind not in ACTIVATIONS:
        raise UsageError("an activation", found=repr(kind), allowed=", ".join(ACTIVATIONS))


def output(name: str, t: Tensor, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """A supplied result: exact shape and dtype, contiguous rows."""
    matrix(name, t, (dtype,), shape[1])
    if t.shape[0] != shape[0]:
        raise UsageError(f"{name} has one row for each result", found=str(list(t.shape)), allowed=str(list(shape)))


def topk(k: int, experts: int) -> None:
    """1 <= k <= E."""
    if not 1 <= k <= experts:
        raise UsageError("topk experts for each token", found=str(k), allowed=f"1 to {experts}")


def expert_weights(name: str, b: Tensor, b_scale: Tensor, k: int, n: int | None = None) -> int:
    """uint8 [E, N, K/2] with swizzled scales [E, P, Q], contiguous; returns N."""
    good = b.dtype == torch.uint8 and b.dim() == 3 and b.shape[2] * 2 == k and b.shape[0] > 0
    if not good or not b.is_contiguous() or (n is not None and b.shape[1] != n):
        raise UsageError(
            f"{name}: packed weights of every expert",
            found=_describe(b),
            allowed=f"torch.uint8 [E, {'N' if n is None else n}, {k // 2}], contiguous, for K = {k}",
        )
    scales(f"{name}'s block scales", b_scale, b.shape[1], k, (b.shape[0],))
    return b.shape[1]


# What follows reads values or addresses: real tensors only.


def finite_positive(name: str, t: Tensor) -> None:
    """Every global scale finite and above zero."""
    for i, value in enumerate(t.flatten().tolist()):
        if not (math.isfinite(value) and value > 0.0):
            raise UsageError(
                f"{name} is a global scale", found=f"{value} at {i}", allowed="finite and greater than 0"
            )


def expert_ids(ids: Tensor, experts: int) -> None:
    """Every id in 0..E-1."""
    if ids.numel() == 0:
        return
    low, high = (int(v) for v in ids.aminmax())
    if low < 0 or high >= experts:
        where = ((ids < 0) | (ids >= experts)).nonzero()[0].tolist()
        raise UsageError(
            "topk_ids are expert ids", found=f"{int(ids[tuple(where)])} at {where}", allowed=f"0 to {experts - 1}"
        )


def rows(name: str, t: Tensor, limit: int) -> None:
    """Every index in 0..limit-1."""
    if t.numel() == 0:
        return
    low, high = (int(v) for v in t.aminmax())
    if low < 0 or high >= limit:
        raise UsageError(f"{name} holds row numbers", found=f"{low} to {high}", allowed=f"0 to {limit - 1}")


def ascending(name: str, t: Tensor, last: int | None = None, step: int = 1) -> None:
    """Offsets: start at 0, never fall, multiples of `step`, end at `last`."""
    values = t.tolist()
    good = values[0] == 0 and all(a <= b for a, b in itertools.pairwise(values))
    if not good or (last is not None and values[-1] != last) or any(v % step for v in values):
        raise UsageError(
            f"{name} are offsets",
            found=str(values[:8]) + (" ..." if len(values) > 8 else ""),
            allowed="0 first, ascending"
            + (f", {last} last" if last is not None else "")
            + (f", multiples of {step}" if step > 1 else ""),
        )


def _span(t: Tensor) -> tuple[int, int]:
    start = t.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return start, start + (last + 1) * t.element_size()


def no_overlap(out: Tensor, **inputs: Tensor | None) -> None:
    """The result does not share memory with an input."""
    if out.numel() == 0:
        return
    low, high = _span(out)
    for name, t in inputs.items():
        if t is None or t.numel() == 0:
            continue
        start, end = _span(t)
        if start < high and low < end:
            raise UsageError(
                "out is memory of its own", found=f"it overlaps {name}", fix="torch.empty_like(...) for out"
            )
