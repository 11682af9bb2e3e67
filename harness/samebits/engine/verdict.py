"""What a result means, given what its case must do: the verdict of a case, of a suite and of a run.

| expect | good | bad |
| --- | --- | --- |
| invariant | passed: "invariant" | diverged, flaky, crashed, error: 1; no power: 5 |
| divergence (control) | diverged or flaky: "caught" | not caught: "no power", 5; crashed, error: 1 |
| observed | "observed: invariant", "observed: diverges", ... | crashed, error: 1; with `strict` as invariant |
| crash, hang | that very death: "contained" | another death: 1; alive: "no power", 5 |

A kernel that crashes, hangs or raises counts as 1, not 3: it is the kernel's own doing, and CI may retry a 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from samebits.engine.result import CaseResult, Status
from samebits.engine.suite import Expect
from samebits.errors import ExitCode
from samebits.isolate.protocol import Death

USAGE = "usage"
"""Key of `CaseResult.facts` that holds the text of a usage error met while the case was built."""

MACHINE_DEATHS = frozenset({"memory", "disk"})
"""Deaths that say something about the machine, not about the kernel."""

PRECEDENCE = (
    ExitCode.DIVERGENCE,
    ExitCode.USAGE,
    ExitCode.INFRASTRUCTURE,
    ExitCode.NOTHING_TESTED,
    ExitCode.INVARIANT,
)
"""When several hold, the first of these is the exit status."""


@dataclass(frozen=True)
class Verdict:
    """What a result means for the run."""

    ok: bool
    label: str
    """Two or three words for a table: "invariant", "caught", "observed: diverges", "no power"."""
    detail: str = ""
    """One sentence, where the label does not say it all."""
    exit_code: ExitCode = ExitCode.INVARIANT


def judge(
    result: CaseResult, death: Death | None = None, *, strict: bool = False, chosen: bool = False
) -> Verdict:
    """The verdict of one case.

    Args:
        result: what its checks said (those that ended, if the process died).
        death: how its process ended, if it should not have.
        strict: hold observed cases to invariance.
        chosen: only some checks were asked for, so a control that they do not catch is no failure.
    """
    expect = Expect(result.expect)
    if strict and expect is Expect.OBSERVED:
        expect = Expect.INVARIANT
    if USAGE in result.facts:
        return Verdict(False, "usage error", str(result.facts[USAGE]), ExitCode.USAGE)
    if death is not None:
        return _died(expect, death)
    status, why = result.status, _why(result)
    if status is Status.SKIPPED:
        return Verdict(True, "skipped", why)
    if status is Status.CRASHED:
        return Verdict(False, "crashed", why, ExitCode.DIVERGENCE)
    if status is Status.ERROR:
        return Verdict(False, "error", why, ExitCode.DIVERGENCE)
    if expect in (Expect.CRASH, Expect.HANG):
        missing = f"a control of the isolation: it had to {expect}, and did not"
        return Verdict(False, "no power", missing, ExitCode.NOTHING_TESTED)

    word = {
        Status.DIVERGED: "diverges",
        Status.FLAKY: "flaky",
        Status.NO_POWER: "no power",
        Status.PASSED: "invariant",
    }[status]
    if expect is Expect.OBSERVED:
        return Verdict(True, f"observed: {word}", why)
    if expect is Expect.DIVERGENCE:
        if status in (Status.DIVERGED, Status.FLAKY):
            return Verdict(True, "caught", why)
        if chosen:
            return Verdict(True, "not caught", "a control that the chosen checks do not catch")
        missed = "a control that must be caught was not" + (f": {why}" if why else "")
        return Verdict(False, "no power", missed, ExitCode.NOTHING_TESTED)
    if status is Status.PASSED:
        return Verdict(True, word)
    code = ExitCode.NOTHING_TESTED if status is Status.NO_POWER else ExitCode.DIVERGENCE
    return Verdict(False, word, why, code)


def judge_suite(cases: Sequence[tuple[Expect, Verdict]], *, whole: bool = True) -> Verdict:
    """The verdict of a suite, from (expect, verdict) of its cases.

    Args:
        cases: those that ended.
        whole: every case and every check was asked for. Of a part nobody expects its controls.
    """
    code = exit_code(v.exit_code for _, v in cases)
    bad = [v for _, v in cases if not v.ok]
    if bad:
        return Verdict(False, "failed", f"{len(bad)} of {len(cases)} cases failed", code)
    tested = [(e, v) for e, v in cases if v.label != "skipped"]
    if not tested:
        return Verdict(True, "skipped", cases[0][1].detail if cases else "no case")
    caught = any(v.label == "caught" for _, v in tested)
    seen = any(v.label in ("observed: diverges", "observed: flaky") for _, v in tested)
    promises = any(e is Expect.INVARIANT for e, _ in tested)
    observes = any(e is Expect.OBSERVED for e, _ in tested)
    # Kernels that promise nothing need no control once one of them was seen to diverge.
    if whole and not caught and (promises or (observes and not seen)):
        controls = sum(e is Expect.DIVERGENCE for e, _ in cases)
        why = f"none of {controls} could run" if controls else "it declares none (@suite.control)"
        return Verdict(False, "no power", f"no control was caught: {why}", ExitCode.NOTHING_TESTED)
    return Verdict(True, "ok")


def exit_code(codes: Iterable[ExitCode]) -> ExitCode:
    """The one that is the exit status of all of them together; INVARIANT for none."""
    found = set(codes)
    return next((c for c in PRECEDENCE if c in found), ExitCode.INVARIANT)


def _died(expect: Expect, death: Death) -> Verdict:
    hang = death.kind == "hang"
    machine = death.kind in MACHINE_DEATHS
    if (expect is Expect.HANG and hang) or (expect is Expect.CRASH and not hang and death.kind != "disk"):
        return Verdict(True, "contained", death.message)
    label = {"hang": "hung", "memory": "out of memory", "disk": "disk full"}.get(death.kind, "crashed")
    return Verdict(False, label, death.message, ExitCode.INFRASTRUCTURE if machine else ExitCode.DIVERGENCE)


def _why(result: CaseResult) -> str:
    """The sentence behind the worst status: its first finding, or the reason of the check that has it."""
    for check in result.checks:
        if check.status is result.status:
            said = check.findings[0].message if check.findings else check.reason
            return f"{check.check}: {said}" if said else check.check if check.findings else ""
    return ""
