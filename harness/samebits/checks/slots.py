"""Rows and the slots they sit in: what the checks that move rows, or change their neighbours, share."""

from __future__ import annotations

import dataclasses
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


def slot_power(rec: Record, changed: int, what: str = "no row moved to a slot that held other bits") -> Power:
    """Power of a check that needs rows that can be told apart and a change that could have shown.

    Args:
        rec: the check's record.
        changed: how many slots (or neighbours) really held other bits than in the launch compared with.
        what: the reason where that is 0.
    """
    order = rec.order_power()
    if rec.bench.distinct < 2:
        return dataclasses.replace(
            order, sees=False, how="all rows give equal bits: none can be told from another"
        )
    return dataclasses.replace(order, sees=False, how=what) if changed == 0 else order


def differing_positions(found: Sequence[Tensor], expected: Sequence[Tensor]) -> list[int]:
    """Positions at which any output differs, ascending. Outputs of other shapes are passed over. Synchronises."""
    places: set[int] = set()
    for f, e in zip(found, expected, strict=True):
        if f.shape == e.shape and f.dtype == e.dtype:
            places.update(bits.differing_rows(f, e).nonzero().reshape(-1).tolist())
    return sorted(places)


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
