"""Which batch sizes to launch.

A proof needs one launch per M: a configuration may key on any exact M, and edges measured on an H200 sit at
25, 32, 41, 48, 49. With a bound given, every M up to it is launched. Without one, a covering sample comes
first and every further M as long as the budget lasts; the report says exactly what was covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

ALWAYS = 64
"""Every M up to here is in every plan."""


@dataclass
class Coverage:
    """The batch sizes that were launched; within each, every position was compared."""

    sizes: set[int] = field(default_factory=set)

    @property
    def complete_to(self) -> int:
        """Largest B for which every M = 1..B was launched."""
        bound = 0
        while bound + 1 in self.sizes:
            bound += 1
        return bound

    @property
    def pairs(self) -> int:
        """Number of (M, position) pairs."""
        return sum(self.sizes)

    def words(self) -> str:
        """Exactly what was covered, for the report."""
        if not self.sizes:
            return "nothing"
        bound, top = self.complete_to, max(self.sizes)
        if bound == top:
            return f"all {self.pairs:,} (M, position) pairs, M = 1..{bound}"
        above = sorted(m for m in self.sizes if m > bound)
        listed = ranges(above)
        shown = listed if len(listed) <= 120 else f"{listed[:100]}... (all {len(above)} in the evidence)"
        start = f"every position for M = 1..{bound} and " if bound else "every position for "
        return f"{self.pairs:,} (M, position) pairs: {start}M in {{{shown}}}"


def ranges(values: Iterable[int]) -> str:
    """ "1..4, 8, 15..17" for sorted integers."""
    out: list[tuple[int, int]] = []
    for v in values:
        if out and v == out[-1][1] + 1:
            out[-1] = (out[-1][0], v)
        else:
            out.append((v, v))
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in out)


def covering(max_batch: int) -> list[int]:
    """1..64, and both sides of every power of two and of every multiple of 16, up to `max_batch`."""
    sizes = set(range(1, min(ALWAYS, max_batch) + 1)) | {max_batch}
    edges = set(range(16, max_batch + 1, 16))
    power = 1
    while power <= max_batch:
        edges.add(power)
        power *= 2
    for edge in edges:
        sizes |= {m for m in (edge - 1, edge, edge + 1) if 1 <= m <= max_batch}
    return sorted(sizes)


def filling(max_batch: int) -> list[int]:
    """What `covering` leaves out, in the order in which a budget is spent on it: from small to large."""
    covered = set(covering(max_batch))
    return [m for m in range(1, max_batch + 1) if m not in covered]
