"""Equal rows of one launch have equal bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from samebits.checks.slots import differing_positions, spans, unmovable, usual
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

PROBES = 16
"""Distinct rows in the launch, as far as the pool has them."""
TILE = 128
"""Rows of the largest tile that the layout covers; smaller powers of two are covered with it."""
SMALL = (3, 5, 7, 8, 9, 11, 15, 16, 17)
"""Batches too small for an interleaving: they hold one row only."""


class Duplicates:
    """Probes interleaved so that each sits at every residue modulo the tile: a launch is its own reference."""

    id = "duplicates"
    title = "Equal rows in one launch have equal bits"

    def applies(self, bench: Bench) -> str | None:
        """Needs rows that may sit anywhere, and two of them."""
        return unmovable(bench)

    def run(self, bench: Bench) -> CheckResult:
        """Whole tiles, and the same cut short so that the last tile is ragged."""
        import torch

        rec = bench.open(self.id)
        count, tile = layout(bench.probes, bench.max_batch)
        chosen = torch.arange(count) * bench.probes // count
        position = torch.arange(count * tile)
        whole = chosen[(position % tile + position // tile) % count]
        sizes = sorted({max(2, len(whole) - cut) for cut in (0, 15, tile // 2 - 1)})
        few = [m for m in SMALL if m < min(sizes)]
        for m in (*few, *sizes):
            index = whole[:m] if m in sizes else chosen[m % count].expand(m)
            rows = bench.rows_at(index)
            found = tuple(y.clone() for y in bench.run(rows))
            reference = usual(index.tolist(), found)
            at = torch.tensor(reference, device=bench.device)
            expected = tuple(y.index_select(0, at) for y in found)
            places = differing_positions(found, expected)
            rec.compare(
                found,
                expected,
                partial(_sentence, index, reference),
                rows=index,
                batch=m,
                against=m,
                again=partial(bench.run, rows),
                details={"positions": spans(places), "tile": tile},
            )
        return rec.close(
            coverage=f"{count} rows at every residue modulo {tile} at M in {{{_list(sizes)}}}"
            + (f", one row throughout at M in {{{_list(few)}}}" if few else ""),
            pairs=sum(sizes) + sum(few),
            power=rec.order_power(),
        )

    def control(self) -> Subject:
        """Row sums whose ragged last tile of eight is added up in two halves.

        Stands for stream-K remainders and tail tiles with another K loop.
        """
        import torch

        def tail(x: Tensor) -> Tensor:
            serial, halves = torch.zeros(x.shape[0]), torch.zeros(2, x.shape[0])
            half = x.shape[1] // 2
            for k in range(x.shape[1]):
                serial = serial + x[:, k]
                halves[k // half] += x[:, k]
            ragged = torch.arange(x.shape[0]) >= x.shape[0] // 8 * 8
            return torch.where(ragged, halves[0] + halves[1], serial)

        rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(9))
        return Subject(tail, (rows,), name="ragged last tile", addends=64, derive=False)


def layout(probes: int, max_batch: int) -> tuple[int, int]:
    """(probes, tile) of the interleaving: probes * tile <= `max_batch` positions, the tile a power of two."""
    count = min(probes, PROBES)
    tile = TILE
    while tile > 1 and count * tile > max_batch:
        if count > 4 and tile <= 16:
            count -= 1  # few rows through whole tiles say more than many through small ones
        else:
            tile //= 2
    return max(1, min(count, max_batch)), tile


def _sentence(index: Tensor, reference: Sequence[int], position: int) -> str:
    equal = f"the equal row at position {reference[position]}"
    return f"row {int(index[position])} at position {position} of M={len(index)} has other bits than {equal}"


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


CHECK = Duplicates()
