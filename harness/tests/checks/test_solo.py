from __future__ import annotations

import torch

from samebits.checks.solo import CHECK
from samebits.engine.result import Status


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert result.findings[0].against == 1


def test_a_clean_gemm_passes(case):
    result = CHECK.run(case.bench(case.gemm()))
    assert result.status is Status.PASSED
    assert result.pairs == 12 + 12 + 1024
    assert "all 12 rows" in result.coverage


def test_only_the_largest_batch_is_off(case):
    result = case.run(CHECK, lambda x: x + (len(x) == 100), max_batch=100)
    assert result.findings[0].batch == 100
    assert "the largest batch" in result.findings[0].message


def test_one_row_of_the_pool_is_off(case):
    def fn(x):
        bits = x.clone()
        if len(x) > 1:
            bits[x[:, 0] == case.pool()[5, 0]] += 1
        return bits

    assert {f.row for f in case.run(CHECK, fn, max_batch=8).findings} == {5}


def test_a_pool_larger_than_the_largest_batch_is_cut(case):
    seen = []

    def fn(x):
        seen.append(len(x))
        return x.clone()

    bench = case.bench(case.subject(fn), max_batch=3)
    _ = bench.solo
    seen.clear()
    CHECK.run(bench)
    assert seen[:6] == [3, 3, 2, 3, 3, 2]


def test_two_addends_have_no_power(case):
    assert case.run(CHECK, lambda x: x[:, 0] + x[:, 1], addends=2).status is Status.NO_POWER


def test_noise_is_flaky(case):
    noise = torch.Generator().manual_seed(0)
    assert case.run(CHECK, lambda x: x + torch.rand(x.shape, generator=noise)).status is Status.FLAKY


def test_a_difference_in_a_workspace_that_is_used_again(case):
    workspace = torch.empty(512, 24)
    calls = []

    def reuse(x):
        calls.append(len(x))
        workspace[: len(x)] = x * 2
        workspace[0] += calls.count(80) == 1 and len(x) == 80  # gone when the launch is repeated
        return workspace[: len(x)]

    result = case.run(CHECK, reuse, max_batch=80)
    assert result.status is Status.FLAKY
    assert result.findings[0].position == 0
