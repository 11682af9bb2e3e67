"""What the cases said, kept in the process that writes the reports; the terminal summary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from samebits.engine.result import CheckResult
    from samebits.engine.verdict import Verdict

FACTS = pytest.StashKey[dict[str, Any]]()
"""Of an item: what samebits found, as `report.samebits`. Plain JSON types."""
PROBLEMS = "samebits_problems"
MARKUP = {True: {}, False: {"red": True}}


def brief(check: CheckResult) -> dict[str, Any]:
    """What a report carries of one check."""
    return {"check": check.check, "status": str(check.status), "coverage": check.coverage}


class Ledger:
    """Listens to reports, wherever their tests ran."""

    KEY: ClassVar[pytest.StashKey[Ledger]] = pytest.StashKey()

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._facts: dict[str, dict[str, dict[str, Any]]] = {}
        self.problems: list[str] = []
        """What went wrong outside any test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what a test found."""
        found = getattr(report, "samebits", None)
        if found:
            self._facts.setdefault(found["suite"], {})[found["case"]] = found

    def verdicts(self, suite: str) -> dict[str, Verdict]:
        """Case -> verdict of a suite, of those that ran."""
        from samebits.engine.verdict import Verdict
        from samebits.errors import ExitCode

        return {
            case: Verdict(f["ok"], f["label"], f["detail"], ExitCode(f["exit_code"]))
            for case, f in self._facts.get(suite, {}).items()
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A problem outside any test fails the session."""
        if self.problems and hasattr(self._config, "workeroutput"):
            self._config.workeroutput[PROBLEMS] = self.problems
        if self.problems and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """An xdist worker ends: its problems are ours."""
        self.problems += getattr(node, "workeroutput", {}).get(PROBLEMS, [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line per suite; with -v, one per case."""
        if not self._facts and not self.problems:
            return
        terminalreporter.section("samebits")
        for suite, cases in self._facts.items():
            path, _, name = suite.partition("::")
            counts = Counter(f["label"] for f in cases.values())
            words = ", ".join(f"{n} {label}" for label, n in counts.items())
            pairs = sum(f["pairs"] for f in cases.values())
            covered = f" over {pairs:,} (M, position) pairs" if pairs else ""
            good = all(f["ok"] for f in cases.values())
            terminalreporter.write_line(
                f"{self._short(path)}{'::' if name else ''}{name}: {words}{covered}", **MARKUP[good]
            )
            if self._config.get_verbosity() > 0:
                for f in cases.values():
                    terminalreporter.write_line(
                        f"  {f['label']:<20} {f['case']}  {f['pairs']:,} pairs", **MARKUP[f["ok"]]
                    )
        for problem in self.problems:
            terminalreporter.write_line(problem, red=True)

    def _short(self, path: str) -> str:
        try:
            return str(Path(path).relative_to(self._config.rootpath))
        except ValueError:
            return Path(path).name
