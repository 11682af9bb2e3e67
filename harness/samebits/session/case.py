"""Run the checks on one subject, in this process."""

from __future__ import annotations

import dataclasses
import shlex
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samebits import checks as registry
from samebits import diagnose
from samebits.checks.protocol import Check
from samebits.diagnose.shrink import shrink
from samebits.engine.bench import Bench
from samebits.engine.locate import Ref
from samebits.engine.result import ESSENTIAL, CaseResult, CheckResult, Status
from samebits.engine.subject import Subject
from samebits.engine.suite import Case, Expect
from samebits.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


FAILED = frozenset({Status.DIVERGED, Status.FLAKY, Status.ERROR})
RAISED = (Exception, SystemExit)
"""What a kernel may raise. A kernel that exits has not ended the run, least of all with status 0."""
Listener = Callable[[CheckResult], None]
Replay = Callable[[CheckResult], str]
"""The command that shows a check's finding again."""


def run_case(
    case: Case,
    *,
    module: str,
    seed: int = 0,
    max_batch: int | None = None,
    budget: float = 5.0,
    checks: Sequence[str] | None = None,
    on_check: Listener | None = None,
) -> CaseResult:
    """Build a case's subject and run its checks.

    Args:
        case: what to run.
        module: the importable module of its suite, so that fresh processes find it again.
        seed: decides inputs and every random choice.
        max_batch: largest M, over the case's own; None: the case's, or a default covered within `budget`.
        budget: seconds that one check may spend beyond its fixed plan.
        checks: check ids; None: those of the case, or all that apply.
        on_check: told of each check as it ends, so that it can be written down at once.

    Raises:
        UsageError: a subject that cannot be checked as declared.
    """
    if case.strategies is not None:
        return search_case(
            case, module=module, seed=seed, max_batch=max_batch, budget=budget, checks=checks, on_check=on_check
        )
    ref = Ref(module=module, name="suite", case=case.id, seed=seed, env=dict(case.env))
    chosen = _choose(checks, case.checks)
    most = f":M={max_batch}" if max_batch is not None else ""

    def replay(check: CheckResult) -> str:
        address = f"{module}::{case.id}::{check.check}@{seed}{most}"
        quoted = shlex.quote(address) if "'" in address else f"'{address}'"
        return f"samebits replay {quoted}"

    return run_subject(
        case.build(seed),
        case=case.id,
        expect=case.expect,
        seed=seed,
        max_batch=max_batch if max_batch is not None else case.max_batch,
        budget=budget,
        checks=chosen,
        ref=ref,
        replay=replay,
        on_check=on_check,
    )


def search_case(
    case: Case,
    *,
    module: str,
    seed: int = 0,
    max_batch: int | None = None,
    budget: float = 5.0,
    checks: Sequence[str] | None = None,
    on_check: Listener | None = None,
) -> CaseResult:
    """Let Hypothesis draw configurations of a case, and report the smallest one that fails, or all together."""
    from samebits.diagnose.explore import Example, explore

    strategies = case.strategies() if case.strategies is not None else {}
    passed: list[CaseResult] = []

    def fails(parameters: Mapping[str, Any]) -> CaseResult | None:
        result = run_case(
            case.at(parameters), module=module, seed=seed, max_batch=max_batch, budget=budget, checks=checks
        )
        if result.status in FAILED:
            return result
        passed.append(result)
        return None

    found = explore(fails, strategies, seed=seed)
    if isinstance(found, Example):
        result: CaseResult = found.outcome
        result.facts["configuration"] = {k: str(v) for k, v in found.parameters.items()}
        note = f"the smallest failing configuration of {found.tried} tried: {result.case}"
        for check in result.checks:
            check.notes.append(note)
    else:
        result = _together(passed)
    result.case, result.expect, result.seed = case.id, str(case.expect), seed
    if on_check is not None:
        for check in result.checks:
            on_check(check)
    return result


