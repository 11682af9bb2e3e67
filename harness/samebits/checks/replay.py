"""One row, put at every position of a batch, among other neighbours each time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from samebits.checks.slots import slot_power, unmovable, usual
from samebits.engine import bits
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

SIZES = (2, 5, 16, 33, 64)
"""One launch per position of each: 120 launches."""


class Replay:
    """At a few M, one launch per position; all other rows are drawn anew. Only the replayed row is compared."""

    id = "replay"
    title = "A row has the same bits at every position of its batch, whoever its neighbours are"

    def applies(self, bench: Bench) -> str | None:
        """Needs rows that may sit anywhere, and two of them."""
        return unmovable(bench)

    def run(self, bench: Bench) -> CheckResult:
        """Another row for each M, compared with the bits that it has in most positions."""
        import torch

        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in SIZES} - {1})
        generator = torch.Generator().manual_seed(bench.seed)
        changed = 0
        for number, m in enumerate(sizes):
            row = number * bench.probes // len(sizes)
            index = torch.randint(bench.probes, (m, m), generator=generator)
            index.fill_diagonal_(row)

            def launch(index: Tensor = index) -> tuple[tuple[Tensor, ...], Tensor]:
                return _replay(bench, index)

            found, others = launch()
            changed += int(others)
            reference = usual([row] * m, found)[0]
            rec.compare(
                found,
                tuple(y[reference : reference + 1].expand_as(y) for y in found),
                partial(_sentence, row, m, reference),
                rows=[row] * m,
                batch=m,
                against=m,
                again=lambda launch=launch: launch()[0],  # type: ignore[misc]
            )
        return rec.close(
            coverage=f"a row at every position of M in {{{', '.join(map(str, sizes))}}}",
            pairs=sum(sizes),
            power=slot_power(rec, changed, "the neighbours gave the same bits in every launch"),
        )

    def control(self) -> Subject:
        """Row sums in which the last row of each tile of 16 is added up backwards.

        Stands for the last row of a block that falls to another warp, or to the loop's tail.
        """
        import torch

        def by_tile(x: Tensor) -> Tensor:
            forwards, backwards = torch.zeros(2, x.shape[0])
            for k in range(x.shape[1]):
                forwards = forwards + x[:, k]
                backwards = backwards + x[:, -1 - k]
            last = torch.arange(x.shape[0]) % 16 == 15
            return torch.where(last, backwards, forwards)

        rows = torch.randn(16, 48, generator=torch.Generator().manual_seed(8))
        return Subject(by_tile, (rows,), name="last row of a tile", addends=48, derive=False)


def _sentence(row: int, m: int, reference: int, position: int) -> str:
    where = f"row {row} at position {position} of M={m}"
    return f"{where} has other bits than at position {reference}, among other neighbours"


def _replay(bench: Bench, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Launch p has the rows `index[p]` [M]; of each, row p of the outputs, stacked.

    Also how many neighbours held other bits than in the launch before (a tensor: nothing is synchronised).
    """
    import torch

    kept: list[tuple[Tensor, ...]] = []
    changed = torch.zeros((), dtype=torch.int64, device=bench.device)
    before: tuple[Tensor, ...] = ()
    for p, at in enumerate(index):
        found = bench.run(bench.rows_at(at))
        kept.append(tuple(y[p].clone() for y in found))
        for a, b in zip(found, before, strict=False):
            if a.shape == b.shape and a.dtype == b.dtype:
                others = bits.differing_rows(a, b) > 0
                others[max(0, p - 1) : p + 1] = False  # there sat, or sits, the replayed row itself
                changed += others.sum()
        before = tuple(y.clone() for y in found)
    return tuple(torch.stack(ys) for ys in zip(*kept, strict=True)), changed


CHECK = Replay()
