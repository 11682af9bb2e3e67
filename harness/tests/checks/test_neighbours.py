from __future__ import annotations

import pytest
import torch

from samebits.checks.contents import contents
from samebits.checks.neighbours import CHECK
from samebits.engine.result import Status


@pytest.fixture
def derived(case, monkeypatch):
    """Runs with `derive=True` and no rows but those of the pool."""

    def run(fn, *rows, **about):
        subject = case.subject(fn, *rows, **about)
        bench = case.bench(subject)
        object.__setattr__(subject, "derive", True)
        return CHECK.run(bench)

    return run


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "when its neighbours hold" in result.findings[0].message


def test_a_clean_kernel_passes_with_every_content(derived):
    result = derived(lambda x: x * 2)
    assert result.status is Status.PASSED
    for word in ("copies of row 0", "1000 times", "zeros", "NaN", "Inf and -Inf", "largest finite"):
        assert word in result.coverage


def test_nan_that_leaks_through_a_product_with_zero(derived):
    result = derived(lambda x: x + 0 * x.sum(0))
    assert {f.details["neighbours"] for f in result.findings} <= {
        "NaN",
        "Inf",
        "Inf and -Inf",
        "the largest finite values",
    }
    assert any(f.details["neighbours"] == "NaN" for f in result.findings)


def test_rows_of_the_pool_only_without_derive(case):
    seen = []

    def fn(x):
        seen.append(bool(torch.isfinite(x).all()))
        return x * 2

    result = case.run(CHECK, fn)
    assert all(seen)
    assert "NaN" not in result.coverage
    assert "only rows of the pool" in result.notes[0]


def test_one_row_has_power_where_values_may_be_put_in(case, derived):
    assert case.run(CHECK, lambda x: x * 2, case.pool(1)).status is Status.NO_POWER
    assert derived(lambda x: x * 2, case.pool(1)).status is Status.PASSED


def test_rows_that_stay_keep_their_slots_in_the_finding(case):
    def skew(x):  # another path once more than half of the rows are equal
        most = max(int((x == r).all(1).sum()) for r in x)
        y = x.clone()
        y[-1] += 2 * most > len(x) > 2
        return y

    finding = case.run(CHECK, skew, max_batch=20).findings[0]
    assert finding.position == finding.batch - 1
    assert finding.details["neighbours"].startswith("copies of row")


def test_a_refusal_is_noted_and_nothing_else_is(derived):
    def picky(x):
        if not torch.isfinite(x).all():
            raise ValueError("rows must be finite")
        return x * 2

    result = derived(picky)
    assert result.status is Status.PASSED
    assert sum("refused by the subject" in n and "rows must be finite" in n for n in result.notes) == 3
    assert "NaN" not in result.coverage


def test_a_refusal_of_its_own_rows_is_an_error(case):
    def broken(x):
        if len(x) == 17 and torch.equal(x[1], x[2]):
            raise ValueError("no equal rows")
        return x * 2

    with pytest.raises(ValueError, match="no equal rows"):
        case.run(CHECK, broken)


def test_equal_rows_have_no_power(case):
    assert case.run(CHECK, lambda x: x * 2, torch.ones(8, 24)).status is Status.NO_POWER


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float8_e4m3fn, torch.bool])
def test_codes_are_drawn_from_the_pool(case, dtype):
    subject = case.subject(lambda x: x.float(), case.pool(8, 24, dtype))
    bench = case.bench(subject)
    object.__setattr__(subject, "derive", True)
    index = torch.arange(8)
    assert all(c.drawn for c in contents(bench, index, index > 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_only_the_marked_rows_change(case, dtype):
    subject = case.subject(lambda x: x, case.pool(8, 24, dtype), torch.arange(8))
    bench = case.bench(subject)
    object.__setattr__(subject, "derive", True)
    index, rows = bench.batch(8)
    for content in contents(bench, index, index > 3):
        for new, old in zip(content.rows, rows, strict=True):
            assert torch.equal(new[:4], old[:4])
        assert not torch.equal(content.rows[0][4:], rows[0][4:]), content.name


def test_nan_payloads_of_changed_rows_are_not_compared(derived):
    counter = [0]

    def payload(x):
        counter[0] += 1
        return torch.where(x.isnan(), (x.view(torch.int32) + counter[0]).view(torch.float32), x)

    assert derived(payload).status is Status.PASSED
