"""Models of the units that add: how each rounds, and what it adds at once.

After MMA-Sim (microsoft/MMA-Sim, MIT), in float64, which holds every product of 24-bit operands and every aligned
sum here exactly. They say in advance on which units an order can show; they are no substitute for the unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
LEAST = -139
"""Exponent that a zero counts as in an alignment: below the smallest normal float32."""


@dataclass(frozen=True)
class Adder:
    """One unit."""

    name: str
    chain: Callable[[Array], Array]
    """Exact products float64 [..., K] -> float32 [...]: their sum in ascending k."""
    step: int = 1
    """Products that one step adds at once: within them no order exists."""


def fma(products: Array) -> Array:
    """CPU and CUDA cores: one fused multiply-add a product, to nearest even."""
    total = np.zeros(products.shape[:-1], np.float32)
    for k in range(products.shape[-1]):
        # Adding to float64 first rounds twice in one case of 2**29.
        total = (total + products[..., k]).astype(np.float32)
    return total


def multiply_add(products: Array) -> Array:
    """The same without contraction: the product is rounded before it is added."""
    return fma(products.astype(np.float32).astype(np.float64))


def tensor_core(width: int, fraction: int, bits: int = 24) -> Callable[[Array], Array]:
    """Hopper's and Blackwell's dense MMA: `width` products and the accumulator, aligned and truncated.

    Args:
        width: products of one step: 16 in bf16 and fp16, 32 in fp8.
        fraction: bits kept under the largest exponent of the step: 25; Hopper's fp8 keeps 13.
        bits: significant bits of the accumulator, rounded toward zero.
    """

    def chain(products: Array) -> Array:
        total = np.zeros(products.shape[:-1])
        for k in range(0, products.shape[-1], width):
            total = _node(products[..., k : k + width], total, fraction, bits)
        return total.astype(np.float32)

    return chain


def block_scaled(products: Array) -> Array:
    """Blackwell's NVFP4 MMA, K = 64: exact sums of 16, then four of them and the accumulator within 35 bits."""
    groups = products.reshape(*products.shape[:-1], -1, 16).sum(-1)
    total = np.zeros(products.shape[:-1])
    for k in range(0, groups.shape[-1], 4):
        total = _node(groups[..., k : k + 4], total, 35, 24)
    return total.astype(np.float32)


def _node(terms: Array, total: Array, fraction: int, bits: int) -> Array:
    """The sum of `terms` [..., T] and `total` [...], each truncated below the largest exponent."""
    every = np.concatenate([terms, total[..., None]], -1)
    exponent = np.where(every == 0, LEAST, np.frexp(every)[1] - 1)
    top = exponent.max(-1)
    aligned = np.trunc(np.ldexp(every, (fraction - top)[..., None])).sum(-1)
    return toward_zero(np.ldexp(aligned, top - fraction), bits)


def toward_zero(values: Array, bits: int = 24) -> Array:
    """`values` with `bits` significant bits, truncated."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits))


def bfloat16_bits(values: Array) -> Array:
    """uint16 bits of float32 values, rounded to nearest even."""
    wide = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


FMA = Adder("fma", fma)
MULTIPLY_ADD = Adder("mul+add", multiply_add)
HOPPER = Adder("Hopper", tensor_core(16, 25), 16)
HOPPER_FP8 = Adder("Hopper fp8", tensor_core(32, 13, 14), 32)
BLACKWELL_NVFP4 = Adder("Blackwell", block_scaled, 64)
