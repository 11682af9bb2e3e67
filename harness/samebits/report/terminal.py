"""What a person reads: a finding, a table of verdicts, one line that sums up.

The text of a finding is plain and at most 100 columns wide, so that it reads the same in a terminal, in a CI log
and in an AssertionError. Only commands are never broken: they are there to be copied.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from samebits.engine.result import CaseResult, CheckResult, Element, Finding, Power, Status
from samebits.isolate.protocol import Death
from samebits.report import invariance
from samebits.report.summary import skipped

if TYPE_CHECKING:
    from rich.table import Table

    from samebits.report.model import CaseRecord, SuiteRecord

WIDTH = 100
LABEL = 12
"""Width of the column of labels."""
INDENT = 4
SHOWN_LINES = 12
"""Of a dead worker's standard error, the last; of its stacks, the first: the newest call comes first there."""
MENTIONED = 3
"""Findings of one check that are printed; the evidence has all that were kept."""

HEADLINES = {
    Status.DIVERGED: "is not batch invariant",
    Status.FLAKY: "is not even deterministic: the same launch gave other bits",
    Status.NO_POWER: "proves nothing: no check had the power to see a difference",
    Status.SKIPPED: "was not tested: no check applies",
    Status.CRASHED: "died while it was being checked",
    Status.ERROR: "raised while it was being checked",
    Status.PASSED: "is batch invariant",
}


def render_findings(result: CaseResult, machine: str = "", title: str = "") -> str:
    """All that is known of one case, as plain text.

    Headline, the first check with findings in full, the other ones in short, then what passed or was skipped.

    Args:
        result: of the case.
        machine: card, driver and toolkit, where the caller knows them.
        title: names the case in the headline; by default it names itself.
    """
    subject = str(result.facts.get("subject") or "")
    label = title or result.case or subject or "kernel"
    label += f" ({subject})" if subject and not label.endswith(subject) else ""
    lines = _fill(f"{label} {HEADLINES[result.status]}", indent=0)
    told = [c for c in result.checks if c.findings]
    for check in told[:1]:
        lines += ["", *_in_full(result, check)]
    for before, check in itertools.pairwise(told):
        lines += ["", *_in_short(check, _cause(before))]
    lines += _others([c for c in result.checks if not c.findings], brief=bool(told))
    ran_on = [machine or str(result.facts.get("device_name") or result.facts.get("device") or "")]
    ran_on += [f"torch {result.facts['torch']}"] if result.facts.get("torch") else []
    ran_on.append(f"seed {result.seed}")
    return "\n".join([*lines, "", *_field("ran on", " · ".join(filter(None, ran_on)), indent=2)])


def render_case(suite: SuiteRecord, case: CaseRecord, machine: str = "") -> str:
    """One case of a run in full: how its process died if it did, why else it failed, and `render_findings`."""
    verdict, title = case.verdict, suite.title(case)
    lines: list[str] = []
    if not case.checks or case.death or verdict.label in ("no power", "not run", "usage error"):
        lines += [f"{title}: {verdict.label}", *_fill(verdict.detail, indent=2)]
    if case.death is not None:
        lines += _death(case.death)
        passed = [c.check for c in case.checks if c.status is Status.PASSED]
        lines += _field("passed", f"{', '.join(passed)}, before it died") if passed else ()
    if case.result.findings or (case.checks and case.death is None and verdict.label != "usage error"):
        lines += [*([""] if lines else []), render_findings(case.result, machine, title)]
    return "\n".join(lines)


def render_suite_problem(suite: SuiteRecord) -> str:
    """Why a suite is not green, where none of its cases shows it; empty otherwise."""
    verdict = suite.verdict
    if verdict.ok or (suite.death is None and any(not c.verdict.ok for c in suite.cases.values())):
        return ""
    lines = [f"suite {suite.name}: {verdict.label}", *_fill(verdict.detail, indent=2)]
    if suite.death is not None:
        lines += _death(suite.death)
    return "\n".join(lines)


