from __future__ import annotations

import re

import pytest
import torch

from samebits.checks.disturb import ways
from samebits.checks.repeat import CHECK, rate
from samebits.engine.result import Status


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.FLAKY
    assert result.findings[0].details["differing launches"] > 10


def test_a_clean_gemm_passes_and_says_what_it_would_have_seen(case):
    result = CHECK.run(case.bench(case.gemm(), budget=60.0))
    assert result.status is Status.PASSED
    assert result.coverage.startswith("104 launches each at M in {1, 12, 241}")
    assert "12.4%" in result.coverage
    assert not [n for n in result.notes if "budget" in n]


def test_104_launches_are_enough_for_one_in_eight():
    assert rate(104) <= 1 / 8 < rate(103)
    assert (1 - rate(20)) ** 20 == pytest.approx(1e-6)


def test_a_spent_budget_is_said(case):
    result = CHECK.run(case.bench(case.gemm(), budget=0.0))
    assert result.status is Status.PASSED
    assert "of 104 launches" in result.notes[0]
    assert result.coverage.startswith("16 launches")


def test_a_rare_flip_is_caught_with_its_bits(case):
    calls = [0]

    def rare(x):
        calls[0] += 1
        y = x.clone()
        if calls[0] == 70:
            y[0, 3] = -y[0, 3]
        return y

    result = case.run(CHECK, rare, max_batch=8)
    finding = result.findings[0]
    assert result.status is Status.FLAKY
    assert (finding.position, finding.mismatched, finding.first.index) == (0, 1, (3,))
    assert finding.details["differing launches"] == 1
    # How many repeats the budget allows depends on the machine's load.
    assert re.search(r"1 of \d+ repeats differ", finding.message)


def test_memory_of_the_sizes_in_play_is_dirtied(case, monkeypatch):
    filled, full = [], torch.full

    def record(size, value, **about):
        block = full(size, value, **about)
        filled.append(block.nbytes)
        return block

    bench = case.bench(case.subject(lambda x: x.double()))
    monkeypatch.setattr(torch, "full", record)
    _, rows = bench.batch(8)
    ways(bench, rows, bench.run(rows))["with freed memory full of NaN"](lambda: bench.run(rows))
    assert {8 * 24 * 4, 8 * 24 * 8} <= set(filled)


def test_what_only_dirty_memory_shows(case, monkeypatch):
    # Which block an allocator returns is its own choice, so the block that was freed last is kept in sight.
    last, full = [torch.zeros(512, dtype=torch.uint8)], torch.full

    def keep(size, value, **about):
        last[0] = full(size, value, **about)
        return last[0]

    def stale(x):
        y = x + last[0][0]
        last[0] = torch.zeros(512, dtype=torch.uint8)
        return y

    monkeypatch.setattr(torch, "full", keep)
    result = case.run(CHECK, stale, max_batch=2)
    assert result.status is Status.FLAKY
    by = result.findings[0].details["by circumstance"]
    assert [name for name, n in by.items() if n] == ["with freed memory full of NaN"]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64, torch.complex128]
)
def test_every_dtype_shows_its_bits(case, dtype):
    calls = [0]

    def flip(x):
        calls[0] += 1
        y = x.clone()
        if calls[0] == 9:
            y.view(torch.uint8)[0, 0] ^= 1
        return y

    result = case.run(CHECK, flip, case.pool(8, 6, dtype), max_batch=8)
    assert result.status is Status.FLAKY
    assert result.findings[0].first is not None


def test_another_shape(case):
    calls = [0]

    def fn(x):
        calls[0] += 1
        return x[:, : -1 if calls[0] == 5 else None].clone()

    result = case.run(CHECK, fn, max_batch=8)
    assert result.status is Status.FLAKY
    assert result.findings[0].kind == "shape"


def test_results_in_a_shared_workspace_are_read_in_time(case):
    workspace = torch.empty(512, 24)

    def reuse(x):
        workspace[: len(x)] = x * 2
        return workspace[: len(x)]

    assert case.run(CHECK, reuse).status is Status.PASSED


def test_two_addends_have_no_power(case):
    assert case.run(CHECK, lambda x: x[:, 0] + x[:, 1], addends=2).status is Status.NO_POWER
