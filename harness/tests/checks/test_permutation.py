from __future__ import annotations

import pytest
import torch

from samebits.checks.permutation import CHECK, orders
from samebits.engine.result import Status


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "(reversed)" in result.findings[0].message
    assert result.findings[0].batch == result.findings[0].against


def test_a_clean_gemm_passes(case):
    result = CHECK.run(case.bench(case.gemm()))
    assert result.status is Status.PASSED
    assert "M in {2, 5, 11, 12, 17, 241, 256}" in result.coverage


def test_results_left_in_another_order(case):
    result = case.run(CHECK, lambda x: x[x[:, 0].argsort()])
    assert result.status is Status.DIVERGED


def test_a_bad_slot_is_found_at_one_size_only(case):
    def fn(x):
        y = x.clone()
        if len(x) == 241:
            y[240] += 1
        return y

    result = case.run(CHECK, fn)
    assert result.findings[0].batch == 241


def test_max_batch_bounds_every_launch(case):
    seen = set()

    def fn(x):
        seen.add(len(x))
        return x.clone()

    case.run(CHECK, fn, max_batch=10)
    assert max(seen) == 10


@pytest.mark.parametrize("m", [2, 3, 17])
def test_orders_are_permutations(m):
    for _, order in orders(m, seed=3):
        assert sorted(order.tolist()) == list(range(m))


def test_equal_rows_have_no_power(case):
    result = case.run(CHECK, lambda x: x * 2, torch.ones(8, 24))
    assert result.status is Status.NO_POWER
    assert "no row moved" in result.reason


def test_one_row_has_no_power(case):
    assert case.run(CHECK, lambda x: x * 2, case.pool(1)).status is Status.NO_POWER


def test_does_not_apply(case):
    assert "position_free" in CHECK.applies(case.bench(case.subject(lambda x: x, position_free=False)))