def _death(death: Death) -> Iterator[str]:
    if death.device_error:
        yield from _field("device", death.device_error)
    if death.core:
        yield from _field("core dump", death.core)
    stderr = death.stderr.strip().splitlines()[-SHOWN_LINES:]
    stack = death.stack.strip().splitlines()[:SHOWN_LINES]
    for title, lines in (("stderr", stderr), ("stack", stack)):
        if lines:
            yield f"{'':{INDENT}}{title}"
            for line in lines:
                yield f"{'':{INDENT}}  {line}"


def _in_full(result: CaseResult, check: CheckResult) -> Iterator[str]:
    yield _check_line(check)
    first = check.findings[0]
    yield from _fill(first.message)
    yield from _finding(result, first)
    for finding in check.findings[1:MENTIONED]:
        yield from _field("also", finding.message)
    if len(check.findings) > MENTIONED:
        yield from _field("", f"and {len(check.findings) - MENTIONED} more in the evidence")
    if cause := _cause(check):
        yield from _field("cause", cause)
    if check.power is not None:
        yield from _field("power", power_words(check.power))
    if check.coverage:
        yield from _field("coverage", check.coverage)
    for note in check.notes:
        yield from _field("note", note)
    yield from _replay(check)


def _in_short(check: CheckResult, known_cause: str) -> Iterator[str]:
    """A further check with findings: what it adds to the one before it."""
    yield _check_line(check)
    first = check.findings[0]
    yield from _fill(first.message)
    if (e := first.first) is not None:
        ulp = f" · {e.ulp:,} ULP" if e.ulp is not None else ""
        yield from _field("first", f"{_index(e)} expected {e.expected}, found {e.found}{ulp}")
    if (cause := _cause(check)) and cause != known_cause:
        yield from _field("cause", cause)
    if check.coverage:
        yield from _field("coverage", check.coverage)
    yield from _replay(check)


def _check_line(check: CheckResult) -> str:
    count = len(check.findings)
    return f"  {check.check}: {check.status}" + (f", {count} findings" if count > 1 else "")


def _cause(check: CheckResult) -> str:
    return next((f.cause for f in check.findings if f.cause), "")


def _replay(check: CheckResult) -> Iterator[str]:
    replay = next((f.replay for f in check.findings if f.replay), "")
    if replay:
        yield f"{'':{INDENT}}{'replay':{LABEL}}{replay}"


def _finding(result: CaseResult, finding: Finding) -> Iterator[str]:
    facts, details = result.facts, finding.details
    where = [str(facts.get("subject") or result.case)]
    if "dtype" in details:
        where.append(str(details["dtype"]))
    if "shape" in details:
        where.append(f"row shape {tuple(details['shape'])}")
    if len(facts.get("outputs", ())) > 1:
        where.append(f"output {finding.output}")
    yield from _field("op", " · ".join(where))
    if facts.get("rows"):
        yield from _field("inputs", ", ".join(facts["rows"]))
    if finding.row is not None:
        place = f"{finding.row}"
        place += f", at position {finding.position}" if finding.position is not None else ""
        place += f" of M={finding.batch}" if finding.batch is not None else ""
        place += f", against M={finding.against}" if finding.against is not None else ""
        yield from _field("row", place)
    if finding.total:
        share = 100 * finding.mismatched / finding.total
        kind = "" if finding.kind == "value" else f" · {finding.kind} only"
        yield from _field(
            "mismatched", f"{finding.mismatched:,} of {finding.total:,} elements ({share:.1f} %){kind}"
        )
    for title, element in (("first", finding.first), ("greatest", finding.greatest)):
        if element is not None and not (title == "greatest" and element == finding.first):
            yield from _element(title, element)
    parts = invariance.segments(details)
    if parts:
        yield from _field("map", invariance.words(parts))
    if details.get("smallest"):
        yield from _field("smallest", str(details["smallest"]))


def _element(title: str, element: Element) -> Iterator[str]:
    ulp = f" · {element.ulp:,} ULP" if element.ulp is not None else ""
    yield from _field(title, f"{_index(element)}{ulp}")
    wide = max(len(element.expected), len(element.found))
    yield from _field("", f"expected {element.expected:{wide}}  {element.expected_value}")
    yield from _field("", f"found    {element.found:{wide}}  {element.found_value}")


def _index(element: Element) -> str:
    return f"[{', '.join(map(str, element.index))}]"


