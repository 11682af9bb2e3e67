"""The `torch` backend: dequantise, then torch.matmul in fp32. It says no to batch invariance, and means it.

The library behind torch.matmul picks its kernel by M, so a row's bits change with the batch. It is here as the
honest opposite of the others: a baseline, and what a refused request under the flag looks like.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samebits_kernels.backends.reference import ReferenceBackend
from samebits_kernels.formats import dequantise
from samebits_kernels.reference import fp32
from samebits_kernels.reference.elementwise import rounded


class TorchBackend(ReferenceBackend):
    """The reference with its two matrix products handed to torch."""

    name = "torch"

    def supports_batch_invariance(self) -> bool:
        """No."""
        return False

    def tree(self, op: str) -> str:
        """Unknown for the matrix products."""
        products = {"scaled_mm", "grouped_mm", "moe", "batched_moe"}
        return "whatever torch.matmul picks for this M" if op in products else super().tree(op)

    def scaled_mm(self, d: Tensor, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, alpha: Tensor) -> None:
        """See the protocol."""
        d.copy_(rounded(dequantise(a, a_scale) @ dequantise(b, b_scale).T * alpha.reshape(()), d.dtype))

    def grouped_mm(
        self,
        d: Tensor,
        a: Tensor,
        b: Tensor,
        a_scale: Tensor,
        b_scale: Tensor,
        alphas: Tensor,
        offsets: Tensor,
        scale_offsets: Tensor,
    ) -> None:
        """See the protocol."""
        rows = fp32.scale_rows(offsets, scale_offsets)
        whole = torch.zeros(a_scale.shape[0], a.shape[1], dtype=torch.uint8)
        whole[rows] = a
        values = dequantise(whole, a_scale)[rows]
        bounds = offsets.tolist()
        for e in range(b.shape[0]):
            at = slice(bounds[e], bounds[e + 1])
            if bounds[e] < bounds[e + 1]:
                d[at] = rounded(values[at] @ dequantise(b[e], b_scale[e]).T * alphas[e], d.dtype)
