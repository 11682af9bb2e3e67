"""What the other rows of a batch hold does not matter."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from samebits.checks.contents import contents, limits, refused
from samebits.checks.slots import differing_positions, only, slot_power, unmovable
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

SIZES = (2, 17, 241)
"""Batch sizes besides the pool."""
STEP = 7
"""Every seventh row keeps its place and values, over time at every residue of a tile."""


class Neighbours:
    """At one M and in the same slots, some rows stay; the others become larger, equal, zero, NaN, Inf."""

    id = "neighbours"
    title = "A row has the same bits whatever values its neighbours hold"

    def applies(self, bench: Bench) -> str | None:
        """Needs neighbours that may not matter."""
        return unmovable(bench)

    def run(self, bench: Bench) -> CheckResult:
        """Each content at a few M; the rows that stayed are compared with those of the unchanged batch."""
        import torch

        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)} - {1})
        tried: dict[str, None] = {}
        notes: dict[str, None] = {}
        changed = pairs = 0
        for m in sizes:
            index, rows = bench.batch(m)
            kept = torch.arange(m) % STEP == 0
            if m > STEP:
                kept[-1] = True
            on_device = kept.to(bench.device)
            base = tuple(y.clone() for y in bench.run(rows))
            for content in contents(bench, index, ~kept):
                try:
                    found = bench.run(content.rows)
                except Exception as error:  # whatever a kernel raises on values it does not take
                    notes[refused(content, error)] = None
                    continue
                found = tuple(y.clone() for y in found)
                tried[content.name] = None
                pairs += int(kept.sum())
                changed += len(differing_positions(found, only(on_device, base, found)))
                rec.compare(
                    found,
                    only(on_device, found, base),
                    partial(_sentence, index, content.name),
                    rows=index,
                    batch=m,
                    against=m,
                    again=partial(_again, bench, content.rows, on_device, found),
                    details={"neighbours": content.name},
                )
        rec.notes.extend([*notes, *limits(bench)])
        return rec.close(
            coverage=f"neighbours hold {', '.join(tried)}, at M in {{{', '.join(map(str, sizes))}}}",
            pairs=pairs,
            power=slot_power(rec, changed, "no neighbour gave other bits than in the unchanged batch"),
        )

    def control(self) -> Subject:
        """fp8 quantisation with one dynamic scale for the whole tensor.

        Stands for state that is shared across rows; permutations, and sweeps over batches that all hold the
        largest row, pass it.
        """
        import torch

        def dynamic_scale(x: Tensor) -> Tensor:
            scale = x.abs().amax() / 448
            return (x / scale).to(torch.float8_e4m3fn).float() * scale

        rows = torch.randn(16, 48, generator=torch.Generator().manual_seed(10))
        rows[5] *= 20
        return Subject(dynamic_scale, (rows,), name="per-tensor scale", derive=False)


def _sentence(index: Tensor, name: str, position: int) -> str:
    where = f"row {int(index[position])} at position {position} of M={len(index)}"
    return f"{where} has other bits when its neighbours hold {name}"


def _again(bench: Bench, rows: tuple[Tensor, ...], kept: Tensor, found: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The launch once more. Neighbours of NaN may hold any payload: only the rows that stayed say "flaky"."""
    return only(kept, found, bench.run(rows))


CHECK = Neighbours()
