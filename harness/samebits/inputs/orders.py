"""Orders in which kernels add, and how often each shows on given operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from samebits.inputs.adders import Adder, Array, bfloat16_bits, fma, multiply_add, tensor_core

if TYPE_CHECKING:
    from torch import Tensor

TILE = 64
"""K of the tiles that are moved, left over and sliced."""
Order = Callable[[Array], Array]
"""Exact products float64 [..., K] -> float32 [...]."""


def orders(adder: Adder, k: int, *, exact_products: bool = True) -> Iterator[tuple[str, Order]]:
    """Orders that kernels are known for, other than the serial one, for sums of length `k` (a multiple of 128).

    Harder ones exist: with the first two tiles swapped and nothing else, some 0.3 of the elements change.

    Args:
        adder: the unit that each of them runs on.
        k: length of the sums.
        exact_products: whether products fit in float32, so that contracting multiply and add changes nothing.
    """
    chain = adder.chain

    def split(products: Array, parts: int) -> list[Array]:
        return list(np.moveaxis(chain(products.reshape(*products.shape[:-1], parts, -1)), -1, 0))

    def tiles(products: Array) -> Array:
        return products.reshape(*products.shape[:-1], -1, TILE)

    def flat(products: Array) -> Array:
        return products.reshape(*products.shape[:-2], -1)

    def split_serial(parts: int) -> Order:
        return lambda p: _serial(split(p, parts))

    for parts in (2, 4, 8):
        if k // parts >= adder.step:
            yield f"split-K {parts}", split_serial(parts)
    if k // 4 >= adder.step:
        yield "split-K 4, tree", lambda p: _pairwise(split(p, 4))
    yield (
        "slices of even and odd tiles",
        lambda p: _serial([chain(flat(tiles(p)[..., i::2, :])) for i in (0, 1)]),
    )
    yield "tiles reversed", lambda p: chain(flat(tiles(p)[..., ::-1, :]))
    yield "stream-K remainder", lambda p: _serial([chain(p[..., :-TILE]), chain(p[..., -TILE:])])
    if k > 2 * TILE:
        yield "promoted every 128", split_serial(k // 128)
    if adder.chain in (fma, multiply_add):
        yield "pairwise", lambda p: _pairwise(list(np.moveaxis(p.astype(np.float32), -1, 0)))
        yield "4 lanes", lambda p: _serial([chain(p[..., i::4]) for i in range(4)])
    if adder.chain is fma and not exact_products:
        yield "FMA off", multiply_add
    if adder.step == 16:
        yield "K = 8 a step", tensor_core(8, 25)
        yield "K = 32 a step", tensor_core(32, 25)


def flip_rates(x: Tensor, w: Tensor, adder: Adder, *, exact_products: bool = True) -> dict[str, float]:
    """Share of the elements of x @ w.T, rounded to bf16, whose bits differ from the serial order's.

    Args:
        x: [rows, K]; w: [n, K]; values that the format of the operands holds.
        adder: the unit.
        exact_products: see `orders`.
    """
    products = exact(x, w)
    base = bfloat16_bits(adder.chain(products))
    found = {}
    for name, order in orders(adder, products.shape[-1], exact_products=exact_products):
        found[name] = float((bfloat16_bits(order(products)) != base).mean())
    return found


def exact(x: Tensor, w: Tensor) -> Array:
    """float64 [rows * n, K] of the products that each output element adds."""
    a, b = x.double().cpu().numpy(), w.double().cpu().numpy()
    return np.asarray((a[:, None] * b[None]).reshape(-1, a.shape[1]))


def _serial(parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _pairwise(parts: list[Array]) -> Array:
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [a + b for a, b in zip(parts[0::2], parts[1::2], strict=False)] + odd
    return parts[0]
