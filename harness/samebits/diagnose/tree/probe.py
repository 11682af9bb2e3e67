"""Asks a kernel for its tree: masks of large values in the weights, one question in each column."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from samebits.diagnose.tree.fprev import reconstruct
from samebits.diagnose.tree.replay import replay
from samebits.diagnose.tree.structure import NoTreeError, Tree
from samebits.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MASKS = {
    "float64": (2.0**200, 1.0),
    "float32": (2.0**120, 1.0),
    "bfloat16": (2.0**120, 1.0),
    "float16": (2.0**15, 2.0**-24),
}
"""(mask, unit) by dtype: units vanish beside the mask, and their sum is exact."""
EXACT = {"bfloat16": 255, "float16": 1023}
"""Units whose count the output dtype holds exactly; longer sums are asked for in stripes."""
PROOF_COLUMNS = 64


def accumulation_tree(
    fn: Callable[[Tensor, Tensor], Tensor],
    k: int,
    n: int,
    *,
    dtype: torch.dtype | str = "float32",
    m: int = 1,
    row: int = 0,
    device: torch.device | str = "cpu",
    prove: bool = True,
) -> Tree:
    """The order in which `fn(x, w)`, x [m, k] and w [n, k] -> [m, n], adds the products of an output element.

    Args:
        fn: the kernel, as F.linear takes its operands.
        k: length of the sums.
        n: columns: so many questions fit in one launch.
        dtype: of x and w: float64, float32, bfloat16 or float16. The output may be another of these.
        m, row: the batch size, and the row that is looked at.
        device: where x and w are made.
        prove: replay the tree on random operands (see `Proof`); the wrong tree fails it.

    Raises:
        UsageError: an unknown dtype or a row outside of the batch.
        NoTreeError: launches or columns that disagree; no sum of products.
    """
    import torch

    kept = _dtype(dtype)
    _within(row, m, k, n)
    mask, unit = MASKS[str(kept).removeprefix("torch.")]
    x = torch.ones(m, k, dtype=kept, device=device)
    asked = _Launches(lambda w: fn(x, w.to(device)), row, unit)

    def ask(pairs: Sequence[tuple[int, int]], shift: int = 0) -> list[int]:
        limit = EXACT.get(asked.output, k)
        columns = [(p, s) for p in range(len(pairs)) for s in range(0, k, limit)]
        survivors = [0] * len(pairs)
        for start in range(0, len(columns), n):
            part = columns[start : start + n]
            w = torch.zeros(n, k, dtype=kept)
            at = torch.tensor([(c + shift) % n for c in range(len(part))])
            ends = torch.tensor([pairs[p] for p, _ in part])
            for c, (_, s) in zip(at.tolist(), part, strict=True):
                w[c, s : s + limit] = unit
            w[at, ends[:, 0]], w[at, ends[:, 1]] = mask, -mask
            for (p, _), count in zip(part, asked(w, at), strict=True):
                survivors[p] += count
        return [k - s for s in survivors]

    asked.calibrate(torch.zeros(n, k, dtype=kept))
    _steady(ask, k, n)
    tree = reconstruct(k, ask)
    proof = replay(tree, fn, k, n, dtype=kept, m=m, row=row, device=device) if prove else None
    return dataclasses.replace(tree, proof=proof, launches=asked.count + prove)


def sum_tree(
    fn: Callable[[Tensor], Tensor],
    k: int,
    *,
    dtype: torch.dtype | str = "float32",
    m: int = 1,
    row: int = 0,
    device: torch.device | str = "cpu",
    prove: bool = True,
) -> Tree:
    """The order in which `fn(x)`, x [m, k] -> [m] or [m, 1], adds the elements of a row: one launch a question.

    Arguments and errors as in `accumulation_tree`.
    """
    import torch

    kept = _dtype(dtype)
    _within(row, m, k, 1)
    mask, unit = MASKS[str(kept).removeprefix("torch.")]
    asked = _Launches(lambda x: fn(x.to(device)).reshape(m, -1), row, unit)

    def ask(pairs: Sequence[tuple[int, int]]) -> list[int]:
        limit = EXACT.get(asked.output, k)
        found = []
        for i, j in pairs:
            survivors = 0
            for s in range(0, k, limit):
                x = torch.full((m, k), unit, dtype=kept)
                x[row] = 0
                x[row, s : s + limit] = unit
                x[row, i], x[row, j] = mask, -mask
                survivors += asked(x, torch.zeros(1, dtype=torch.int64))[0]
            found.append(k - survivors)
        return found

    asked.calibrate(torch.zeros(m, k, dtype=kept))
    few = [(0, j) for j in sorted({1, k // 2, k - 1} - {0})]
    if few and ask(few) != ask(few):
        raise NoTreeError("arrival-order: the same launch gives another sum when it is repeated")
    tree = reconstruct(k, ask)

    def as_product(x: Tensor, w: Tensor) -> Tensor:
        return torch.cat([fn((x * c).to(x.dtype)).reshape(m, 1) for c in w], 1)

    proof = None
    if prove:
        proof = replay(tree, as_product, k, 16, dtype=kept, m=m, row=row, device=device, signs_only=True)
    return dataclasses.replace(tree, proof=proof, launches=asked.count + 16 * prove)


class _Launches:
    """Counts launches and reads off survivors."""

    def __init__(self, fn: Callable[[Tensor], Any], row: int, unit: float) -> None:
        self.fn, self.row, self.unit, self.count, self.output = fn, row, unit, 0, ""

    def calibrate(self, zeros: Tensor) -> None:
        """One launch on zeros: what dtype comes out?"""
        self.output = str(self._launch(zeros).dtype).removeprefix("torch.")

    def __call__(self, operand: Tensor, columns: Tensor) -> list[int]:
        values = (self._launch(operand).cpu()[columns].double() / self.unit).tolist()
        counts = []
        for v in values:
            if not v.is_integer() or not 0 <= v <= operand.shape[-1]:
                raise NoTreeError(f"a sum of units and two masks gave {v}: this is no plain sum of products")
            counts.append(int(v))
        return counts

    def _launch(self, operand: Tensor) -> Tensor:
        import torch

        self.count += 1
        with torch.no_grad():
            row: Tensor = self.fn(operand)[self.row]
        return row


def _steady(ask: Callable[..., list[int]], k: int, n: int) -> None:
    """Every column must give the same answer, and the same launch twice."""
    few = [(0, j) for j in sorted({1, k // 3, k // 2, k - 1} - {0})]
    pairs = [few[c % len(few)] for c in range(n)]
    first, again, moved = ask(pairs), ask(pairs), ask(pairs, shift=1)
    if first != again:
        raise NoTreeError("arrival-order: the same launch gives another sum when it is repeated")
    if first != moved or any(a != first[c % len(few)] for c, a in enumerate(first)):
        odd = next((c for c, a in enumerate(first) if a != first[c % len(few)]), 0)
        raise NoTreeError(f"columns add in different orders (column {odd} for one): ask with n inside one tile")


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    import torch

    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    if name not in MASKS:
        raise UsageError("a dtype to probe", found=name, allowed=", ".join(MASKS))
    kept: torch.dtype = getattr(torch, name)
    return kept


def _within(row: int, m: int, k: int, n: int) -> None:
    if not 0 <= row < m or k < 2 or n < 1:
        raise UsageError(
            "sums to look at", found=f"row {row} of {m}, k = {k}, n = {n}", allowed="0 <= row < m, k >= 2, n >= 1"
        )
