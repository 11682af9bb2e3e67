"""One line in somebody's test: each verdict has the exception of its class, and only a proof returns."""

from __future__ import annotations

import pytest
import torch

import samebits
from samebits import DivergenceError, ExitCode, FlakyError, KernelError, NothingTestedError, UsageError

X = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))


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


def test_nothing_tested_is_never_green() -> None:
    with pytest.raises(NothingTestedError, match="no power"):
        samebits.assert_batch_invariant(lambda x: x.sum(1), torch.ones(4, 2), derive=False, addends=2, max_batch=4)


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
