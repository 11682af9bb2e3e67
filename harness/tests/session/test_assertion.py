"""One line in somebody's test: each verdict has the exception of its class, and only a proof returns."""

from __future__ import annotations

import pytest
import torch

import samebits
from samebits import DivergenceError, ExitCode, FlakyError, KernelError, NothingTestedError, UsageError
from samebits.engine.result import CaseResult, CheckResult, Finding, Status
from samebits.engine.verdict import judge
from samebits.session.assertion import raise_unless_invariant

X = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))

TOLD = {
    Status.PASSED: None,
    Status.DIVERGED: DivergenceError,
    Status.FLAKY: FlakyError,
    Status.ERROR: KernelError,
    Status.CRASHED: KernelError,
    Status.NO_POWER: NothingTestedError,
    Status.SKIPPED: NothingTestedError,
}


def check(fn, **options):
    return samebits.assert_batch_invariant(fn, X, **{"max_batch": 9, **options})


def test_an_invariant_kernel_returns_what_was_covered() -> None:
    result = check(lambda x: x * 2)
    assert result.checks[0].coverage == "all 45 (M, position) pairs, M = 1..9"


def test_a_divergence_is_an_assertion_error_that_tells_all() -> None:
    with pytest.raises(DivergenceError, match="other bits than alone") as caught:
        check(lambda x: x * (1 if x.shape[0] < 4 else 1.0000001), name="scaled", replay="pytest here")
    assert isinstance(caught.value, AssertionError)
    text = str(caught.value)
    for word in ("scaled is not batch invariant", "M=4", "dispatch-by-M", "pytest here", "ULP"):
        assert word in text, word


def test_a_launch_that_does_not_repeat_is_flaky() -> None:
    calls = iter(range(10**6))
    with pytest.raises(FlakyError):
        check(lambda x: x + next(calls) % 7)


def test_a_kernel_that_raises_fails_as_a_kernel() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            raise RuntimeError("no kernel image for this batch")
        return x

    with pytest.raises(KernelError, match="no kernel image") as caught:
        check(kernel, checks=["batch-size"])
    assert caught.value.exit_code is ExitCode.DIVERGENCE


@pytest.mark.parametrize(("status", "error"), TOLD.items())
def test_each_status_has_the_exception_of_its_verdict(status, error) -> None:
    findings = [Finding("batch-size", "value", "m")] if status in (Status.DIVERGED, Status.FLAKY) else []
    result = CaseResult("c", checks=[CheckResult("batch-size", status, "why", findings=findings)])
    verdict = judge(result)
    if error is None:
        raise_unless_invariant(result)
        assert verdict.exit_code is ExitCode.INVARIANT
        return
    with pytest.raises(error) as caught:
        raise_unless_invariant(result)
    assert type(caught.value) is error
    # A run skips a case that a machine cannot run; an assertion that checked nothing has not held.
    said = ExitCode.INVARIANT if status is Status.SKIPPED else caught.value.exit_code
    assert verdict.exit_code is said


def test_every_status_is_told() -> None:
    assert set(TOLD) == set(Status)


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("m", [1, 3])
def test_a_kernel_that_exits_fails_as_a_kernel(m: int, code: int) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == m:
            raise SystemExit(code)
        return x * 2

    with pytest.raises(KernelError, match="SystemExit"):
        check(kernel, checks=["batch-size"])


def test_nothing_tested_is_never_green() -> None:
    with pytest.raises(NothingTestedError, match="no power"):
        samebits.assert_batch_invariant(lambda x: x.sum(1), torch.ones(4, 2), derive=False, addends=2, max_batch=4)


def test_a_kernel_that_ignores_its_rows_is_never_green() -> None:
    with pytest.raises(NothingTestedError, match="no output element changes"):
        check(torch.zeros_like)


def test_unknown_checks_and_bad_rows_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="no such check"):
        check(lambda x: x, checks=["batch_size"])
    with pytest.raises(UsageError, match="one row per input row"):
        check(lambda x: x.sum())


def test_a_first_batch_that_switches_for_good_shows() -> None:
    """Nothing later differs from anything later: only the very first launch knows the other bits."""
    largest = [0]

    def kernel(x: torch.Tensor) -> torch.Tensor:
        largest[0] = max(largest[0], x.shape[0])
        return x * (2 if largest[0] < 3 else 2.0000002)

    with pytest.raises(DivergenceError, match="in the very first launch") as caught:
        check(kernel)
    assert "stale-state" in str(caught.value)
