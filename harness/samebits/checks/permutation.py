"""The order of the rows changes nothing but the order of the results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from samebits.checks.slots import differing_positions, slot_power, unmovable
from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

SIZES = (2, 5, 11, 17, 241, 256)
"""Batch sizes besides the pool: whole tiles, and tails of one row."""
SHUFFLES = 3
"""Random orders per batch size."""


class Permutation:
    """Reversed, evens before odds, and random: at one M, each row keeps its bits in another slot."""

    id = "permutation"
    title = "A row has the same bits in whatever order the rows of its batch come"

    def applies(self, bench: Bench) -> str | None:
        """Needs rows that may sit anywhere, and two of them."""
        return unmovable(bench)

    def run(self, bench: Bench) -> CheckResult:
        """Each order at a few M, against the same rows in the order of the pool."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)} - {1})
        moved = 0
        names: list[str] = []
        for m in sizes:
            index, rows = bench.batch(m)
            base = tuple(y.clone() for y in bench.run(rows))
            names = []
            for name, order in orders(m, bench.seed):
                names.append(name)
                shuffled, at = bench.rows_at(index[order]), order.to(bench.device)
                found = bench.run(shuffled)
                expected = tuple(y.index_select(0, at) for y in base)
                # Equal rows may change places unseen: only slots that now hold other bits count.
                moved += len(differing_positions(expected, base))

                def sentence(p: int, order: Tensor = order, index: Tensor = index, name: str = name) -> str:
                    was = int(order[p])
                    return (
                        f"row {int(index[was])} at position {p} of M={len(index)} ({name}) has other bits than at "
                        f"position {was} of the same batch"
                    )

                rec.compare(
                    found,
                    expected,
                    sentence,
                    rows=index[order],
                    batch=m,
                    against=m,
                    again=partial(bench.run, shuffled),
                    details={"order": name},
                )
        return rec.close(
            coverage=f"{len(names)} orders ({', '.join(names)}) at M in {{{', '.join(map(str, sizes))}}}",
            pairs=sum(sizes) * len(names),
            power=slot_power(rec, moved, "no row moved to a slot that had held other bits"),
        )

    def control(self) -> Subject:
        """Row sums whose last three rows of four are added up in four lanes, the first in one.

        Stands for edge kernels chosen by position: OpenBLAS sgemm gives 130 equal rows three results.
        """
        import torch

        def by_position(x: Tensor) -> Tensor:
            serial = torch.zeros(x.shape[0])
            lanes = torch.zeros(x.shape[0], 4)
            for k in range(0, x.shape[1], 4):
                for lane in range(4):
                    serial = serial + x[:, k + lane]
                lanes = lanes + x[:, k : k + 4]
            tail = torch.arange(x.shape[0]) % 4 == 0
            return torch.where(tail, serial, ((lanes[:, 0] + lanes[:, 1]) + lanes[:, 2]) + lanes[:, 3])

        rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(3))
        return Subject(by_position, (rows,), name="lanes by position", addends=64, derive=False)


def orders(m: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """(name, permutation [m]) of every order tried."""
    import torch

    yield "reversed", torch.arange(m - 1, -1, -1)
    yield "evens before odds", torch.cat([torch.arange(0, m, 2), torch.arange(1, m, 2)])
    generator = torch.Generator().manual_seed(seed)
    for i in range(SHUFFLES):
        yield f"random {i + 1}", torch.randperm(m, generator=generator)


CHECK = Permutation()
