"""A run as the parent sees it: suites and cases, filled in by the events of the isolation.

A case that dies keeps the checks that had ended: each was told as soon as it was over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from samebits.engine.result import CaseResult, CheckResult, Status
from samebits.engine.suite import Expect
from samebits.engine.verdict import USAGE, Verdict, exit_code, judge, judge_suite
from samebits.errors import ExitCode
from samebits.isolate.protocol import CaseDied, CaseEnded, CaseStarted, Death, Event, SuiteFailed


@dataclass
class CaseRecord:
    """One planned case and what became of it."""

    id: str
    expect: Expect = Expect.INVARIANT
    seed: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    state: str = "planned"
    """planned, running, done, skipped, died or lost."""
    checks: list[CheckResult] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    """Why it was skipped or lost."""
    death: Death | None = None
    seconds: float = 0.0
    strict: bool = False
    chosen: bool = False
    """Only some of the checks were asked for."""

    @property
    def result(self) -> CaseResult:
        """Its checks as the engine states them, with the expectation that was planned."""
        return CaseResult(self.id, str(self.expect), self.seed, self.checks, self.facts)

    @property
    def verdict(self) -> Verdict:
        """See `samebits.engine.verdict`."""
        if self.state == "skipped":
            return Verdict(True, "skipped", self.reason)
        if self.state in ("planned", "running", "lost"):
            return Verdict(False, "not run", self.reason, ExitCode.INFRASTRUCTURE)
        return judge(self.result, self.death, strict=self.strict, chosen=self.chosen)

    @property
    def pairs(self) -> int:
        """(M, position) pairs compared, over all checks."""
        return sum(c.pairs for c in self.checks)

    @property
    def launches(self) -> int:
        """Launches of the subject, over all checks."""
        return sum(c.launches for c in self.checks)

    @property
    def tested(self) -> bool:
        """Whether it ran at all, or died trying."""
        return self.state in ("done", "died") and self.verdict.label != "skipped"

    def take(self, data: Mapping[str, Any]) -> None:
        """One message of the worker (see `samebits.session.serve`)."""
        kind = data.get("type")
        if kind == "check":
            self.checks.append(CheckResult.from_json(data["result"]))
        elif kind == "case":
            result = CaseResult.from_json(data["result"])
            told = {c.check for c in result.checks}
            self.checks = [*(c for c in self.checks if c.check not in told), *result.checks]
            self.facts, self.state = result.facts, "done"
        elif kind == "skip":
            self.reason, self.state = str(data.get("reason", "")), "skipped"
        elif kind == "usage":
            self.facts[USAGE], self.state = str(data.get("message", "")), "done"
            self.checks.append(CheckResult("build", Status.ERROR, self.facts[USAGE]))


@dataclass
class SuiteRecord:
    """One suite and its cases."""

    name: str
    module: str = ""
    summary: str = ""
    cases: dict[str, CaseRecord] = field(default_factory=dict)
    whole: bool = True
    """Every case and check was asked for, so that its controls must be caught."""
    death: Death | None = None
    """Its process could not run at all: infrastructure."""
    problem: Verdict | None = None
    """It could not even be read."""
    excuse: str = ""
    """Why `whole` does not hold, for the report."""

    @property
    def verdict(self) -> Verdict:
        """See `samebits.engine.verdict.judge_suite`."""
        if self.problem is not None:
            return self.problem
        verdict = judge_suite([(c.expect, c.verdict) for c in self.cases.values()], whole=self.whole)
        if self.death is not None:
            code = exit_code([verdict.exit_code, ExitCode.INFRASTRUCTURE])
            return Verdict(False, "failed", self.death.message, code)
        return verdict

    def title(self, case: CaseRecord) -> str:
        """ "suite::case", or the name of a subject that stands alone."""
        return case.id if case.id.startswith(f"{self.module}:") else f"{self.name}::{case.id}"

    @property
    def ended(self) -> bool:
        """Whether nothing of it is still to come."""
        return all(c.state not in ("planned", "running") for c in self.cases.values())


@dataclass
class RunRecord:
    """All suites of a run."""

    suites: dict[str, SuiteRecord] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def cases(self) -> list[CaseRecord]:
        """Every case of every suite."""
        return [c for s in self.suites.values() for c in s.cases.values()]

    @property
    def exit_code(self) -> ExitCode:
        """By the precedence of `samebits.engine.verdict`; NOTHING_TESTED where no case ran."""
        codes: Iterable[ExitCode] = [s.verdict.exit_code for s in self.suites.values()]
        code = exit_code(codes)
        if code is ExitCode.INVARIANT and not any(c.tested for c in self.cases):
            return ExitCode.NOTHING_TESTED
        return code

    def fold(self, event: Event) -> CaseRecord | None:
        """Take one event in; returns the case that ended with it, if one did."""
        suite = self.suites[event.suite]
        if isinstance(event, SuiteFailed):
            suite.death = event.death
            for case_id in event.lost:
                lost = suite.cases[case_id]
                lost.state, lost.reason = "lost", event.death.message
            return None
        case = suite.cases[event.case]
        if isinstance(event, CaseStarted):
            case.state = "running"
        elif isinstance(event, CaseEnded):
            case.seconds = event.seconds
            if case.state == "running":  # it ended without a word: nothing was tested
                case.state, case.reason = "skipped", "the worker reported nothing"
            return case
        elif isinstance(event, CaseDied):
            case.state, case.death, case.seconds = "died", event.death, event.seconds
            return case
        else:
            case.take(event.data)
        return None
