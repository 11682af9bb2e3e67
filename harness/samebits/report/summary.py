"""One line that a person understands at once."""

from __future__ import annotations

from samebits.engine.suite import Expect
from samebits.errors import ExitCode
from samebits.report.model import CaseRecord, RunRecord, SuiteRecord

MEANING = {
    ExitCode.INVARIANT: "same bits, whatever the batch",
    ExitCode.DIVERGENCE: "bits changed with the batch, or a kernel failed",
    ExitCode.USAGE: "the request cannot be carried out as written",
    ExitCode.INFRASTRUCTURE: "the machine failed, not a kernel: may be retried",
    ExitCode.NOTHING_TESTED: "nothing was proven",
}


def summary(run: RunRecord) -> str:
    """Failures first, then what was proven, what was seen, what was left out."""
    counts: dict[str, int] = {}
    for case in run.cases:
        if not case.verdict.ok:
            counts[case.verdict.label] = counts.get(case.verdict.label, 0) + 1
    parts = [_failed(label, n) for label, n in counts.items()]
    parts += [f"suite {s.name}: {s.verdict.label}" for s in run.suites.values() if _own_problem(s)]

    good = [c for c in run.cases if c.verdict.ok]
    invariant = [c for c in good if c.verdict.label == "invariant"]
    if invariant:
        pairs = sum(c.pairs for c in invariant)
        parts.append(f"{count(len(invariant), 'case')} invariant over {pairs:,} (M, position) pairs")
    caught = sum(c.verdict.label == "caught" for c in good)
    if caught:
        parts.append(f"{count(caught, 'control')} caught")
    observed = [c for c in good if c.expect is Expect.OBSERVED and c.verdict.label.startswith("observed")]
    if observed:
        changing = sum(c.verdict.label.endswith(("diverges", "flaky")) for c in observed)
        verb = "diverges" if changing == 1 else "diverge"
        parts.append(f"{changing} of {count(len(observed), 'public kernel')} {verb} (observed)")
    for expect, word in ((Expect.CRASH, ("crash", "crashes")), (Expect.HANG, ("hang", "hangs"))):
        contained = sum(c.expect is expect and c.verdict.label == "contained" for c in good)
        if contained:
            parts.append(f"{contained} {word[contained > 1]} contained")
    uncaught = sum(c.verdict.label == "not caught" for c in good)
    if uncaught:
        parts.append(f"{count(uncaught, 'control')} not caught by the chosen checks")
    skipped = sum(c.verdict.label == "skipped" for c in good)
    if skipped:
        parts.append(f"{skipped} skipped")
    if run.interrupted:
        parts.insert(0, "interrupted")
    return " · ".join(parts) or "nothing was tested"


def _own_problem(suite: SuiteRecord) -> bool:
    """Whether a suite fails for a reason that none of its cases shows."""
    return not suite.verdict.ok and all(c.verdict.ok for c in suite.cases.values())


def _failed(label: str, n: int) -> str:
    return f"{count(n, 'case')} {label}" if label != "diverges" or n == 1 else f"{n} cases diverge"


def count(n: int, word: str) -> str:
    """ "1 case", "2 cases"."""
    return f"{n:,} {word}" + ("" if n == 1 else "s")


def skipped(suite: SuiteRecord) -> dict[str, list[CaseRecord]]:
    """Cases that this machine could not run, by reason: one line each is enough for a reader."""
    out: dict[str, list[CaseRecord]] = {}
    for case in suite.cases.values():
        if case.verdict.label == "skipped":
            out.setdefault(case.verdict.detail.splitlines()[0] if case.verdict.detail else "", []).append(case)
    return out
