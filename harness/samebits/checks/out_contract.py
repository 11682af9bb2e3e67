"""Results arrive where the caller expects them, and nothing else is touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samebits.checks.poison import Block, contiguous_stride, guard, word
from samebits.engine import bits
from samebits.engine.result import CheckResult, Power
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

SIZES = (1, 5, 32)
"""Batch sizes besides the whole pool."""
POISONS = (0xFF, 0x5A)
"""An element whose result happens to look like one of them does not look like the other."""
GUARD_COLUMNS = 16
"""Elements in front of and behind each row of a strided output."""


class OutContract:
    """Inputs stay as they are, results stay as they were, and a supplied `out` gets the result, whole."""

    id = "out-contract"
    title = "A supplied out receives every row in the caller's order, and nothing else in memory changes"

    def applies(self, bench: Bench) -> str | None:
        """Always: inputs and results of a plain call are part of the contract."""
        return None

    def run(self, bench: Bench) -> CheckResult:
        """Plain calls first, then calls with `out` where the subject offers it."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)})
        seen = False
        for m in reversed(sizes):
            seen = _plain(rec, bench, m) or seen
            if rec.findings:
                break
        parts = ["inputs unchanged, results neither overwritten by the next call nor aliasing an input"]
        if bench.subject.out is None:
            rec.notes.append("the subject offers no out=: only inputs and results of plain calls were checked")
        else:
            forms = [form for form in ("rows", "columns") if _supplied(rec, bench, sizes, form)]
            parts += [f"out with guard {form}" for form in forms]
        listed = ", ".join(map(str, sizes))
        return rec.close(
            coverage=f"{'; '.join(parts)}; M in {{{listed}}}",
            pairs=sum(sizes),
            power=_power(bench, seen),
        )

    def control(self) -> Subject:
        """A grouped kernel that sorts rows by expert and rebinds `out` to the permuted view.

        Stands for the fault that got a public MoE kernel reverted: the caller's buffer holds rows in expert order.
        """
        import torch

        generator = torch.Generator().manual_seed(3)
        rows = torch.randn(16, 32, generator=generator)
        weight = torch.randn(32, 48, generator=generator)

        def grouped(x: Tensor) -> Tensor:
            return x @ weight

        def into(x: Tensor, out: Tensor) -> Tensor:
            order = x[:, 0].argsort(stable=True)
            out.copy_((x @ weight)[order])
            out = out[order.argsort()]
            return out

        return Subject(grouped, (rows,), name="out rebound to a permuted view", out=into, derive=False)


