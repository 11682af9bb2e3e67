"""What other rows of a batch may hold, when only what they hold may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

COPIES = 3
"""Probes of which all changed rows become copies: in a routed kernel all tokens then take the same experts."""


@dataclass(frozen=True)
class Content:
    """One batch in which the changed rows hold something else.

    Attributes:
        name: for messages.
        rows: the batch, row inputs [M, ...].
        drawn: every row is one of the pool: a subject that refuses it refuses its own rows.
    """

    name: str
    rows: tuple[Tensor, ...]
    drawn: bool


def contents(bench: Bench, index: Tensor, changed: Tensor, names: tuple[str, ...] = ()) -> Iterator[Content]:
    """Batches that agree with the pool rows `index` [M] except where `changed` (bool [M]) holds.

    Args:
        names: only these; empty: all that the subject allows. `derive=False` allows rows of the pool only, and
            integer, packed and 8-bit inputs are always drawn from it: any other code could be invalid.
    """
    for name, at in _drawn(bench, index, changed):
        if not names or name in names:
            yield Content(name, bench.rows_at(at), True)
    if not bench.subject.derive or not any(_plain(t) for t in bench.pool):
        return
    where = changed.to(bench.device)
    for name, fill in _fills(bench.seed).items():
        if not names or name in names:
            rows = bench.rows_at(index)
            for t in rows:
                if _plain(t):
                    t[where] = fill(t[where])
            yield Content(name, rows, False)


def limits(bench: Bench) -> list[str]:
    """The note that says why `contents` is confined to rows of the pool, if it is."""
    if not bench.subject.derive:
        return ["derive=False: only rows of the pool were tried, no NaN, Inf or large values"]
    if not any(_plain(t) for t in bench.pool):
        return ["no float row input of 16 bits or more: only rows of the pool were tried"]
    return []


def refused(content: Content, error: Exception) -> str:
    """The note about a subject that does not take a content.

    Raises:
        Exception: `error` itself, where the content is no excuse for it.
    """
    if content.drawn or isinstance(error, UsageError) or "CUDA error" in str(error):
        raise error
    reason = str(error).split("\n", 1)[0][:120]
    return f"{content.name}: refused by the subject, so not checked ({type(error).__name__}: {reason})"


def _drawn(bench: Bench, index: Tensor, changed: Tensor) -> Iterator[tuple[str, Tensor]]:
    import torch

    def put(other: Tensor | int) -> Tensor:
        return torch.where(changed, other, index)

    generator = torch.Generator().manual_seed(bench.seed)
    yield "other rows", put((index + max(1, bench.probes // 2)) % bench.probes)
    yield "random rows", put(torch.randint(bench.probes, index.shape, generator=generator))
    for row in sorted({i * (bench.probes - 1) // (COPIES - 1) for i in range(COPIES)}):
        yield f"copies of row {row}", put(row)


def _fills(seed: int) -> dict[str, Callable[[Tensor], Tensor]]:
    import torch

    def noise(t: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(t.shape, dtype=torch.float64, generator=generator).to(t.dtype).to(t.device)

    def scaled(t: Tensor) -> Tensor:
        if t.is_complex():
            return t * 1000
        most = torch.finfo(t.dtype).max
        return (t.double() * 1000).clamp(-most, most).to(t.dtype)

    def full(value: float | None, sign: bool = False) -> Callable[[Tensor], Tensor]:
        def fill(t: Tensor) -> Tensor:
            filled = torch.full_like(t, torch.finfo(t.dtype).max if value is None else value)
            if sign:
                filled[..., 1::2] *= -1
            return filled

        return fill

    return {
        "other random values": noise,
        "values 1000 times as large": scaled,
        "the largest finite values": full(None, sign=True),
        "zeros": full(0.0),
        "NaN": full(torch.nan),
        "Inf": full(torch.inf),
        "Inf and -Inf": full(torch.inf, sign=True),
    }


def _plain(t: Tensor) -> bool:
    """Whether any value may be put in: real or complex floats of at least 16 bits."""
    return (t.dtype.is_floating_point or t.is_complex()) and t.element_size() > 1
