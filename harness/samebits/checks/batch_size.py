"""A row has the same bits at every batch size and position."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from samebits.checks.invariance_map import CHUNK, invariance_map
from samebits.checks.slots import differing_positions, spans, unmovable
from samebits.engine import bits
from samebits.engine.plan import Coverage, covering, filling
from samebits.engine.result import CheckResult, Finding
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

TRIES = 3
"""Failing sizes that are launched again until one shows its difference a second time."""


@dataclass
class Sweep:
    """What one pass over the batch sizes saw."""

    order: list[int] = field(default_factory=list)
    """Sizes in the order in which they were launched."""
    differing: dict[int, int] = field(default_factory=dict)
    """M -> output elements that differ from M = 1; 0 for outputs of another shape or dtype."""

    @property
    def failing(self) -> list[int]:
        """Sizes with a difference, ascending."""
        return sorted(self.differing)


class BatchSize:
    """One launch per M, every row of it compared on the device with the bits of its probe at M = 1."""

    id = "batch-size"
    title = "A row has the same bits at every batch size and position"

    def applies(self, bench: Bench) -> str | None:
        """Needs rows that may sit anywhere, and a second batch size."""
        return unmovable(bench)

    def run(self, bench: Bench) -> CheckResult:
        """Every M up to a given bound; without one, a covering sample and then every M the budget allows."""
        rec = bench.open(self.id)
        sweep = _sweep(bench)
        shown = _show(rec, sweep) if sweep.failing else None
        if shown is not None and not rec.flaky:
            rest = sorted(set(sweep.order) - set(sweep.failing))
            details = invariance_map(bench, *shown, [*sweep.failing, *rest])
            rec.findings[0].details.update(details)
            if "unmapped" in details:
                rec.notes.append(f"the budget of {bench.budget:g} s did not reach every M of the invariance map")
        if bench.distinct < 2:
            rec.notes.append("all probes give equal bits: rows that leak into each other cannot show")
        coverage = Coverage(set(sweep.order))
        return rec.close(coverage=coverage.words(), pairs=coverage.pairs, power=rec.order_power())

    def control(self) -> Subject:
        """A row-wise GEMM that splits K in four for M >= 25.

        Stands for split-K and tile shapes chosen from M, the most frequent public fault.
        """
        import torch

        generator = torch.Generator().manual_seed(2)
        w = torch.randn(96, 32, generator=generator)
        rows = torch.randn(16, 96, generator=generator)

        def split_by_m(x: Tensor) -> Tensor:
            parts = 4 if x.shape[0] >= 25 else 1
            length = x.shape[1] // parts
            total = torch.zeros(x.shape[0], w.shape[1])
            for start in range(0, x.shape[1], length):
                partial = torch.zeros_like(total)
                for k in range(start, start + length):
                    partial = partial + x[:, k : k + 1] * w[k]
                total = total + partial
            return total

        return Subject(split_by_m, (rows,), name="split-K by M", addends=96, derive=False)


def _sweep(bench: Bench) -> Sweep:
    fixed = list(range(1, bench.max_batch + 1)) if bench.exhaustive else covering(bench.max_batch)
    sweep = Sweep()
    tally = bits.Tally(bench.max_batch + 1, bench.device)
    for m in fixed:
        _launch(bench, sweep, tally, m)
    if not bench.exhaustive:
        # Reading the clock means waiting for the device: free on the CPU, once in a while elsewhere.
        stride = 1 if bench.device.type == "cpu" else CHUNK
        bench.synchronise()
        start = time.perf_counter()
        for i, m in enumerate(filling(bench.max_batch)):
            if i % stride == 0:
                bench.synchronise()
                if bench.spent(start):
                    break
            _launch(bench, sweep, tally, m)
    sweep.differing.update((m, n) for m, n in enumerate(tally.read()) if n)
    return sweep


def _launch(bench: Bench, sweep: Sweep, tally: bits.Tally, m: int) -> None:
    _, rows, expected = bench.sweep(m)
    found = bench.run(rows)
    sweep.order.append(m)
    for f, e in zip(found, expected, strict=True):
        if f.shape == e.shape and f.dtype == e.dtype:
            tally.add(m, f, e)
        else:
            sweep.differing[m] = 0


def _show(rec: Record, sweep: Sweep) -> tuple[int, int] | None:
    """Launch failing sizes again, smallest first, until one differs again: (probe, position) that does."""
    for m in sweep.failing[:TRIES]:
        first = len(rec.findings)
        place = _again(rec, sweep, m)
        if len(rec.findings) == first:
            place = _behind(rec, sweep, m)
        if len(rec.findings) == first:
            _unrepeatable(rec, sweep, m)
            continue
        rec.findings[first].details["failing"] = spans(sweep.failing)
        rec.findings[:] = rec.findings[first:] + rec.findings[:first]  # what can be repeated comes first
        return place
    return None


def _again(rec: Record, sweep: Sweep, m: int, before: int | None = None) -> tuple[int, int] | None:
    """Repeat the launch of size m (behind one of size `before`); a finding where it differs again."""
    bench = rec.bench
    shift, rows, expected = bench.sweep(m)
    index = [(shift + i) % bench.probes for i in range(m)]
    behind = "" if before is None else f" behind a launch of M={before}"

    def launch() -> tuple[Tensor, ...]:
        if before is not None:
            bench.run(bench.sweep(before)[1])
        return bench.run(rows)

    found = launch()
    places = differing_positions(found, expected)
    details: dict[str, Any] = {"positions": spans(places), "elements in the sweep": sweep.differing[m]}
    rec.compare(
        found,
        expected,
        lambda p: f"row {index[p]} at position {p} of M={m}{behind} has other bits than alone (M=1)",
        rows=index,
        batch=m,
        against=1,
        again=launch,
        details=details,
    )
    return (index[places[0]], places[0]) if places else None


def _behind(rec: Record, sweep: Sweep, m: int) -> tuple[int, int] | None:
    """A launch that differed once may depend on the one before it, which is no flake: repeat both."""
    at = sweep.order.index(m)
    return _again(rec, sweep, m, before=sweep.order[at - 1]) if at else None


def _unrepeatable(rec: Record, sweep: Sweep, m: int) -> None:
    rec.flaky = True
    rec.findings.append(
        Finding(
            rec.check,
            "value",
            f"a launch of M={m} gave other bits than M=1, and the expected ones when it was repeated",
            batch=m,
            against=1,
            mismatched=sweep.differing[m],
            details={"failing": spans(sweep.failing)},
        )
    )


CHECK = BatchSize()
