from __future__ import annotations

import json

import pytest
import torch

from samebits.checks.batch_size import CHECK
from samebits.engine.plan import covering
from samebits.engine.result import Status


def at_sizes(*sizes):
    """Row sums with a last bit that depends on whether M is in `sizes`."""

    def fn(x):
        return torch.nextafter(x, x + 1) if x.shape[0] in sizes else x.clone()

    return fn


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control(), max_batch=64))
    assert result.status is Status.DIVERGED
    finding = result.findings[0]
    assert (finding.batch, finding.against) == (25, 1)
    assert finding.details["failing"] == [[25, 64]]
    assert finding.details["map"] == [[1, 24, 0], [25, 64, 1]]
    assert finding.details["edges"] == [25]
    assert json.loads(json.dumps(result.to_json()))["findings"][0]["details"]["edges"] == [25]
    assert finding.first is not None
    assert finding.first.ulp


def test_a_clean_gemm_passes_and_every_pair_is_counted(case):
    bench = case.bench(case.gemm(), max_batch=40)
    result = CHECK.run(bench)
    assert result.status is Status.PASSED
    assert result.coverage == "all 820 (M, position) pairs, M = 1..40"
    assert result.pairs == 820


@pytest.mark.parametrize("m", [1, 2, 17, 39, 40])
def test_one_bad_size_is_found_wherever_it_is(case, m):
    result = case.run(CHECK, at_sizes(m), max_batch=40)
    assert result.status is Status.DIVERGED
    # At M = 1 the expectation itself is what is off: every other size then differs.
    assert result.findings[0].details["failing"] == ([[2, 40]] if m == 1 else [[m, m]])


def test_classes_of_the_map(case):
    def fn(x):
        kind = (x.shape[0] in (3, 4, 9)) + 2 * (x.shape[0] == 7)
        for _ in range(kind):
            x = torch.nextafter(x, x + 1)
        return x.clone()

    details = case.run(CHECK, fn, max_batch=10).findings[0].details
    assert details["classes"] == [[[1, 2], [5, 6], [8, 8], [10, 10]], [[3, 4], [9, 9]], [[7, 7]]]
    assert details["map"] == [[1, 2, 0], [3, 4, 1], [5, 6, 0], [7, 7, 2], [8, 8, 0], [9, 9, 1], [10, 10, 0]]
    assert details["edges"] == [3, 5, 7, 8, 9, 10]


def test_the_last_row_alone(case):
    def tail(x):
        y = x.clone()
        if x.shape[0] > 4:
            y[-1] = torch.nextafter(y[-1], y[-1] + 1)
        return y

    finding = case.run(CHECK, tail, max_batch=12).findings[0]
    assert (finding.batch, finding.position) == (5, 4)
    assert finding.details["positions"] == [[4, 4]]


def test_without_a_bound_the_covering_sample_is_always_launched(case):
    result = CHECK.run(case.bench(case.gemm(k=4), budget=0.0))
    assert result.status is Status.PASSED
    assert result.pairs == sum(covering(1024))
    assert "every position for M = 1..65 and M in {79..81," in result.coverage


def test_without_a_bound_the_budget_buys_every_size(case):
    bench = case.bench(case.gemm(k=4), budget=60.0)
    bench.max_batch = 200
    assert CHECK.run(bench).coverage == "all 20,100 (M, position) pairs, M = 1..200"


def test_a_launch_that_differs_once_is_flaky(case):
    seen = []

    def once(x):
        seen.append(x.shape[0])
        return x + (seen.count(7) == 1 and x.shape[0] == 7)

    result = case.run(CHECK, once, max_batch=10)
    assert result.status is Status.FLAKY
    assert "when it was repeated" in result.findings[0].message
    assert result.findings[0].batch == 7


def test_a_launch_that_never_agrees_is_flaky(case):
    noise = torch.Generator().manual_seed(0)
    result = case.run(CHECK, lambda x: x + torch.rand(x.shape, generator=noise), max_batch=10)
    assert result.status is Status.FLAKY
    assert "map" not in result.findings[0].details


def test_a_trace_of_the_launch_before_is_no_flake(case):
    last = [0]

    def fn(x):
        y = x + (last[0] == 11)
        last[0] = x.shape[0]
        return y

    result = case.run(CHECK, fn, max_batch=20)
    assert result.status is Status.DIVERGED
    assert "behind a launch of M=11" in result.findings[0].message


def test_another_shape_at_one_size(case):
    result = case.run(CHECK, lambda x: x[:, :-1] if x.shape[0] == 5 else x.clone(), max_batch=8)
    assert result.status is Status.DIVERGED
    assert result.findings[0].kind == "shape"


def test_another_dtype_at_one_size(case):
    result = case.run(CHECK, lambda x: x.double() if x.shape[0] == 5 else x.clone(), max_batch=8)
    assert result.findings[0].kind == "dtype"


def test_two_addends_have_no_power(case):
    result = case.run(CHECK, lambda x: x[:, :2].sum(1), max_batch=8, addends=2)
    assert result.status is Status.NO_POWER
    assert "2 addends" in result.reason


def test_exact_sums_have_no_power(case):
    rows = torch.randint(-8, 8, (8, 24), generator=torch.Generator().manual_seed(0)).float()
    result = case.run(CHECK, lambda x: x.sum(1), rows, max_batch=8, share=0.0, addends=24)
    assert result.status is Status.NO_POWER


def test_a_difference_outweighs_missing_power(case):
    assert case.run(CHECK, at_sizes(3), max_batch=8, addends=2).status is Status.DIVERGED


def test_does_not_apply(case):
    assert "max_batch" in CHECK.applies(case.bench(case.gemm(), max_batch=1))
    assert "position_free" in CHECK.applies(case.bench(case.subject(lambda x: x, position_free=False)))


def test_a_signed_zero_and_a_payload_are_differences(case):
    rows = torch.zeros(4, 8)
    assert (
        case.run(CHECK, lambda x: -x if len(x) == 3 else x + 0, rows, max_batch=4).findings[0].kind
        == "signed zero"
    )
    nan = torch.full((4, 8), float("nan"))

    def payload(x):
        return (x.view(torch.int32) + (len(x) == 3)).view(torch.float32)

    assert case.run(CHECK, payload, nan, max_batch=4).findings[0].kind == "nan payload"
