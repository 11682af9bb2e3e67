"""What ran before leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from samebits.engine import bits
from samebits.engine.result import CheckResult, Power
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

SIZES = (1, 2, 3, 16, 17, 33)
"""Batch sizes besides the pool and `LARGEST`."""
LARGEST = 257
"""The batch that leaves the most behind, as far as `max_batch` allows."""

Step = Callable[[], "tuple[Tensor, ...]"]


class History:
    """Small, large, small again; large, small; another pool in between: a size keeps its bits."""

    id = "history"
    title = "A batch has the same bits whatever ran before it in the same process"

    def applies(self, bench: Bench) -> str | None:
        """Needs two batch sizes."""
        return "one batch size only: nothing larger could run before it" if bench.max_batch < 2 else None

    def run(self, bench: Bench) -> CheckResult:
        """Each size in ascending order, then again behind launches of other sizes and other rows."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes, LARGEST)})
        largest, half = sizes[-1], max(1, bench.probes // 2)
        first = {m: tuple(y.clone() for y in bench.run(bench.batch(m)[1])) for m in sizes}
        if bench.first is not None:
            alone = bench.rows_at([0])
            rec.compare(
                bench.run(alone),
                bench.first,
                "row 0 alone had other bits in the very first launch, before any batch",
                rows=[0],
                batch=1,
                against=1,
                again=lambda: bench.run(alone),
            )

        steps: dict[str, Step] = {
            f"a larger batch of other rows (M={largest})": lambda: bench.run(bench.batch(largest, half)[1]),
            f"a smaller batch of other rows (M={sizes[0]})": lambda: bench.run(bench.batch(sizes[0], half)[1]),
            f"a batch of the same rows (M={largest})": lambda: bench.run(bench.batch(largest)[1]),
        }
        if bench.subject.derive and any(t.dtype.is_floating_point for t in bench.pool):
            steps[f"a batch of NaN (M={largest})"] = lambda: bench.run(_nan(bench.batch(largest)[1]))
        content = False
        for name, before in steps.items():
            for m in reversed(sizes):
                try:
                    left = before()
                except (ValueError, RuntimeError) as error:
                    if "CUDA error" in str(error) or "NaN" not in name:
                        raise
                    rec.notes.append(f"rows of NaN refused by the subject: {str(error).splitlines()[0][:120]}")
                    break
                content = content or _shows(left, first[min(m, left[0].shape[0])] if left else ())
                index, rows = bench.batch(m)
                found = bench.run(rows)
                _compare(rec, name, before, index, found, first[m])
        if bench.subject.reset is None:
            rec.notes.append("no reset: what earlier checks left may hide what only a first launch shows")
        listed = ", ".join(map(str, sizes))
        return rec.close(
            coverage=f"M in {{{listed}}}, each behind {'; '.join(steps)}",
            pairs=len(steps) * sum(sizes),
            power=_power(bench, content),
        )

    def control(self) -> Subject:
        """A per-tile scale over a workspace of 16-row tiles: rows behind the batch are the last batch's.

        Stands for workspaces that are allocated once for the largest batch and not cleared for a smaller one.
        """
        import torch

        tile = 16
        state = {"workspace": torch.zeros(0, 24)}

        def scaled(x: Tensor) -> Tensor:
            padded = -(-x.shape[0] // tile) * tile
            if state["workspace"].shape[0] < padded:
                state["workspace"] = torch.zeros(padded, x.shape[1])
            work = state["workspace"][:padded]
            work[: x.shape[0]] = x
            largest = work.abs().reshape(-1, tile * x.shape[1]).amax(dim=1)
            return x / largest.repeat_interleave(tile)[: x.shape[0], None]

        def reset() -> None:
            state["workspace"] = torch.zeros(0, 24)

        rows = torch.randn(12, 24, generator=torch.Generator().manual_seed(11))
        return Subject(scaled, (rows,), name="stale workspace", reset=reset, derive=False)


def _compare(rec: Record, name: str, before: Step, index: Tensor, *sides: tuple[Tensor, ...]) -> None:
    m, bench = len(index), rec.bench

    def sentence(p: int) -> str:
        return f"row {int(index[p])} at position {p} of M={m} has other bits behind {name} than at first"

    def again() -> tuple[Tensor, ...]:
        # A stale state shows only behind the launch that left it: repeat both.
        before()
        return bench.run(bench.batch(m)[1])

    found, expected = sides
    rec.compare(
        found,
        expected,
        sentence,
        rows=index,
        batch=m,
        against=m,
        again=again,
        details={"ran before": name},
    )


def _nan(rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    import torch

    plain = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return tuple(torch.full_like(t, torch.nan) if t.dtype in plain else t for t in rows)


def _shows(left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> bool:
    """Whether what a launch leaves behind differs in bits from what the next one computes at the same place."""
    m = min((y.shape[0] for y in (*left, *right)), default=0)
    return any(not bits.same(a[:m], b[:m]) for a, b in zip(left, right, strict=True))


def _power(bench: Bench, content: bool) -> Power:
    if not content:
        how = "launches in between give the same bits: what they leave behind could not show"
        return Power(False, bench.elements, None, how)
    return Power(True, bench.elements, None, "launches in between leave other bits behind")


CHECK = History()
