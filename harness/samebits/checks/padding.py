"""Memory that is nobody's row cannot change a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from samebits.checks.poison import BYTES, RANDOM, guarded, pattern, word
from samebits.engine.record import MAX_FINDINGS
from samebits.engine.result import CheckResult, Power
from samebits.engine.subject import Kernel, Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

SIZES = (1, 3, 17, 65, 129)
"""Batch sizes besides the whole pool: all but the first leave a tail in every tile."""
ALLOCATIONS = {"cpu": tuple(1 << e for e in range(9, 21)), "cuda": tuple(1 << e for e in range(9, 26))}
"""Bytes of the blocks with which the allocator is made dirty: from 512 to 1 MiB and 32 MiB. On the CPU larger ones
come fresh, and zero, from the system."""
RANDOM_BYTE = 0xA7
"""What a named region, which takes one byte, gets for random."""


class Padding:
    """Rows around the batch, scale padding, workspaces and fresh allocations hold garbage: the same bits."""

    id = "padding"
    title = "A row has the same bits whatever lies around the batch, in padding and in uninitialised workspaces"

    def applies(self, bench: Bench) -> str | None:
        """Always: there is memory around every batch."""
        return None

    def run(self, bench: Bench) -> CheckResult:
        """Every region with every poison at a few batch sizes, against the same rows in plain memory."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)})
        regions: dict[str, int] = {}
        for m in sizes:
            index, rows = bench.batch(m)
            expected = tuple(y.clone() for y in _clean(bench, rows))
            for byte in BYTES:
                for region, launch in _regions(rec, bench, index, byte):
                    poisoned: list[int] = []
                    found = launch(poisoned)
                    if sum(poisoned):
                        regions[region] = regions.get(region, 0) + 1
                    _compare(rec, f"{region} holding {word(byte)}", index, (found, expected), launch)
        if not bench.subject.poisons:
            rec.notes.append("the subject names no regions of its own (poisons=): scale padding, workspaces")
        listed = ", ".join(map(str, sizes))
        named = "; ".join(f"{region} ({count} launches)" for region, count in regions.items())
        return rec.close(
            coverage=f"poisoned: {named or 'nothing'}; with {', '.join(map(word, BYTES))}; M in {{{listed}}}",
            pairs=sum(sizes) * len(BYTES),
            power=_power(bench, regions),
        )

    def control(self) -> Subject:
        """A scale per tile of four rows, loaded whole: the last tile reads what lies behind the batch.

        Stands for tile loads without a row mask; a public MoE kernel got NaN from scale padding this way.
        """
        import torch

        def scaled(x: Tensor) -> Tensor:
            m, n = x.shape
            padded = -(-m // 4) * 4
            room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
            tile = torch.zeros(padded, n)
            loaded = min(padded, room // n)
            tile[:loaded] = x.as_strided((loaded, n), (n, 1))
            scale = tile.abs().reshape(-1, 4 * n).amax(dim=1).repeat_interleave(4)[:m, None]
            return x / scale

        rows = torch.randn(6, 32, generator=torch.Generator().manual_seed(2))
        return Subject(scaled, (rows,), name="tile load without a row mask", derive=False)


Launch = Callable[[list[int]], "tuple[Tensor, ...]"]
"""Runs the batch; appends to its argument how many poisoned bytes or blocks were read back at launch."""


def _compare(rec: Record, poisoned: str, index: Tensor, sides: Any, launch: Launch) -> None:
    m = len(index)

    def sentence(p: int) -> str:
        return f"row {int(index[p])} at position {p} of M={m} has other bits with {poisoned}"

    found, expected = sides
    rec.compare(
        found,
        expected,
        sentence,
        rows=index,
        batch=m,
        against=m,
        again=lambda: launch([]),
        details={"poisoned": poisoned},
    )


def _regions(rec: Record, bench: Bench, index: Tensor, byte: int) -> Iterator[tuple[str, Launch]]:
    """(region, launch) of everything that can be poisoned for this subject."""
    yield "the rows in front of and behind the batch", partial(_around, rec, bench, index, byte)
    yield "fresh torch.empty workspaces", partial(_empty, bench, index, byte)
    yield "what the allocator hands out again", partial(_allocator, bench, index, byte)
    for name, kernel in bench.subject.poisons.items():
        yield name, partial(_named, bench, index, byte, kernel)


def _around(rec: Record, bench: Bench, index: Tensor, byte: int, seen: list[int]) -> tuple[Tensor, ...]:
    blocks = [guarded(t, byte) for t in bench.rows_at(index)]
    # Read back where it can hurt: at the launch, not at the allocation.
    seen += [block.raw.numel() for block in blocks if block.touched() == 0]
    found = _clean(bench, tuple(block.tensor for block in blocks))
    for i, block in enumerate(blocks):
        if len(rec.findings) < MAX_FINDINGS and (touched := block.touched()):
            m = block.shape[0]
            rec.contract(f"{touched} bytes around row input {i} were written in a launch of M={m}", batch=m)
    return found


def _empty(bench: Bench, index: Tensor, byte: int, seen: list[int]) -> tuple[Tensor, ...]:
    rows = bench.rows_at(index)
    with poisoned_empty(byte) as filled:
        found = bench.run(rows)
    seen += filled
    return found


def _allocator(bench: Bench, index: Tensor, byte: int, seen: list[int]) -> tuple[Tensor, ...]:
    import torch

    rows = bench.rows_at(index)
    sizes = ALLOCATIONS.get(bench.device.type, ALLOCATIONS["cpu"])
    dirty = [pattern(n, byte, bench.device) for n in sizes for _ in range(2)]
    del dirty
    # Sample blocks come back and go again: does this allocator recycle at all? malloc keeps its own links in
    # the first bytes of a free block, hence the middle.
    for n in sizes:
        middle = torch.empty(n, dtype=torch.uint8, device=bench.device)[n // 4 : n // 2]
        seen.append(int(torch.equal(middle, pattern(n, byte, bench.device)[n // 4 : n // 2])))
    return bench.run(rows)


def _named(
    bench: Bench, index: Tensor, byte: int, kernel: Callable[[int], Kernel], seen: list[int]
) -> tuple[Tensor, ...]:
    seen.append(1)
    return _clean(bench, bench.rows_at(index), kernel(RANDOM_BYTE if byte == RANDOM else byte))


def _clean(bench: Bench, rows: tuple[Tensor, ...], fn: Kernel | None = None) -> tuple[Tensor, ...]:
    """A launch whose fresh workspaces are zero, so that one region is poisoned at a time."""
    with poisoned_empty(0x00):
        return bench.run(rows, fn)


@contextmanager
def poisoned_empty(byte: int) -> Iterator[list[int]]:
    """Within, uninitialised tensors made from Python hold the poison; yields their sizes in bytes, as they come.

    Memory that native code allocates by itself is not reached.
    """
    import torch

    filled: list[int] = []

    def fill(tensor: Tensor) -> None:
        plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.is_meta
        if plain and tensor.numel():
            raw = torch.zeros(0, dtype=torch.uint8, device=tensor.device)
            raw.set_(tensor.untyped_storage())
            raw.copy_(pattern(raw.numel(), byte, tensor.device))
            filled.append(raw.numel())

    def wrap(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def made(*args: Any, **kwargs: Any) -> Tensor:
            tensor = make(*args, **kwargs)
            if isinstance(tensor, torch.Tensor) and kwargs.get("out") is None:
                with torch.no_grad():
                    fill(tensor)
            return tensor

        return made

    with mock.patch.multiple(
        torch,
        empty=wrap(torch.empty),
        empty_like=wrap(torch.empty_like),
        empty_strided=wrap(torch.empty_strided),
    ), mock.patch.multiple(
        torch.Tensor,
        new_empty=wrap(torch.Tensor.new_empty),
        new_empty_strided=wrap(torch.Tensor.new_empty_strided),
    ):  # fmt: skip
        yield filled


def _power(bench: Bench, regions: dict[str, int]) -> Power:
    if not regions:
        return Power(False, bench.elements, None, "no region could be poisoned")
    return Power(True, bench.elements, None, f"{len(regions)} regions read back as poisoned at the launch")


CHECK = Padding()
