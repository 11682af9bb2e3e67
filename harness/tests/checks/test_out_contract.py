from __future__ import annotations

import pytest
import torch

from samebits.checks.out_contract import CHECK, overlap
from samebits.engine.bench import Bench
from samebits.engine.result import Status
from samebits.engine.subject import Subject

WEIGHT = torch.randn(24, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def pool(m: int = 8) -> torch.Tensor:
    return torch.randn(m, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def fn(x):
    return (x[:, :, None] * WEIGHT).sum(1)


def run(fn=fn, out=None, rows=None):
    return CHECK.run(Bench(Subject(fn, rows or (pool(),), out=out, derive=False)))


def messages(result):
    return " | ".join(f.message for f in result.findings)


def test_catches_its_control():
    result = CHECK.run(Bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "another order than the caller's" in messages(result)


def clean(x, out):
    return out.copy_(fn(x))


def test_a_clean_out_passes():
    result = run(out=clean)
    assert result.status is Status.PASSED, messages(result)
    assert "guard rows" in result.coverage
    assert "guard columns" in result.coverage


def test_nothing_need_be_returned():
    def silent(x, out):
        out.copy_(fn(x))

    assert run(out=silent).status is Status.PASSED


def test_without_out_the_plain_parts_still_run():
    result = run()
    assert result.status is Status.PASSED
    assert "no out=" in result.notes[0]
    assert "guard" not in result.coverage


def test_out_rebound_and_never_written():
    def rebound(x, out):
        out = fn(x)
        return out

    said = messages(run(out=rebound))
    assert "not fully written" in said
    assert "is not out 0 but another one" in said


def test_partly_written():
    def partly(x, out):
        out[:, :-1] = fn(x)[:, :-1]

    result = run(out=partly)
    assert "not fully written, the first at position 0" in messages(result)


def test_last_row_never_written():
    def tail(x, out):
        out[: len(x) // 2 * 2] = fn(x)[: len(x) // 2 * 2]

    assert "not fully written" in messages(run(out=tail))


def test_one_poison_alone_would_miss_it():
    # The unwritten element happens to hold the first poison's bits: only the second shows it.
    ones = torch.full((8, 3), 255, dtype=torch.uint8)
    ones[:, 0] = torch.arange(8, dtype=torch.uint8)

    def partly(x, out):
        out[:, 0] = x[:, 0]

    result = run(fn=lambda x: x.clone(), out=partly, rows=(ones,))
    assert "poison 0x5A" in messages(result)


def test_accumulated_instead_of_stored():
    assert run(out=lambda x, out: out.add_(fn(x))).status is Status.DIVERGED


@pytest.mark.parametrize(
    ("shape", "offset"), [((1, 20), -20), ((1, 20), None)], ids=["row in front", "row behind"]
)
def test_writes_outside(shape, offset):
    def beyond(x, out):
        out.copy_(fn(x))
        start = out.storage_offset() + (offset if offset is not None else out.stride(0) * len(x))
        out.as_strided(shape, (20, 1), start).zero_()

    assert "bytes outside of it were written" in messages(run(out=beyond))


def test_guard_columns_see_a_kernel_that_ignores_the_row_stride():
    def dense(x, out):
        out.as_strided(out.shape, (out.shape[1], 1), out.storage_offset()).copy_(fn(x))

    result = run(out=dense)
    assert result.status is Status.DIVERGED
    assert "guard columns" in messages(result)
    assert "guard rows" not in messages(result)


def test_strided_out_may_be_refused():
    def strict(x, out):
        if not out.is_contiguous():
            raise ValueError("out must be contiguous")
        out.copy_(fn(x))

    result = run(out=strict)
    assert result.status is Status.PASSED
    assert "out must be contiguous" in " ".join(result.notes)
    assert "guard columns" not in result.coverage


def test_resized_out():
    def moved(x, out):
        out.set_(fn(x))

    assert "given other memory" in messages(run(out=moved))


def test_out_gives_other_bits_than_the_plain_call():
    def other(x, out):
        out.copy_((fn(x).float()).double())

    result = run(out=other)
    assert result.findings[0].kind == "value"
    assert result.findings[0].first is not None


def test_input_quantised_in_place():
    def quantise(x):
        x.copy_(x.round())
        return x + 1

    result = run(fn=quantise)
    assert result.status is Status.DIVERGED
    assert "row input 0 was written to" in messages(result)


def test_out_form_writes_its_input():
    def weighted(x, out):
        x.mul_(2)
        out.copy_(fn(x / 2))

    assert "row input 0 was written to by a call with out" in messages(run(out=weighted))


def test_result_in_a_workspace_that_the_next_call_reuses():
    workspace = torch.empty(512, 20, dtype=torch.float64)

    def reuse(x):
        workspace[: len(x)] = fn(x)
        return workspace[: len(x)]

    result = run(fn=reuse)
    assert "overwritten by the next call" in messages(result)


def test_result_that_is_a_view_of_an_input():
    assert "shares its memory with row input 0" in messages(run(fn=lambda x: x[:, :4]))


def test_several_outputs_and_dtypes():
    def two(x):
        return fn(x), x[:, 0].to(torch.int32)

    def into(x, out):
        for o, y in zip(out, two(x), strict=True):
            o.copy_(y)
        return out

    result = run(fn=two, out=into)
    assert result.status is Status.PASSED, messages(result)

    def swapped(x, out):
        out[0].copy_(two(x)[0])
        out[1].copy_(two(x)[1].flip(0))

    assert "out 1" in messages(run(fn=two, out=swapped))


def test_equal_rows_have_no_power():
    result = run(out=clean, rows=(torch.ones(8, 24, dtype=torch.float64),))
    assert result.status is Status.NO_POWER
    assert "permuted" in result.reason


def test_overlap():
    t = torch.zeros(4, 4)
    assert overlap(t, t[1:])
    assert not overlap(t[:2], t[2:])
    assert not overlap(t, torch.zeros(4, 4))
    assert not overlap(t, t[:0])
