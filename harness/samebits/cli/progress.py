"""A run on the screen: live on a terminal, one line per case elsewhere, only failures with -q."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.isolate.protocol import CaseStarted, Event
from samebits.report.evidence import Evidence
from samebits.report.model import CaseRecord, SuiteRecord
from samebits.report.summary import count, skipped
from samebits.report.terminal import WIDTH, suite_table, verdict_style
from samebits.session.suites import Listener

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class PlainProgress(Listener):
    """One line per case as it ends: for logs."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def planned(self, evidence: Evidence) -> None:
        """How much there is to do."""
        cases, suites = len(evidence.run.cases), len(evidence.run.suites)
        self.console.print(f"{count(cases, 'case')} in {count(suites, 'suite')}")

    def case_ended(self, suite: SuiteRecord, case: CaseRecord) -> None:
        """One line; what this machine cannot run is told together at the suite's end."""
        verdict = case.verdict
        if verdict.label == "skipped":
            return
        self.console.print(case_line(suite, case))
        if verdict.detail and verdict_style(verdict.ok, verdict.label) in ("yellow", "bold red", "bold yellow"):
            self.console.print(f"{'':21}{verdict.detail.splitlines()[0]}")

    def suite_ended(self, suite: SuiteRecord) -> None:
        """What was skipped, by reason; a suite that fails for a reason of its own says so at once."""
        for reason, cases in skipped(suite).items():
            which = suite.title(cases[0]) if len(cases) == 1 else f"{suite.name}: {len(cases)} cases"
            self.console.print(f"{'skipped':<20} {which}  {reason}".rstrip())
        if not suite.verdict.ok and all(c.verdict.ok for c in suite.cases.values()):
            self.console.print(f"{suite.name}: {suite.verdict.label}: {suite.verdict.detail}")


class LiveProgress(Listener):
    """A bar and the case that runs now; a table for each suite that ends."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress: Progress | None = None

    def reading(self) -> None:
        """Start the display."""
        from rich import progress as rich

        self._progress = rich.Progress(
            rich.SpinnerColumn(), rich.BarColumn(bar_width=24), rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(), rich.TextColumn("{task.description}", markup=False),
            console=self.console, transient=True,
        )  # fmt: skip
        self._task = self._progress.add_task("reading suites", total=None)
        self._progress.start()

    def planned(self, evidence: Evidence) -> None:
        """How much there is to do."""
        if self._progress is None:
            self.reading()
        if self._progress is not None:
            self._progress.update(self._task, total=len(evidence.run.cases), description="starting")

    def event(self, event: Event) -> None:
        """Show the case that runs now."""
        if self._progress is not None and isinstance(event, CaseStarted):
            self._progress.update(self._task, description=f"{event.suite} {event.case}")

    def case_ended(self, suite: SuiteRecord, case: CaseRecord) -> None:
        """One step on."""
        if self._progress is not None:
            self._progress.advance(self._task)

    def suite_ended(self, suite: SuiteRecord) -> None:
        """Its table, above the bar."""
        if suite.cases:
            self.console.print(suite_table(suite), width=min(WIDTH, self.console.width))
            self.console.print()

    def close(self) -> None:
        """End the display, however the run ended."""
        if self._progress is not None:
            self._progress.stop()


def case_line(suite: SuiteRecord, case: CaseRecord) -> str:
    """Verdict first, so that a log can be searched for it."""
    verdict = case.verdict
    numbers = [f"{case.pairs:,} pairs"] if case.pairs else []
    numbers += [f"{case.seconds:.1f} s"] if case.seconds else []
    return f"{verdict.label:<20} {suite.title(case)}  {' · '.join(numbers)}".rstrip()
