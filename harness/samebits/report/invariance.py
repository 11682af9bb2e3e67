"""The invariance map of a finding, as segments of M that a report can draw."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEY = "map"
"""Of `Finding.details`: [[first M, last M, class], ...] (see `samebits.checks.invariance_map`)."""


@dataclass(frozen=True)
class Segment:
    """Batch sizes `first..last` for which a row has the bits of class `bits`."""

    first: int
    last: int
    bits: int

    @property
    def words(self) -> str:
        """ "17" or "2..16"."""
        return str(self.first) if self.first == self.last else f"{self.first}..{self.last}"


def segments(details: Mapping[str, Any]) -> list[Segment]:
    """The map in a finding's details; empty where there is none. Sizes between two segments were not launched.

    Classes are renumbered in the order in which they first appear, so class 0 is that of the smallest M.
    """
    names: dict[int, int] = {}
    found = sorted((int(a), int(b), int(c)) for a, b, c in details.get(KEY) or ())
    return [Segment(a, b, names.setdefault(c, len(names))) for a, b, c in found]


def merged(parts: Sequence[Segment]) -> list[Segment]:
    """Neighbours of the same class as one, whatever was left out between them."""
    out: list[Segment] = []
    for s in parts:
        if out and out[-1].bits == s.bits:
            out[-1] = Segment(out[-1].first, s.last, s.bits)
        else:
            out.append(s)
    return out


def letter(bits: int) -> str:
    """A name for a bit class: A..Z, then A1..."""
    return chr(65 + bits % 26) + (str(bits // 26) if bits >= 26 else "")


def words(parts: Sequence[Segment], most: int = 12) -> str:
    """ "3 bit classes. A: M = 1 · B: M = 2..3 · C: M = 4..256", at most `most` ranges."""
    ranges = merged(parts)
    shown = " · ".join(f"{letter(s.bits)}: M = {s.words}" for s in ranges[:most])
    classes = len({s.bits for s in parts})
    rest = f" · and {len(ranges) - most} more changes" if len(ranges) > most else ""
    gaps = any(b.first > a.last + 1 for a, b in itertools.pairwise(parts))
    sampled = " (not every M between was launched)" if gaps else ""
    return f"{classes} bit {'class' if classes == 1 else 'classes'}. {shown}{rest}{sampled}"
