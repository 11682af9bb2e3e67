"""Rows and the slots they sit in: what the checks that move rows, or change their neighbours, share."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from samebits.engine import bits
from samebits.engine.result import Power

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record


def unmovable(bench: Bench) -> str | None:
    """Why no check that compares a row with itself elsewhere can be made, or None."""
    if not bench.subject.position_free:
        return "position_free=False: outputs may depend on where a row sits"
    return "max_batch is 1: a row has no neighbours" if bench.max_batch < 2 else None


def slot_power(rec: Record, changed: int, what: str) -> Power:
    """Power of a check that moves rows, or changes others: `changed` counts where that gave other bits.

    `what` is the reason where it is 0: rows that all give equal bits can be moved unseen.
    """
    order = rec.order_power()
    return order if changed else dataclasses.replace(order, sees=False, how=what)


def differing_positions(found: Sequence[Tensor], expected: Sequence[Tensor]) -> list[int]:
    """Positions at which any output differs, ascending. Outputs of other shapes are passed over. Synchronises."""
    places: set[int] = set()
    for f, e in zip(found, expected, strict=True):
        if f.shape == e.shape and f.dtype == e.dtype:
            places.update(bits.differing_rows(f, e).nonzero().reshape(-1).tolist())
    return sorted(places)


def usual(index: Sequence[int], found: Sequence[Tensor]) -> list[int]:
    """For each position the first one whose equal row has the bits that most of its equals have. Synchronises.

    Args:
        index: pool row at each position.
        found: outputs of one launch, each [M, ...].
    """
    digests = list(zip(*(bits.digest_rows(y).tolist() for y in found), strict=True))
    groups: dict[int, list[int]] = {}
    for position, row in enumerate(index):
        groups.setdefault(row, []).append(position)
    first: dict[int, int] = {}
    for row, positions in groups.items():
        most = Counter(digests[p] for p in positions).most_common(1)[0][0]
        first[row] = next(p for p in positions if digests[p] == most)
    return [first[row] for row in index]


def spans(values: Iterable[int]) -> list[list[int]]:
    """[[first, last], ...] of sorted integers: ranges as JSON."""
    out: list[list[int]] = []
    for v in values:
        if out and v == out[-1][1] + 1:
            out[-1][1] = v
        else:
            out.append([v, v])
    return out


def only(kept: Tensor, found: Sequence[Tensor], base: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`found`, with the rows marked in `kept` (bool [M]) taken from `base` bit for bit."""
    out = []
    for f, b in zip(found, base, strict=True):
        if f.shape != b.shape or f.dtype != b.dtype:
            out.append(b)
            continue
        expected = f.detach().contiguous().clone()
        bits.as_bits(expected)[kept] = bits.as_bits(b)[kept]  # as_bits of contiguous memory is a view of it
        out.append(expected)
    return tuple(out)