def _others(checks: Sequence[CheckResult], brief: bool) -> Iterator[str]:
    """Checks without a finding, worst first; where others have some (`brief`), a lack of power is a footnote."""
    blind = [c for c in checks if c.status is Status.NO_POWER] if brief else []
    for status in (Status.CRASHED, Status.ERROR, *(() if brief else (Status.NO_POWER,))):
        for check in checks:
            if check.status is status:
                yield ""
                yield f"  {check.check}: {status}"
                yield from _fill(check.reason or "no reason was given")
                for note in check.notes:
                    yield from _fill(note)
    passed = [c for c in checks if c.status is Status.PASSED]
    skipped = [c for c in checks if c.status is Status.SKIPPED]
    if passed or skipped or blind:
        yield ""
    if passed:
        yield from _field("passed", ", ".join(c.check for c in passed), indent=2)
        coverage = next((c.coverage for c in passed if c.coverage), "")
        power = next((c.power for c in passed if c.power), None)
        yield from _field("covered", coverage, indent=2) if coverage else ()
        yield from _field("power", power_words(power), indent=2) if power else ()
    if blind:
        yield from _field("no power", "; ".join(f"{c.check} ({c.reason})" for c in blind), indent=2)
    if skipped:
        reasons = "; ".join(f"{c.check} ({c.reason})" if c.reason else c.check for c in skipped)
        yield from _field("skipped", reasons, indent=2)


def power_words(power: Power) -> str:
    """What a check could have seen, in words."""
    if not power.sees:
        return f"none: {power.how}"
    if power.sensitive is None:
        return f"{power.elements:,} elements per row" + (f" ({power.how})" if power.how else "")
    share = f"{100 * power.sensitive:.1f} % of {power.elements:,} elements are order-sensitive"
    return share + (f" ({power.how})" if power.how else "")


def suite_table(suite: SuiteRecord) -> Table:
    """Verdicts of one suite: case, verdict, (M, position) pairs, launches, seconds."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    title = Text.assemble((suite.name, "bold"), f"  {suite.summary}" if suite.summary else "")
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False, expand=True)
    table.add_column("case", ratio=1, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for numbers in ("pairs", "launches", "seconds"):
        table.add_column(numbers, justify="right", no_wrap=True)
    folded = {reason: cases for reason, cases in skipped(suite).items() if len(cases) > 1}
    for case in suite.cases.values():
        verdict = case.verdict
        if any(case in cases for cases in folded.values()):
            continue
        cell = Group(Text(case.id))
        if verdict.detail and verdict.label not in ("caught", "contained"):
            cell.renderables.append(Padding(Text(verdict.detail.splitlines()[0], style="dim"), (0, 0, 0, 2)))
        table.add_row(
            cell,
            Text(verdict.label, style=verdict_style(verdict.ok, verdict.label)),
            f"{case.pairs:,}" if case.pairs else "",
            f"{case.launches:,}" if case.launches else "",
            f"{case.seconds:.1f}" if case.seconds else "",
        )
    for reason, cases in folded.items():
        table.add_row(Text(f"{len(cases)} cases: {reason}", style="dim"), Text("skipped", style="dim"), "", "", "")
    return table


def verdict_style(ok: bool, label: str) -> str:
    """Colour by what the reader has to do: red fails, yellow is worth a look, green is proven, dim is nothing."""
    if not ok:
        return "bold red" if label != "no power" else "bold yellow"
    if label in ("invariant", "caught", "contained"):
        return "green"
    return "yellow" if label.endswith(("diverges", "flaky")) else "dim"


def _field(label: str, text: str, indent: int = INDENT) -> Iterator[str]:
    lines = textwrap.wrap(text, WIDTH - indent - LABEL, break_long_words=True) or [""]
    for i, line in enumerate(lines):
        yield f"{'':{indent}}{label if i == 0 else '':{LABEL}}{line}".rstrip()


def _fill(text: str, indent: int = INDENT) -> list[str]:
    """Wrapped, with the text's own line breaks and their indentation kept."""
    out: list[str] = []
    for line in text.splitlines() or [""]:
        lead = " " * (indent + len(line) - len(line.lstrip()))
        out += textwrap.wrap(line.strip(), WIDTH, initial_indent=lead, subsequent_indent=lead) or [""]
    return out
