from __future__ import annotations

import pytest
import torch

from samebits.checks.padding import CHECK, poisoned_empty
from samebits.checks.poison import BYTES, RANDOM, Block, guarded
from samebits.engine.bench import Bench
from samebits.engine.result import Status
from samebits.engine.subject import Subject


def pool(m: int = 8, n: int = 24) -> torch.Tensor:
    return torch.randn(m, n, generator=torch.Generator().manual_seed(1))


def run(fn, *rows, max_batch=None, **about):
    return CHECK.run(Bench(Subject(fn, rows or (pool(),), derive=False, **about), max_batch=max_batch))


def test_catches_its_control():
    result = CHECK.run(Bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "behind the batch holding" in result.findings[0].message


def test_a_clean_kernel_passes_and_says_what_was_poisoned():
    result = run(lambda x: x * 2)
    assert result.status is Status.PASSED
    assert "the rows in front of and behind the batch (" in result.coverage
    assert "names no regions of its own" in result.notes[0]
    assert "fresh torch.empty workspaces" not in result.coverage


def test_a_row_in_front_of_the_batch():
    def shifted(x):
        if x.storage_offset():
            return x + 0 * x.as_strided(x.shape, x.stride(), x.storage_offset() - x.stride(0))
        return x + 0

    result = run(shifted)
    assert result.status is Status.DIVERGED
    assert result.findings[0].kind == "finite"
    assert result.findings[0].message.endswith("behind the batch holding 0xFF")


def test_writes_around_the_batch_are_a_finding():
    def tail(x):
        if x.storage_offset():
            x.as_strided((1, x.shape[1]), x.stride(), x.storage_offset() + x.numel()).zero_()
        return x * 2

    result = run(tail)
    assert "bytes around row input 0 were written" in result.findings[0].message


def test_workspace_that_is_read_before_it_is_written():
    def dirty(x):
        work = torch.empty(x.shape[0] + 1, x.shape[1])
        work[: x.shape[0]] = x
        return x + 0 * work.sum()

    result = run(dirty)
    assert result.status in (Status.DIVERGED, Status.FLAKY)
    assert any("fresh torch.empty workspaces holding 0xFF" in f.message for f in result.findings)


def test_workspace_that_is_written_first_passes():
    def clean(x):
        work = x.new_empty(x.shape)
        work.copy_(x)
        return work * 2

    result = run(clean)
    assert result.status is Status.PASSED
    assert "fresh torch.empty workspaces (" in result.coverage


def test_named_regions():
    def kernel(byte):
        return lambda x: x * 2 + (byte > 0x80)

    result = run(lambda x: x * 2, poisons={"scale padding": kernel})
    assert result.status is Status.DIVERGED
    assert "scale padding holding 0xFF" in result.findings[0].message
    clean = run(lambda x: x * 2, poisons={"scale padding": lambda byte: lambda x: x * 2})
    assert clean.status is Status.PASSED
    assert "scale padding (" in clean.coverage
    assert not clean.notes or "no regions" not in clean.notes[0]


def test_every_byte_reaches_a_named_region():
    seen = set()

    def kernel(byte):
        seen.add(byte)
        return lambda x: x * 2

    run(lambda x: x * 2, poisons={"workspace": kernel})
    assert {0x00, 0xFF, 0x7F} < seen


def test_alignment_stays_out_of_it():
    seen = set()

    def record(x):
        seen.add(x.data_ptr() % 64)
        return x * 2

    run(record, pool(5, 7))
    assert seen == {0}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("byte", BYTES)
def test_guarded_rows_keep_their_bits(dtype, byte):
    values = (torch.randn(5, 6) * 3).to(dtype)
    block = guarded(values, byte)
    assert torch.equal(block.tensor.contiguous().view(torch.uint8), values.view(torch.uint8))
    assert block.touched() == 0
    block.raw[0] ^= 1
    assert block.touched() == 1


def test_a_block_knows_what_is_its_own():
    block = Block((2, 3), torch.int16, torch.device("cpu"), stride=(5, 1), before=4, after=2, byte=0x5A)
    block.tensor[0] = 1
    assert block.touched() == 0
    assert block.unwritten().tolist() == [[False] * 3, [True] * 3]
    block.raw.view(torch.int16)[7] = 0  # between the rows
    assert block.touched() == 2


def test_poisoned_empty_fills_and_restores():
    before = torch.empty, torch.Tensor.new_empty
    with poisoned_empty(0xFF) as filled:
        assert torch.empty(4, 4).isnan().all()
        assert torch.empty_like(torch.zeros(3)).isnan().all()
        assert torch.zeros(3).new_empty(5, dtype=torch.int8).eq(-1).all()
        assert torch.empty_strided((2, 2), (1, 2)).isnan().all()
        assert torch.empty(0).numel() == 0
    assert filled == [64, 12, 5, 16]
    assert (torch.empty, torch.Tensor.new_empty) == before
    with poisoned_empty(RANDOM):
        assert len(torch.empty(4096, dtype=torch.uint8).unique()) > 200
