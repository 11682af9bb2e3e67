"""The first rows of a batch do not depend on the rows behind them, nor on where the batch ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from samebits.checks.contents import contents, limits, refused
from samebits.checks.slots import differing_positions, only, slot_power
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

SIZES = (1, 3, 16, 17, 64)
"""Rows that are real."""
TOTAL = 257
"""Rows of the allocation."""
GARBAGE = ("random rows", "the largest finite values", "NaN")
"""What the rows behind the real ones hold."""


class Prefix:
    """Y(X[:m]) == Y(X)[:m]: m real rows in front of garbage, given as a slice and as part of the batch."""

    id = "prefix"
    title = "The first rows of a batch have the same bits wherever the batch ends and whatever follows them"

    def applies(self, bench: Bench) -> str | None:
        """Needs a second batch size."""
        return "max_batch is 1: a batch has no shorter prefix" if bench.max_batch < 2 else None

    def run(self, bench: Bench) -> CheckResult:
        """A batch of distinct rows once; then, for each m, all rows behind the first m become garbage."""
        import torch

        rec = bench.open(self.id)
        total = min(bench.max_batch, max(TOTAL, bench.probes))
        sizes = sorted({min(m, total - 1) for m in (*SIZES, total - 1)})
        index, rows = bench.batch(total)
        whole = tuple(y.clone() for y in bench.run(rows))
        tried: dict[str, None] = {}
        notes: dict[str, None] = {}
        changed = pairs = 0
        for m in sizes:
            real = torch.arange(total) < m
            on_device = real.to(bench.device)
            for content in contents(bench, index, ~real, GARBAGE):
                part = tuple(t[:m] for t in content.rows)
                compare = partial(rec.compare, rows=index, batch=m, details={"rows behind": content.name})
                compare(
                    bench.run(part),
                    tuple(y[:m] for y in whole),
                    partial(_sliced, index, m, total, content.name),
                    against=total,
                    again=partial(bench.run, part),
                )
                pairs += m
                try:
                    found = bench.run(content.rows)
                except Exception as error:  # whatever a kernel raises on values it does not take
                    notes[refused(content, error)] = None
                    continue
                found = tuple(y.clone() for y in found)
                tried[content.name] = None
                pairs += m
                changed += len(differing_positions(found, only(on_device, whole, found)))
                compare(
                    found,
                    only(on_device, found, whole),
                    partial(_followed, index, m, content.name),
                    batch=total,
                    against=total,
                    again=partial(_again, bench, content.rows, on_device, found),
                )
        rec.notes.extend([*notes, *limits(bench)])
        return rec.close(
            coverage=f"the first m rows of M={total}, alone and followed by {' or '.join(tried)}, m in "
            f"{{{', '.join(map(str, sizes))}}}",
            pairs=pairs,
            power=slot_power(rec, changed, "the rows behind the real ones gave the same bits throughout"),
        )

    def control(self) -> Subject:
        """A scale over tiles of four rows that also loads the rows behind the batch, where there are any.

        Stands for tile loads without a mask: padding rows read as data.
        """
        import torch

        tile = 4

        def unmasked(x: Tensor) -> Tensor:
            behind = x.untyped_storage().nbytes() // x.element_size() // x.shape[1]
            first = x.storage_offset() // x.shape[1]
            padded = min(-(-x.shape[0] // tile) * tile, behind - first)
            loaded = x.as_strided((padded, x.shape[1]), x.stride(), x.storage_offset())
            starts = range(0, x.shape[0], tile)
            return torch.cat([x[i : i + tile] / loaded[i : i + tile].abs().amax() for i in starts])

        rows = torch.randn(16, 24, generator=torch.Generator().manual_seed(12))
        return Subject(unmasked, (rows,), name="tile load without a mask", derive=False)


def _sliced(index: Tensor, m: int, total: int, behind: str, position: int) -> str:
    row = f"row {int(index[position])} at position {position} of M={m} (a slice, {behind} behind it)"
    return f"{row} has other bits than in M={total}"


def _followed(index: Tensor, m: int, behind: str, position: int) -> str:
    row = f"row {int(index[position])} at position {position} of M={len(index)}"
    return f"{row} has other bits when the rows from {m} on are {behind}"


def _again(bench: Bench, rows: tuple[Tensor, ...], kept: Tensor, found: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return only(kept, found, bench.run(rows))


CHECK = Prefix()
