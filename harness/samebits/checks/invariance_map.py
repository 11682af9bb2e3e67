"""Which batch sizes share bits: one row, kept at one position, over many M."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samebits.checks.slots import spans
from samebits.engine import bits

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

CHUNK = 64
"""Launches between two synchronisations."""


def invariance_map(bench: Bench, row: int, position: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Bit classes of probe `row` at `position`, for as many of `sizes` as the budget allows, in their order.

    Returns:
        JSON-able: "map": [[first M, last M, class], ...], ascending, class 0 has the row's bits at M = 1;
        "classes": the spans of M of each class; "edges": each M whose class differs from that of the size
        before it; "map row", "map position": what was followed; "unmapped": spans left out, if any.
    """
    classes: dict[tuple[int, ...], int] = {}
    found: dict[int, int] = {}

    def classify(ms: Sequence[int], rows: list[list[Tensor]]) -> None:
        for m, digest in zip(ms, _digests(rows), strict=True):
            found[m] = classes.setdefault(digest, len(classes))

    classify([1], [[y[row] for y in bench.solo]])
    todo = [m for m in sizes if m > max(1, position)]
    _, tape = bench.batch(max(todo, default=1), shift=row - position)
    start = time.perf_counter()
    for at in range(0, len(todo), CHUNK):
        if at and bench.spent(start):  # the digests just read have synchronised
            break
        ms = todo[at : at + CHUNK]
        classify(ms, [[y[position].clone() for y in bench.run([t[:m] for t in tape])] for m in ms])
    covered = sorted(found)
    parts: list[list[int]] = []
    for m in covered:
        if parts and parts[-1][1] == m - 1 and parts[-1][2] == found[m]:
            parts[-1][1] = m
        else:
            parts.append([m, m, found[m]])
    details: dict[str, Any] = {
        "map": parts,
        "classes": [spans(m for m in covered if found[m] == c) for c in range(len(classes))],
        "edges": [m for before, m in itertools.pairwise(covered) if found[m] != found[before]],
        "map row": row,
        "map position": position,
    }
    if left := sorted(set(todo) - set(covered)):
        details["unmapped"] = spans(left)
    return details


def _digests(rows: list[list[Tensor]]) -> list[tuple[int, ...]]:
    """One tuple (a digest per output) for each launch. Synchronises."""
    import torch

    columns = []
    for outputs in zip(*rows, strict=True):
        stacked = torch.stack([bits.as_bits(y[None])[0] for y in outputs])
        columns.append(bits.digest_rows(stacked).tolist())
    return list(zip(*columns, strict=True))
