"""The same launch gives the same bits every time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits.checks.disturb import ways
from samebits.engine import bits
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

LAUNCHES = 104
"""A launch that flips with probability 1/8 is then seen with probability 1 - 1e-6."""
FEWEST = 8
"""However slow the launches are."""
SIZES = (1, 241)
"""Batch sizes besides the pool."""
STRIDE = 16
"""Launches between two looks at the clock, which wait for the device."""


class Repeat:
    """One launch many times: in a row, over dirty memory, beside other work. Any difference is flaky."""

    id = "repeat"
    title = "The same launch gives the same bits every time"

    def applies(self, bench: Bench) -> str | None:
        """Always."""
        return None

    def run(self, bench: Bench) -> CheckResult:
        """As many launches as see a flip rate of 1/8, at a few M, as far as the budget allows."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)})
        made = {m: _repeat(rec, m, 1 / len(sizes)) for m in sizes}
        fewest = min(made.values())
        counts = str(fewest) if fewest == max(made.values()) else f"{fewest}..{max(made.values())}"
        names = ", ".join(ways(bench, (), ()))
        if fewest < LAUNCHES:
            rec.notes.append(f"the budget of {bench.budget:g} s allowed {counts} of {LAUNCHES} launches")
        listed = ", ".join(map(str, sizes))
        seen = f"bits that flip in {rate(fewest):.1%} of the launches are seen with probability 1 - 1e-6"
        return rec.close(
            coverage=f"{counts} launches each at M in {{{listed}}} ({names}): {seen}",
            pairs=sum(m * n for m, n in made.items()),
            power=rec.order_power(),
        )

    def control(self) -> Subject:
        """Row sums of four partial sums, added in another order at each launch.

        Stands for floating-point atomics: partial sums are added as they arrive.
        """
        import torch

        arrival = torch.Generator().manual_seed(13)

        def atomics(x: Tensor) -> Tensor:
            partial = x.chunk(4, dim=1)
            total = torch.zeros(x.shape[0])
            for i in torch.randperm(4, generator=arrival).tolist():
                for k in range(partial[i].shape[1]):
                    total = total + partial[i][:, k]
            return total

        rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(14))
        return Subject(atomics, (rows,), name="arrival order", addends=64, derive=False)


def rate(launches: int) -> float:
    """The flip probability of one launch that `launches` of them show with probability 1 - 1e-6."""
    return -math.expm1(math.log(1e-6) / launches)


def _repeat(rec: Record, m: int, share: float) -> int:
    """Repeat the launch of size m; how often it was made. A difference becomes a finding."""
    bench = rec.bench
    index, rows = bench.batch(m)
    first = tuple(y.clone() for y in bench.run(rows))
    turns = list(ways(bench, rows, first).items())
    seen = _First(first, LAUNCHES)
    bench.synchronise()
    start = time.perf_counter()
    made = 1
    while made < LAUNCHES:
        if made >= FEWEST and made % STRIDE == 0:
            bench.synchronise()
            if bench.spent(start, share):
                break
        seen.add(made, turns[made % len(turns)][1](lambda: bench.run(rows)))
        made += 1
    counts = seen.read()
    if not any(counts):
        return made
    differing = [i for i, n in enumerate(counts) if n]
    per_way = {name: sum(1 for i in differing if i % len(turns) == w) for w, (name, _) in enumerate(turns)}
    rec.compare(
        seen.found(),
        first,
        lambda p: f"row {int(index[p])} at position {p} of M={m}: {len(differing)} of {made - 1} repeats differ",
        rows=index,
        batch=m,
        against=m,
        details={"launches": made, "differing launches": len(differing), "by circumstance": per_way},
    )
    rec.flaky = True
    return made


class _First:
    """Counts the launches that differ from `expected`, and keeps the first that did; nothing is synchronised."""

    def __init__(self, expected: Sequence[Tensor], launches: int) -> None:
        import torch

        self._expected = tuple(expected)
        self._bits = [bits.as_bits(e) for e in expected]
        self._kept = [b.clone() for b in self._bits]
        device = expected[0].device
        self._counts = torch.zeros(launches, dtype=torch.int64, device=device)
        self._unseen = torch.ones((), dtype=torch.bool, device=device)
        self._odd: tuple[Tensor, ...] | None = None

    def add(self, launch: int, found: Sequence[Tensor]) -> None:
        import torch

        if any(f.shape != e.shape or f.dtype != e.dtype for f, e in zip(found, self._expected, strict=True)):
            self._odd = self._odd or tuple(y.clone() for y in found)
            self._counts[launch] += 1
            return
        now = [bits.as_bits(f) for f in found]
        differing = sum(((a != b).sum() for a, b in zip(now, self._bits, strict=True)), self._counts.new_zeros(()))
        take = self._unseen & (differing > 0)
        self._kept = [torch.where(take, a, k) for a, k in zip(now, self._kept, strict=True)]
        self._unseen = self._unseen & ~take
        self._counts[launch] += differing

    def read(self) -> list[int]:
        """Differing elements per launch. Synchronises."""
        return [int(n) for n in self._counts.tolist()]

    def found(self) -> tuple[Tensor, ...]:
        """The outputs of the first launch that differed."""
        if self._odd is not None:
            return self._odd
        return tuple(k.view(e.dtype).reshape(e.shape) for k, e in zip(self._kept, self._expected, strict=True))


CHECK = Repeat()
