"""The heart: one line in somebody else's test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from samebits.engine.result import CaseResult, Status
from samebits.engine.subject import Kernel, Subject
from samebits.errors import DivergenceError, FlakyError, KernelError, NothingTestedError
from samebits.session.case import run_subject

if TYPE_CHECKING:
    from torch import Tensor


def assert_batch_invariant(
    fn: Kernel | Subject,
    *row_inputs: Tensor,
    max_batch: int | None = None,
    out: Callable[..., Any] | None = None,
    checks: Sequence[str] | None = None,
    seed: int = 0,
    budget: float = 5.0,
    name: str = "",
    replay: str = "",
    **about: Any,
) -> CaseResult:
    """Fail unless `fn` gives each row the same bits, whatever the batch around it.

        samebits.assert_batch_invariant(lambda x: F.linear(x, w), x)

    Args:
        fn: row inputs [M, ...] to one tensor or several, each [M, ...]; or a `Subject`, then without row inputs.
        row_inputs: tensors [R, ...] that share dimension 0, the batch. R rows are a pool: batches of every size
            are drawn from it, and from rows derived from it that make rounding visible.
        max_batch: check every (M, position) pair for M = 1..max_batch. None: up to 1,024 on the CPU and 4,096 on
            a GPU, every M as far as `budget` lasts, a covering sample beyond; the result says exactly which.
        out: `out(*rows, out=tensor)`, where the kernel offers it.
        checks: ids to run; None: all that apply (`samebits list --checks`).
        seed: decides every random choice.
        budget: seconds a check may spend beyond its fixed plan.
        name, replay: how messages call the kernel, and the command they offer to see it again.
        about: further fields of `Subject` (reordered, addends, poisons, probe, ...).

    Returns:
        What was covered and measured, if nothing differed.

    Raises:
        DivergenceError: bits changed with the batch (an AssertionError). `FlakyError` where the very same launch
            did not agree with itself.
        NothingTestedError: no check had the power to see a difference. Never green.
        UsageError: inputs that cannot be checked as given.
        KernelError: the kernel raised (an AssertionError, too).
    """
    __tracebackhide__ = True
    subject = fn if isinstance(fn, Subject) else Subject(fn, tuple(row_inputs), name=name, out=out, **about)

    result = run_subject(
        subject,
        seed=seed,
        max_batch=max_batch,
        budget=budget,
        checks=checks,
        replay=(lambda _: replay) if replay else None,
    )
    raise_unless_invariant(result)
    return result


def raise_unless_invariant(result: CaseResult) -> None:
    """Turn a result that is not green into the exception of its class."""
    from samebits.report.terminal import render_findings

    __tracebackhide__ = True  # pytest: the test's own line is the last one of interest
    if result.status is Status.PASSED:
        return
    text = render_findings(result)
    if result.status is Status.FLAKY:
        raise FlakyError(text, result)
    if result.status is Status.DIVERGED:
        raise DivergenceError(text, result)
    if result.status in (Status.NO_POWER, Status.SKIPPED):
        raise NothingTestedError(text)
    raise KernelError(text, result)
