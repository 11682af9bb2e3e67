"""The layout of the rows in memory picks no other arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from samebits.checks.poison import Block, contiguous_stride
from samebits.engine.result import CheckResult, Power
from samebits.engine.subject import Subject
from samebits.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

Outputs = tuple["Tensor", ...]
Make = Callable[[], Outputs]
"""Lays the row inputs out afresh."""
SIZES = (1, 3, 17)
"""Batch sizes besides the whole pool."""
VECTOR = 16
"""Bytes of the widest load that kernels choose by alignment."""
LINE = 64
"""Bytes to which every allocator aligns; a base pointer is compared modulo this."""


class RefusedError(Exception):
    """The subject itself raised: it does not take this layout."""


def layouts(shape: Sequence[int], size: int) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """(name, stride, offset), both in elements, of every layout tried for rows [M, ...] of `size` bytes each."""
    plain = contiguous_stride(shape)
    row = max(1, math.prod(shape[1:]))
    offset = 1
    while offset * size <= VECTOR:
        yield f"base pointer {offset * size} bytes further", plain, offset
        offset *= 2
    for name, gap in (("1 element", 1), (f"{VECTOR} bytes", max(1, VECTOR // size)), ("1 row", row)):
        yield f"a gap of {name} behind each row", (row + gap, *plain[1:]), 0
    if len(shape) > 1:
        yield "every second element of a wider row", tuple(2 * s for s in plain), 0
        yield "transposed storage", (1, *(s * shape[0] for s in plain[1:])), 0


class Layout:
    """Same values at another row stride, offset, alignment or storage order: the same bits."""

    id = "layout"
    title = "A row has the same bits whatever its stride, storage offset and alignment"

    def applies(self, bench: Bench) -> str | None:
        """Always."""
        return None

    def run(self, bench: Bench) -> CheckResult:
        """Every layout at a few batch sizes, all row inputs at once; where that is refused, one at a time."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)})
        taken: dict[str, int] = {}
        refused: dict[str, str] = {}
        pairs = 0
        for m in sizes:
            index, rows = bench.batch(m)
            expected = tuple(y.clone() for y in bench.run(rows))
            for name, make in _launches(bench, index):
                inputs = make()
                try:
                    found = _launch(bench, inputs)
                except RefusedError as error:
                    refused.setdefault(name, str(error.__cause__).split("\n", 1)[0][:120])
                    continue
                except UsageError as error:
                    rec.contract(f"with {name} at M={m}: {error}".replace("\n", "; "), batch=m)
                    continue
                taken[name] = taken.get(name, 0) + 1
                pairs += m
                _compare(rec, name, index, (found, expected, inputs), make)
        never = [name for name in refused if name not in taken]
        if never:
            rec.notes.append("refused by the subject: " + "; ".join(f"{n} ({refused[n]})" for n in never))
        if refused and not taken and not rec.findings:
            return rec.skip(f"the subject takes contiguous rows only: it refused all {len(refused)} layouts")
        return rec.close(
            coverage=f"{len(taken)} layouts at M in {{{', '.join(map(str, sizes))}}}: {', '.join(taken)}",
            pairs=pairs,
            power=_power(bench, len(taken)),
        )

    def control(self) -> Subject:
        """Row sums whose loads are four lanes wide where 16-byte alignment allows, and scalar elsewhere.

        Stands for vector paths chosen by alignment, and for torch's own `x ** 2.3`, which takes a vectorised
        routine on contiguous memory and a scalar one on a strided column.
        """
        import torch

        def row_sum(x: Tensor) -> Tensor:
            row_bytes = x.stride(0) * x.element_size()
            wide = x.stride(1) == 1 and x.data_ptr() % VECTOR == 0 and row_bytes % VECTOR == 0
            lanes = 4 if wide else 1
            parts = torch.zeros(x.shape[0], lanes)
            for start in range(0, x.shape[1], lanes):
                parts = parts + x[:, start : start + lanes]
            return parts.sum(dim=1, keepdim=True)

        rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(5))
        return Subject(row_sum, (rows,), name="lanes by alignment", addends=64, derive=False)


def _compare(rec: Record, name: str, index: Tensor, launch: tuple[Outputs, Outputs, Outputs], make: Make) -> None:
    m = len(index)
    found, expected, inputs = launch

    def sentence(p: int) -> str:
        return f"row {int(index[p])} at position {p} of M={m} has other bits with {name} than contiguous"

    rec.compare(
        found,
        expected,
        sentence,
        rows=index,
        batch=m,
        against=m,
        again=lambda: rec.bench.run(make()),
        details={"layout": name, "strides": [list(t.stride()) for t in inputs]},
    )


def _launches(bench: Bench, index: Tensor) -> Iterator[tuple[str, Make]]:
    """(name, make): a layout of all row inputs at once and, with several of them, of each alone.

    `make` lays fresh copies, so that a subject that writes into its inputs is blamed for that elsewhere.
    """
    rows = bench.rows_at(index)
    options = [{name: rest for name, *rest in layouts(t.shape, t.element_size())} for t in rows]
    for name in dict.fromkeys(name for option in options for name in option):
        places: list[Any] = [option.get(name) for option in options]
        moved = [i for i, t in enumerate(rows) if places[i] and _differs(_place(t, *places[i]), t)]

        if moved:
            yield name, partial(_make, bench, index, places, moved)
        if len(rows) > 1:
            for i in moved:
                yield f"{name} (row input {i} only)", partial(_make, bench, index, places, [i])


def _make(bench: Bench, index: Tensor, places: list[Any], moved: Sequence[int]) -> Outputs:
    fresh = bench.rows_at(index)
    return tuple(_place(t, *places[i]) if i in moved else t for i, t in enumerate(fresh))


def _place(values: Tensor, stride: tuple[int, ...], offset: int) -> Tensor:
    """The values at this stride and offset; what lies between and behind them is 0xFF."""
    block = Block(values.shape, values.dtype, values.device, stride=stride, before=offset, after=VECTOR)
    return block.write(values)


def _differs(moved: Tensor, plain: Tensor) -> bool:
    """Whether the memory layouts really differ: strides that are used, or the alignment of the base pointer."""
    used = [i for i, n in enumerate(plain.shape) if n > 1]
    strides = any(moved.stride(i) != plain.stride(i) for i in used)
    return strides or moved.data_ptr() % LINE != plain.data_ptr() % LINE


def _launch(bench: Bench, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    def guarded(*rows: Tensor) -> Any:
        try:
            result = bench.subject.fn(*rows)
            bench.synchronise()
        except (ValueError, RuntimeError, TypeError, UsageError) as error:
            # A misaligned access is reported as a RuntimeError too, and is a crash, not a refusal.
            if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
                raise
            raise RefusedError from error
        return result

    return bench.run(inputs, guarded)


def _power(bench: Bench, taken: int) -> Power:
    elements = bench.elements
    if not taken:
        return Power(False, elements, None, "no layout differed from the contiguous one on these rows")
    return Power(True, elements, None, f"strides and alignment of {taken} layouts differ from contiguous rows")


CHECK = Layout()
