"""Arithmetic whose order is written out, in element-wise operations whose bits every machine agrees on.

Controls and their invariant twins are made of it: a control made of a library's GEMM would be caught on one
machine and clean on another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def chained_mm(x: Tensor, w: Tensor, splits: int = 1) -> Tensor:
    """x [M, K] @ w [N, K].T: one chain of additions for each of `splits` equal parts of K, then their sum.

    A product and a sum are rounded one after the other (no FMA), in the dtype of `x`.
    """
    total: Tensor | None = None
    k = x.shape[1]
    for part in range(splits):
        chain: Tensor | None = None
        for i in range(k * part // splits, k * (part + 1) // splits):
            product = x[:, i, None] * w[None, :, i]
            chain = product if chain is None else chain + product
        if chain is not None:
            total = chain if total is None else total + chain
    if total is None:
        return x.new_zeros(x.shape[0], w.shape[0])
    return total


def chained_sum(x: Tensor, splits: int = 1) -> Tensor:
    """x [M, K, ...] summed over dimension 1, in `splits` chains as above."""
    total: Tensor | None = None
    k = x.shape[1]
    for part in range(splits):
        chain: Tensor | None = None
        for i in range(k * part // splits, k * (part + 1) // splits):
            chain = x[:, i] if chain is None else chain + x[:, i]
        if chain is not None:
            total = chain if total is None else total + chain
    return x.new_zeros(x.shape[0], *x.shape[2:]) if total is None else total
