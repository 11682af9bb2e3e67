"""The smallest launch that still shows a divergence.

A sweep over every M already gives the smallest that fails; one over a sample leaves a gap below it, which is
bisected. Then columns are set to zero as long as the bits still differ, and neighbours become copies of the row:
what is left is what a kernel author has to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.engine import bits

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

MAX_LAUNCHES = 200
"""Each trial takes two: alone and in the batch."""


@dataclass(frozen=True)
class Smallest:
    """A minimal failing launch."""

    batch: int
    """M."""
    row: int
    """Index of the row in the pool."""
    position: int
    columns: int
    """Columns of the row that are not zero."""
    of: int
    """Columns of the row."""
    rows: int
    """Distinct rows in the launch."""
    launches: int
    """What the search cost."""

    def words(self) -> str:
        """For the report."""
        kept = f"{self.columns} of {self.of} columns kept, the others zero"
        company = "every row the same" if self.rows == 1 else f"{self.rows} distinct rows"
        return f"M={self.batch}, row {self.row} at position {self.position}: {kept}; {company}"


def shrink(bench: Bench, batch: int, row: int, position: int) -> Smallest | None:
    """Shrink the failing launch of `batch` rows in which pool row `row` sits at `position`.

    Returns:
        The smallest launch found, or None where the row does not fail in a batch of pool rows built anew (its
        company mattered in a way this search cannot keep).
    """
    import torch

    start = bench.launches

    def place(m: int) -> Tensor:
        return (torch.arange(m) - min(position, m - 1) + row) % bench.probes

    def fails(m: int) -> bool:
        return _differs(bench, bench.rows_at(place(m)), min(position, m - 1))

    if not fails(batch):
        return None
    batch = bisect(fails, batch)
    position = min(position, batch - 1)
    index = place(batch)
    rows = bench.rows_at(index)
    distinct = len(set(index.tolist()))
    same = tuple(t[position : position + 1].expand(t.shape).contiguous() for t in rows)
    if distinct > 1 and _differs(bench, same, position):
        rows, distinct = same, 1
    kept, of = _fewest_columns(bench, rows, position, start)
    return Smallest(batch, row, position, kept, of, distinct, bench.launches - start)


def bisect(fails: Callable[[int], bool], failing: int, passing: int = 1) -> int:
    """A batch size that fails while the one below it passes, by log2(failing - passing) calls of `fails`.

    The smallest of all where every size above an edge fails; otherwise some edge between the two.
    """
    while failing - passing > 1:
        middle = (failing + passing) // 2
        if fails(middle):
            failing = middle
        else:
            passing = middle
    return failing


def _differs(bench: Bench, rows: tuple[Tensor, ...], position: int) -> bool:
    """Whether the row at `position` has other bits in the batch than alone."""
    alone = bench.run(tuple(t[position : position + 1].clone() for t in rows))
    together = bench.run(rows)
    return any(not bits.same(y[position : position + 1], a) for y, a in zip(together, alone, strict=True))


def _fewest_columns(bench: Bench, rows: tuple[Tensor, ...], position: int, start: int) -> tuple[int, int]:
    """Zero halves, quarters, ... of the first floating input's columns while the launch still fails."""
    import torch

    at = next((i for i, t in enumerate(rows) if t.dtype.is_floating_point and t.dim() == 2), None)
    if at is None:
        return (rows[0][0].numel(),) * 2
    of = rows[at].shape[1]
    keep = torch.ones(of, dtype=torch.bool, device=rows[at].device)

    def fails(mask: Tensor) -> bool:
        trial = torch.where(mask, rows[at], torch.zeros_like(rows[at]))
        return _differs(bench, tuple(trial if i == at else t for i, t in enumerate(rows)), position)

    piece = of // 2
    while piece >= 1 and bench.launches - start < MAX_LAUNCHES:
        # Pieces that are zero already need no trial: of 200,000 columns most soon are.
        for number in sorted(set((keep.nonzero().reshape(-1) // piece).tolist())):
            if bench.launches - start >= MAX_LAUNCHES:
                break
            trial = keep.clone()
            trial[number * piece : (number + 1) * piece] = False
            if bool(trial.any()) and fails(trial):
                keep = trial
        piece //= 2
    return int(keep.sum()), of
