from __future__ import annotations

import torch

from samebits.checks.replay import CHECK
from samebits.engine.result import Status


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    finding = result.findings[0]
    assert finding.position == 15
    assert finding.batch == 16


def test_a_clean_gemm_passes(case):
    result = CHECK.run(case.bench(case.gemm()))
    assert result.status is Status.PASSED
    assert result.pairs == result.launches - result.launches % 10 == 120


def test_a_batch_maximum_is_seen_through_the_neighbours(case):
    assert case.run(CHECK, lambda x: x / x.abs().amax()).status is Status.DIVERGED


def test_one_position_of_one_size(case):
    def fn(x):
        y = x.clone()
        if len(x) == 33:
            y[29] += 1
        return y

    finding = case.run(CHECK, fn).findings[0]
    assert (finding.batch, finding.position) == (33, 29)


def test_the_odd_position_is_reported_not_the_others(case):
    def fn(x):
        y = x.clone()
        y[0] += len(x) == 5
        return y

    assert [f.position for f in case.run(CHECK, fn).findings] == [0]


def test_equal_rows_have_no_power(case):
    result = case.run(CHECK, lambda x: x * 2, torch.ones(8, 24))
    assert result.status is Status.NO_POWER


def test_small_batches_only(case):
    result = case.run(CHECK, lambda x: x.clone(), max_batch=3)
    assert result.status is Status.PASSED
    assert "M in {2, 3}" in result.coverage
