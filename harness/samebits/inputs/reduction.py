"""Rows for sums, norms and softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.inputs.gemm import KINDS, check, gemm

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def reduction(
    rows: int,
    k: int,
    *,
    dtype: torch.dtype | str = "float32",
    seed: int = 0,
    device: torch.device | str = "cpu",
    kind: str = "mixed",
) -> Tensor:
    """[rows, k]: "stratified" rows sum to zero over a wide range of exponents, "ordinary" ones are randn.

    A norm or a softmax turns the last bits of its sum into the last bits of every output, so ordinary rows
    serve them; a plain sum needs the stratified ones. "mixed" alternates; for the other kinds see `gemm`.
    """
    check(kind, KINDS, rows=rows, k=k)
    return gemm(rows, 1, k, dtype=dtype, seed=seed, device=device, kind=kind).x
