"""The invariance map of a finding, as segments of M that a report can draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEYS = ("invariance_map", "invariance map", "map")


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
    """The map in a finding's details: `[[first, last, class], ...]` or `{M: class}`; empty where there is none.

    Classes are renumbered in the order in which they first appear, so class 0 is that of the smallest M.
    """
    found = next((details[k] for k in KEYS if details.get(k)), None)
    if isinstance(found, Mapping) and "segments" in found:
        found = found["segments"]
    raw: list[tuple[int, int, Any]] = []
    if isinstance(found, Mapping):
        for m, bits in sorted((int(m), bits) for m, bits in found.items()):
            if raw and raw[-1][2] == bits and raw[-1][1] == m - 1:
                raw[-1] = (raw[-1][0], m, bits)
            else:
                raw.append((m, m, bits))
    elif isinstance(found, list) and all(isinstance(s, (list, tuple)) and len(s) == 3 for s in found):
        raw = sorted((int(a), int(b), c) for a, b, c in found)
    names: dict[Any, int] = {}
    return [Segment(a, b, names.setdefault(c, len(names))) for a, b, c in raw]


def letter(bits: int) -> str:
    """A name for a bit class: A..Z, then A1..."""
    return chr(65 + bits % 26) + (str(bits // 26) if bits >= 26 else "")


def words(parts: list[Segment], most: int = 12) -> str:
    """ "A: M = 1 · B: M = 2..3 · C: M = 4..256", at most `most` segments."""
    shown = " · ".join(f"{letter(s.bits)}: M = {s.words}" for s in parts[:most])
    classes = len({s.bits for s in parts})
    rest = f" · and {len(parts) - most} more changes" if len(parts) > most else ""
    return f"{classes} bit classes. {shown}{rest}"