def _together(results: Sequence[CaseResult]) -> CaseResult:
    """Configurations that passed as one result: sums, and the best power among them."""
    merged = CaseResult("", facts=dict(results[0].facts) if results else {})
    for i, first in enumerate(results[0].checks if results else ()):
        every = [r.checks[i] for r in results]
        seen = next((c for c in every if c.status is Status.PASSED), first)
        total = dataclasses.replace(
            seen,
            launches=sum(c.launches for c in every),
            pairs=sum(c.pairs for c in every),
            seconds=sum(c.seconds for c in every),
            coverage=f"{len(every)} configurations; of the last: {every[-1].coverage}",
        )
        blind = sum(c.status is Status.NO_POWER for c in every)
        if blind:
            total.notes = [*total.notes, f"{blind} of {len(every)} configurations had no power"]
        merged.checks.append(total)
    return merged


def run_subject(
    subject: Subject,
    *,
    case: str = "",
    expect: Expect = Expect.INVARIANT,
    seed: int = 0,
    max_batch: int | None = None,
    budget: float = 5.0,
    checks: Sequence[str] | None = None,
    ref: Ref | None = None,
    replay: Replay | None = None,
    on_check: Listener | None = None,
) -> CaseResult:
    """Run the checks on a subject. A divergence is in the result, never raised; see `run_case`."""
    result = CaseResult(case or subject.name or getattr(subject.fn, "__name__", "kernel"), str(expect), seed)
    first = _first_launch(subject)
    try:
        bench = Bench(subject, seed=seed, max_batch=max_batch, budget=budget, ref=ref)
        bench.first = first
        result.facts = bench.facts()
    except UsageError:
        raise
    except RAISED as error:  # its very first launches raise: there is nothing to check
        result.checks.append(_failed("launch", error))
        return result
    for check in [registry.get(i) for i in checks] if checks is not None else registry.all_checks():
        outcome = _run(check, bench)
        if replay is not None:
            command = replay(outcome)
            outcome.findings = [dataclasses.replace(f, replay=f.replay or command) for f in outcome.findings]
        result.checks.append(outcome)
        if on_check is not None:
            on_check(outcome)
    _explain(result, bench)
    return result


def _choose(asked: Sequence[str] | None, declared: Sequence[str] | None) -> Sequence[str] | None:
    if asked is None or declared is None:
        return asked if declared is None else declared
    return [c for c in asked if c in declared]


def _run(check: Check, bench: Bench) -> CheckResult:
    start, launches = time.perf_counter(), bench.launches
    try:
        reason = check.applies(bench)
        if reason is not None:
            return CheckResult(check.id, Status.SKIPPED, reason)
        return check.run(bench)
    except UsageError:
        raise
    except RAISED as error:  # the kernel under test may raise anything; the other checks still count
        return dataclasses.replace(
            _failed(check.id, error), launches=bench.launches - launches, seconds=time.perf_counter() - start
        )


def _first_launch(subject: Subject) -> tuple[Tensor, ...] | None:
    """Row 0 alone, before anything larger runs: even learning a kernel's weights takes a batch."""
    import torch

    try:
        with torch.no_grad():
            found = subject.fn(*(t[:1].contiguous().clone() for t in subject.rows))
        outputs = (found,) if isinstance(found, torch.Tensor) else tuple(found)
        return tuple(y.clone() for y in outputs)
    except RAISED:  # whatever is wrong shows again, where it is reported
        return None


def _failed(check: str, error: BaseException) -> CheckResult:
    """The kernel raised: with the last frames of where."""
    where = "".join(traceback.format_exception(error)[-4:]).rstrip()
    return CheckResult(check, Status.ERROR, f"{type(error).__name__}: {error}", notes=[where])


def _explain(result: CaseResult, bench: Bench) -> None:
    """Give every finding its cause (the pattern of all checks tells) and the sweep's its smallest launch."""
    for outcome in result.checks:
        if not outcome.findings:
            continue
        reason = diagnose.cause(result, outcome)
        outcome.findings = [dataclasses.replace(f, cause=f.cause or reason) for f in outcome.findings]
        first = outcome.findings[0]
        if outcome.check != ESSENTIAL or first.batch is None or first.row is None or first.position is None:
            continue
        try:
            smallest = shrink(bench, first.batch, first.row, first.position)
        except RAISED as error:  # a kernel may refuse the rows that the search makes: the finding stands
            outcome.notes.append(f"no smaller launch was looked for: {type(error).__name__}: {error}")
            continue
        if smallest is not None:
            first.details["smallest"] = smallest.words()
