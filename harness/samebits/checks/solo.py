"""A row of a full batch has the bits it has alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from samebits.checks.slots import unmovable
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench


class Solo:
    """Every row of the pool at M = 1, against the whole pool in order and shuffled, and the largest batch."""

    id = "solo"
    title = "A row has the same bits alone and in a full batch"

    def applies(self, bench: Bench) -> str | None:
        """Needs rows that may sit anywhere, and a second batch size."""
        return unmovable(bench)

    def run(self, bench: Bench) -> CheckResult:
        """A few launches, each row compared with its own launch at M = 1."""
        rec = bench.open(self.id)
        pairs = 0
        for name, index in _batches(bench):
            m = len(index)
            rows, at = bench.rows_at(index), index.to(bench.device)

            def sentence(p: int, index: Tensor = index, name: str = name) -> str:
                where = f"position {p} of {name} (M={len(index)})"
                return f"row {int(index[p])} has other bits at {where} than alone (M=1)"

            alone = tuple(y.index_select(0, at) for y in bench.solo)
            rec.compare(
                bench.run(rows),
                alone,
                sentence,
                rows=index,
                batch=m,
                against=1,
                again=partial(bench.run, rows),
            )
            pairs += m
        largest = bench.max_batch
        return rec.close(
            coverage=f"all {bench.probes} rows of the pool, in order and shuffled, and a batch of M={largest}",
            pairs=pairs,
            power=rec.order_power(),
        )

    def control(self) -> Subject:
        """Row dot products that take another path for a single row: two chains instead of one.

        Stands for GEMV kernels at M = 1, as in torch's own CPU `F.linear`.
        """
        import torch

        w = torch.randn(64, generator=torch.Generator().manual_seed(6))

        def gemv_at_one(x: Tensor) -> Tensor:
            chains = 2 if x.shape[0] == 1 else 1
            sums = torch.zeros(chains, x.shape[0])
            for k in range(x.shape[1]):
                sums[k % chains] += x[:, k] * w[k]
            return sums[0] + sums[1] if chains == 2 else sums[0]

        rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(7))
        return Subject(gemv_at_one, (rows,), name="GEMV at M=1", addends=64, derive=False)


def _batches(bench: Bench) -> Iterator[tuple[str, Tensor]]:
    """(name, pool index of each position): the pool, cut where it is larger than the largest batch."""
    import torch

    generator = torch.Generator().manual_seed(bench.seed)
    for order, name in (
        (torch.arange(bench.probes), "the pool in order"),
        (torch.randperm(bench.probes, generator=generator), "the pool shuffled"),
    ):
        for start in range(0, bench.probes, bench.max_batch):
            yield name, order[start : start + bench.max_batch]
    if bench.max_batch > bench.probes:
        yield "the largest batch", torch.arange(bench.max_batch) % bench.probes


CHECK = Solo()
