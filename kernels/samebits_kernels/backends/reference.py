"""The `reference` backend: plain torch, no compiler, same bits as `cpu`. Slow and readable."""

from __future__ import annotations

import functools
import hashlib
import itertools
from pathlib import Path

import torch
from torch import Tensor

from samebits_kernels.formats import BLOCK
from samebits_kernels.layout import padded_shape, unswizzle
from samebits_kernels.reference import fp32
from samebits_kernels.reference.elementwise import rounded


class ReferenceBackend:
    """See `samebits_kernels.reference.fp32` for the order of every sum."""

    name = "reference"
    device = "cpu"

    def available(self) -> str | None:
        """Always."""
        return None

    def supports_batch_invariance(self) -> bool:
        """Yes, in either mode: no loop bound contains M."""
        return True

    def tree(self, op: str) -> str:
        """One class for all shapes and batch sizes."""
        return TREES.get(op, "no sum")

    @functools.cache  # noqa: B019 - backends live as long as the process
    def source_hash(self) -> str:
        """Of the reference's own files, the formats and torch's version (its bmm is only asked exact sums)."""
        here = Path(__file__).resolve().parent
        digest = hashlib.sha256(torch.__version__.encode())
        for file in (here / "reference.py", here.parent / "formats.py", here.parent / "layout.py"):
            digest.update(file.read_bytes())
        for file in sorted((here.parent / "reference").glob("*.py")):
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def probe(self) -> dict[str, object]:
        """No library of its own."""
        return {"library": None}

    def quantise(self, q: Tensor, q_scale: Tensor, x: Tensor, global_scale: Tensor) -> None:
        """See the protocol."""
        data, scales = fp32.quantise(x, global_scale)
        q.copy_(data)
        fp32.place_scales(q_scale, scales, torch.arange(x.shape[0]))

    def activation(self, y: Tensor, x: Tensor, kind: str) -> None:
        """See the protocol."""
        y.copy_(fp32.activation(x, kind))

    def activation_quantise(self, q: Tensor, q_scale: Tensor, x: Tensor, global_scale: Tensor, kind: str) -> None:
        """See the protocol."""
        self.quantise(q, q_scale, fp32.activation(x, kind), global_scale)

    def scaled_mm(self, d: Tensor, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, alpha: Tensor) -> None:
        """See the protocol."""
        blocks = a.shape[1] * 2 // BLOCK
        plain_a = unswizzle(a_scale, a.shape[0], blocks)
        plain_b = unswizzle(b_scale, b.shape[0], blocks)
        d.copy_(fp32.scaled_mm(a, plain_a, b, plain_b, alpha, d.dtype))

    def prepared_bytes(self, n: int, k: int) -> int:
        """The public layout, data then scales."""
        rows, columns = padded_shape(n, k // BLOCK)
        return n * k // 2 + rows * columns

    def prepare(self, packed: Tensor, b: Tensor, b_scale: Tensor) -> None:
        """See the protocol."""
        torch.cat((b.flatten(), b_scale.view(torch.uint8).flatten()), out=packed)

    def scaled_mm_prepared(self, d: Tensor, a: Tensor, packed: Tensor, a_scale: Tensor, alpha: Tensor) -> None:
        """See the protocol."""
        n, half = d.shape[1], a.shape[1]
        b = packed[: n * half].view(n, half)
        scales = packed[n * half :].view(torch.float8_e4m3fn).view(padded_shape(n, half * 2 // BLOCK))
        self.scaled_mm(d, a, b, a_scale, scales, alpha)

    def route(self, weights: Tensor, ids: Tensor, logits: Tensor, renormalize: bool) -> None:
        """See the protocol."""
        w, i = fp32.route(logits, ids.shape[1], renormalize)
        weights.copy_(w)
        ids.copy_(i)

    def permute(self, a_map: Tensor, c_map: Tensor, offsets: Tensor, scale_offsets: Tensor, ids: Tensor) -> None:
        """See the protocol."""
        results = fp32.permute(ids, offsets.shape[0] - 1)
        for out, result in zip((a_map, c_map, offsets, scale_offsets), results, strict=True):
            out.copy_(result)

    def experts_quantise(
        self,
        q: Tensor,
        q_scale: Tensor,
        x: Tensor,
        global_scale: Tensor,
        offsets: Tensor,
        scale_offsets: Tensor,
        a_map: Tensor | None,
        row_weight: Tensor | None,
    ) -> None:
        """See the protocol."""
        if row_weight is not None:
            x = rounded(x.float() * row_weight.unsqueeze(1), x.dtype)
        if a_map is not None:
            x = x[a_map.long()]
        per_slot = global_scale.repeat_interleave(offsets[1:] - offsets[:-1]).unsqueeze(1)
        data, scales = fp32.quantise(x, per_slot)
        q.copy_(data)
        fp32.place_scales(q_scale, scales, fp32.scale_rows(offsets, scale_offsets))

    def experts_activation_quantise(
        self,
        q: Tensor,
        q_scale: Tensor,
        x: Tensor,
        global_scale: Tensor,
        offsets: Tensor,
        scale_offsets: Tensor,
        kind: str,
    ) -> None:
        """See the protocol."""
        y = fp32.activation(x, kind)
        self.experts_quantise(q, q_scale, y, global_scale, offsets, scale_offsets, None, None)

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
        blocks = a.shape[1] * 2 // BLOCK
        scales = fp32.take_scales(a_scale, fp32.scale_rows(offsets, scale_offsets), blocks)
        bounds = offsets.tolist()
        for e, (first, end) in enumerate(itertools.pairwise(bounds)):
            if first == end:
                continue
            weights = unswizzle(b_scale[e], b.shape[1], blocks)
            d[first:end] = fp32.scaled_mm(a[first:end], scales[first:end], b[e], weights, alphas[e], d.dtype)

    def combine(self, out: Tensor, y: Tensor, weights: Tensor | None, c_map: Tensor) -> None:
        """See the protocol."""
        out.copy_(fp32.combine(y, weights, c_map))


_CHAIN = "fp32 chain over the K/16 exact block sums, ascending K"
TREES = {
    "scaled_mm": _CHAIN,
    "grouped_mm": _CHAIN,
    "route": "fp32 chain over the experts, ascending id",
    "combine": "fp32 chain over the k choices, in their order",
    "moe": f"{_CHAIN}; combine: fp32 chain over the k choices, in their order",
    "batched_moe": _CHAIN,
}
