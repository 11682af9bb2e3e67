"""`samebits.Suite` objects as test items: one per case, and one that asks whether the suite had any power."""

from __future__ import annotations

import fnmatch
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from samebits.plugin.ledger import FACTS, Ledger, brief
from samebits.plugin.options import SETTINGS

if TYPE_CHECKING:
    from samebits.engine.suite import Case, Suite


class CaseError(Exception):
    """A case that did not do what it must; the text says it all."""


def suite_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A module for the file of an installed suite, unless pytest makes one anyway."""
    if path.suffix != ".py" or path not in _installed_files(path.stem):
        return None
    patterns = parent.config.getini("python_files")
    if parent.session.isinitpath(path) or any(fnmatch.fnmatch(path.name, p) for p in patterns):
        return None
    found: pytest.Collector = parent.ihook.pytest_pycollect_makemodule(module_path=path, parent=parent)
    return found


@cache
def _installed_files(stem: str) -> frozenset[Path]:
    from samebits.engine.locate import installed_suites

    files = set()
    for module in installed_suites().values():
        if module.rpartition(".")[2] != stem:  # finding a module imports its package
            continue
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):  # somebody's entry point leads nowhere: `samebits list` tells
            continue
        if spec is not None and spec.origin is not None:
            files.add(Path(spec.origin))
    return frozenset(files)


def suite_object(collector: pytest.Collector, name: str, obj: object) -> pytest.Collector | None:
    """A collector for a suite at module level, in the module that declares its cases."""
    declared = sys.modules.get("samebits.engine.suite")
    if declared is None or not isinstance(collector, pytest.Module) or not isinstance(obj, declared.Suite):
        return None
    module = collector.obj.__name__
    if all(case.factory.__module__ != module for case in obj):
        return None  # imported, say to test it
    return SuiteCollector.from_parent(collector, name=name, suite=obj, module=module)


class SuiteCollector(pytest.Collector):
    """One suite."""

    def __init__(self, *, suite: Suite, module: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite, self.module = suite, module

    def collect(self) -> Iterator[pytest.Item]:
        """Its cases, and behind them its power."""
        for case in self.suite:
            yield CaseItem.from_parent(self, name=case.id, case=case)
        yield PowerItem.from_parent(self, name="power")


class _SuiteItem(pytest.Item):
    parent: SuiteCollector

    @property
    def ledger_key(self) -> str:
        """Names the suite among those of a session."""
        return f"{self.path}::{self.parent.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Our own words without a traceback through ourselves; anything else as it is."""
        if isinstance(excinfo.value, CaseError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class CaseItem(_SuiteItem):
    """One case."""

    def __init__(self, *, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The factory's line."""
        code = getattr(self.case.factory, "__code__", None)
        return self.path, code.co_firstlineno - 1 if code else None, f"{self.case.suite}::{self.case.id}"

    def runtest(self) -> None:
        """Run the checks and compare with what the case must do."""
        from samebits.plugin.worker import on_check

        reason = self.case.needs() if self.case.needs is not None else None
        if reason is not None:
            record = self.record()
            record.take({"type": "skip", "reason": reason})
            self.stash[FACTS] = facts(self, record)
            _skip(reason)
        self.judge(self._run(on_check(self.config)))

    def _run(self, on_check: Any) -> Any:
        from samebits.errors import UsageError
        from samebits.session.case import run_case

        settings = self.config.stash[SETTINGS]
        _importable(self.parent.module, self.config.rootpath)
        record = self.record()
        try:
            result = run_case(
                self.case, module=self.parent.module, seed=settings.seed, max_batch=settings.max_batch,
                budget=settings.budget, on_check=on_check,
            )  # fmt: skip
        except UsageError as error:
            record.take({"type": "usage", "message": str(error)})
        else:
            record.take({"type": "case", "result": result.to_json()})
        return record

    def record(self) -> Any:
        """An empty record of this case."""
        from samebits.report.model import CaseRecord

        return CaseRecord(self.case.id, self.case.expect, self.config.stash[SETTINGS].seed, self.case.env)

    def judge(self, record: Any) -> None:
        """Keep verdict and numbers for the report.

        Raises:
            CaseError: the case did not do what it must.
        """
        from samebits.report.junit import properties
        from samebits.report.model import SuiteRecord
        from samebits.report.terminal import render_case

        verdict = record.verdict
        self.stash[FACTS] = facts(self, record)
        self.user_properties.extend([*properties(record.result), ("samebits.verdict", verdict.label)])
        if not verdict.ok:
            suite = SuiteRecord(self.parent.suite.name, self.parent.module, cases={self.case.id: record})
            raise CaseError(render_case(suite, record))


def facts(item: CaseItem, record: Any) -> dict[str, Any]:
    """What a report carries of a case: JSON-able."""
    verdict = record.verdict
    return {
        "suite": item.ledger_key, "case": item.case.id, "expect": str(item.case.expect),
        "ok": verdict.ok, "label": verdict.label, "detail": verdict.detail, "exit_code": int(verdict.exit_code),
        "pairs": record.pairs, "launches": record.launches, "seconds": record.seconds,
        "checks": [brief(c) for c in record.checks],
    }  # fmt: skip


class PowerItem(_SuiteItem):
    """Whether the suite could have failed: a control of it was caught. Runs in this process, behind all cases."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The suite's file."""
        return self.path, 0, f"{self.parent.suite.name}::power"

    def runtest(self) -> None:
        """Judge the suite by what its cases said, if all of it ran here."""
        from samebits.engine.suite import Expect
        from samebits.engine.verdict import judge_suite

        told = self.config.stash[Ledger.KEY].verdicts(self.ledger_key)
        missing = [case.id for case in self.parent.suite if case.id not in told]
        if missing:
            total = len(self.parent.suite)
            _skip(f"judged where the whole suite runs: {len(missing)} of {total} cases did not")
        if not all(v.ok for v in told.values()):
            _skip("cases of the suite failed")
        verdict = judge_suite([(Expect(case.expect), told[case.id]) for case in self.parent.suite])
        if verdict.label == "skipped":
            _skip(verdict.detail)
        if not verdict.ok:
            raise CaseError(f"suite {self.parent.suite.name}: {verdict.label}\n  {verdict.detail}")


def _skip(reason: str) -> NoReturn:
    raise pytest.skip.Exception(reason, _use_item_location=True)


def _importable(module: str, root: Path) -> None:
    """Let fresh processes find a module that pytest loaded by its path: they search from the root folder."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if (found is None or module not in sys.modules) and str(root) not in sys.path:
        sys.path.append(str(root))