def _plain(rec: Record, bench: Bench, m: int) -> bool:
    """Two plain calls; whether their results differ, so that the second could have been seen in the first."""
    index, rows = bench.batch(m)
    before = tuple(t.clone() for t in rows)
    result = bench.run(rows)
    kept = tuple(y.clone() for y in result)
    _inputs_unchanged(rec, rows, before, f"a plain call at M={m}", m)
    for i, y in enumerate(result):
        for j, t in enumerate(rows):
            if overlap(y, t):
                rec.contract(f"output {i} of a plain call at M={m} shares its memory with row input {j}", batch=m)
    other = bench.run(bench.batch(m, shift=max(1, bench.probes // 2))[1])
    rec.compare(
        result, kept,
        lambda p: f"row {int(index[p])} at position {p} of M={m} was overwritten by the next call",
        rows=index, batch=m, against=m,
    )  # fmt: skip
    return not all(bits.same(a, b) for a, b in zip(other, kept, strict=True))


def _supplied(rec: Record, bench: Bench, sizes: Sequence[int], form: str) -> bool:
    """Calls with `out` in poisoned memory; False where the subject refuses outputs of this form.

    The largest batch first, because it shows most, and no further one once a fault was found.
    """
    known = len(rec.findings)
    for m in reversed(sizes):
        index, rows = bench.batch(m)
        raw, expected = _expected(bench, rows)
        if form == "columns" and not any(y.dim() > 1 for y in raw):
            return False
        for byte in POISONS:
            fresh = bench.rows_at(index)
            blocks = [_block(y, form, byte) for y in raw]
            try:
                returned = _call(bench, fresh, [b.tensor for b in blocks])
            except (ValueError, RuntimeError, TypeError) as error:
                if form == "rows" or "CUDA error" in str(error):
                    raise
                rec.notes.append(f"strided out refused by the subject: {str(error).splitlines()[0][:120]}")
                return False
            where = f"a call with out (guard {form}, poison {word(byte)}) at M={m}"
            _inputs_unchanged(rec, fresh, bench.rows_at(index), where, m)
            for i, (block, want) in enumerate(zip(blocks, expected, strict=True)):
                _received(rec, block, want, index, f"out {i} of {where}")
            _returned(rec, returned, blocks, where)
            if len(rec.findings) > known:
                return True
    return True


def _expected(bench: Bench, rows: tuple[Tensor, ...]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """(what the subject returns in a plain call, the same as the bench hands it on)."""
    import torch

    raw: list[Tensor] = []

    def keep(*inputs: Tensor) -> Any:
        result = bench.subject.fn(*inputs)
        raw.extend([result] if isinstance(result, torch.Tensor) else result)
        return result

    return raw, tuple(y.clone() for y in bench.run(rows, keep))


def _block(like: Tensor, form: str, byte: int) -> Block:
    row = max(1, math.prod(like.shape[1:]))
    rows = guard(row, like.element_size(), rows=8)
    if form == "rows" or like.dim() == 1:
        return Block(like.shape, like.dtype, like.device, before=rows, after=rows, byte=byte)
    wider = (*like.shape[:-1], like.shape[-1] + 2 * GUARD_COLUMNS)
    return Block(
        like.shape, like.dtype, like.device,
        stride=contiguous_stride(wider), before=rows + GUARD_COLUMNS, after=rows + GUARD_COLUMNS, byte=byte,
    )  # fmt: skip


def _call(bench: Bench, rows: tuple[Tensor, ...], outs: list[Tensor]) -> Any:
    """The launch with `out`; what the subject returned."""
    returned: list[Any] = []
    write = bench.subject.out
    assert write is not None

    def launch(*inputs: Tensor) -> list[Tensor]:
        returned.append(write(*inputs, out=outs[0] if len(outs) == 1 else tuple(outs)))
        bench.synchronise()
        return outs

    bench.run(rows, launch)
    return returned[0]


def _received(rec: Record, block: Block, want: Tensor, index: Tensor, what: str) -> None:
    """One supplied output: written everywhere, in order, and only there."""
    out, m = block.tensor, len(index)
    if out.data_ptr() != block.raw.data_ptr() + block.before * out.element_size() or out.shape != block.shape:
        rec.contract(f"{what}: the caller's tensor was resized or given other memory", batch=m)
        return
    if touched := block.touched():
        rec.contract(f"{what}: {touched} bytes outside of it were written", batch=m)
    found = out.view(want.dtype) if out.dtype != want.dtype else out
    differ = bits.as_bits(found) != bits.as_bits(want)
    if not bool(differ.any()):
        return
    untouched = block.unwritten()
    missing = (untouched & differ.reshape(*untouched.shape, -1).any(dim=-1)).any(dim=1)
    if bool(missing.any()):
        rows = missing.nonzero().reshape(-1).tolist()
        rec.contract(
            f"{what}: {len(rows)} of {m} rows were not fully written, the first at position {rows[0]}",
            batch=m, positions=rows[:64],
        )  # fmt: skip
        return
    moved = _permutation(found, want)
    if moved is not None:
        first = next(p for p, q in enumerate(moved) if p != q)
        rec.contract(
            f"{what}: rows are in another order than the caller's: position {first} holds the row of "
            f"position {moved[first]}",
            batch=m, order=moved[:64],
        )  # fmt: skip
        return
    rec.compare(
        [found], [want],
        lambda p: f"{what}: row {int(index[p])} at position {p} is not the row that a plain call returns",
        rows=index, batch=m, against=m,
    )  # fmt: skip


def _permutation(found: Tensor, want: Tensor) -> list[int] | None:
    """Position -> position of `want` whose bits it holds, where `found` is `want` in another order."""
    places: dict[int, list[int]] = {}
    for p, digest in enumerate(bits.digest_rows(want).tolist()):
        places.setdefault(digest, []).append(p)
    order = []
    for p, digest in enumerate(bits.digest_rows(found).tolist()):
        left = places.get(digest)
        if not left:
            return None
        order.append(left.pop(left.index(p)) if p in left else left.pop(0))
    return order


def _returned(rec: Record, returned: Any, blocks: list[Block], where: str) -> None:
    """What a call with `out` returns, if anything: the very tensors that were supplied."""
    import torch

    given = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())
    for i, (y, block) in enumerate(zip(given, blocks, strict=False)):
        if not isinstance(y, torch.Tensor):
            continue
        same_place = y.data_ptr() == block.tensor.data_ptr() and y.stride() == block.tensor.stride()
        if not same_place or y.shape != block.shape:
            m = block.shape[0]
            rec.contract(f"the tensor returned by {where} is not out {i} but another one", batch=m)


def _inputs_unchanged(rec: Record, rows: Sequence[Tensor], before: Sequence[Tensor], where: str, m: int) -> None:
    for i, (t, was) in enumerate(zip(rows, before, strict=True)):
        if t.shape != was.shape or t.stride() != was.stride():
            rec.contract(f"row input {i} was given another shape or stride by {where}", batch=m)
        elif not bits.same(t, was):
            count = int((bits.differing_rows(t, was) > 0).sum())
            rec.contract(f"row input {i} was written to by {where}: {count} of {m} rows changed", batch=m)


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors, both with elements, span common bytes."""
    if a.device != b.device or not a.numel() or not b.numel():
        return False
    (a0, a1), (b0, b1) = _span(a), _span(b)
    return a0 < b1 and b0 < a1


def _span(t: Tensor) -> tuple[int, int]:
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + extent * t.element_size()


def _power(bench: Bench, seen: bool) -> Power:
    if not seen:
        how = "both calls give the same bits: neither an overwritten nor a permuted result could show"
        return Power(False, bench.elements, None, how)
    return Power(True, bench.elements, None, "neighbouring calls and rows give different bits")


CHECK = OutContract()
