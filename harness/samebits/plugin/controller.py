"""The parent: collects, asks fresh processes to run items, and logs their reports as if they had run here."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from samebits.plugin.collect import CaseError, CaseItem, PowerItem
from samebits.plugin.groups import DEADLINE, GROUP, KEY, Group, uses_torch
from samebits.plugin.ledger import FACTS, Ledger
from samebits.plugin.options import Settings
from samebits.plugin.remote import Answer, Remote, plain, tuples

if TYPE_CHECKING:
    from samebits.isolate.protocol import Death, Job
    from samebits.isolate.supervisor import Supervisor

LINES = 20
"""Of a dead process's standard error and stacks."""
ENTRY = "samebits.plugin.worker:run_items"
CUDA = (
    "samebits: {what} started CUDA in this process\n"
    "  found:   torch.cuda.is_initialized() is True here, where only collecting happens\n"
    "  allowed: CUDA in fresh processes: inside tests, fixtures and case factories\n"
    "  do:      move what touches the device out of module level and conftest, or --samebits-isolate=off"
)


class Controller:
    """Runs the items that have a group; leaves all others alone."""

    def __init__(self, config: pytest.Config, settings: Settings, ledger: Ledger) -> None:
        self._config, self._settings, self._ledger = config, settings, ledger
        self._groups: dict[Group, list[pytest.Item]] = {}
        self._supervisor: Supervisor | None = None
        self._directory: Path | None = None
        self._remote: Remote | None = None
        self._group: Group | None = None
        self._deadlines: dict[str, float] = {}
        """Of the running job, which reads it when a case starts: what is known only then may still be added."""
        self._processes = 0
        self._others_ran = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know the groups.

        Raises:
            pytest.UsageError: collecting has created a CUDA context.
        """
        for item in session.items:
            if GROUP in item.stash:
                self._groups.setdefault(item.stash[GROUP], []).append(item)
        if self._groups and _cuda_started():
            raise pytest.UsageError(CUDA.format(what="collecting the tests"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run an item of ours elsewhere."""
        group = item.stash.get(GROUP, None)
        if group is None:
            self._others_ran = self._others_ran or not isinstance(item, PowerItem)
            return None
        following = nextitem if nextitem is not None and nextitem.stash.get(GROUP, None) == group else None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        process = self._process(item, group)
        if DEADLINE in item.stash:
            self._deadlines[item.nodeid] = item.stash[DEADLINE]
        answer = process.run(item.nodeid, following.nodeid if following else None)
        for report in self._reports(item, answer):
            item.ihook.pytest_runtest_logreport(report=report)
        for stop in answer.of("stop"):
            self._finish()
            pytest.exit(stop["reason"], stop["code"])
        if following is None:
            self._finish()
        self._tear_down(item, nextitem)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool | None:
        """pytest-timeout's limit becomes the deadline: its own alarm would end this process, and all with it."""
        if GROUP not in item.stash:
            return None
        item.stash[DEADLINE] = min(item.stash.get(DEADLINE, settings.timeout), settings.timeout)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End every process; see that none of this was done here."""
        self._finish()
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        if self._groups and not self._others_ran and _cuda_started():
            self._ledger.problems.append(CUDA.format(what="this session"))

    def pytest_unconfigure(self) -> None:
        """After an error of pytest's own, no process stays either."""
        if self._remote is not None:
            self._remote.close()
        if self._supervisor is not None:
            self._supervisor.close()

    def _process(self, item: pytest.Item, group: Group) -> Remote:
        if self._remote is None or self._group != group or not self._remote.can_run(item.nodeid):
            self._finish()
            if self._supervisor is None:
                from samebits.isolate.supervisor import Supervisor

                self._directory = _directory(self._config)
                self._supervisor = Supervisor(self._directory / "processes")
            assert self._directory is not None
            self._processes += 1
            gate = self._directory / f"gate-{self._processes}"
            members = self._groups[group]
            rest = members[members.index(item) :] if item in members else [item]
            self._group = group
            self._remote = Remote(self._supervisor, self._job(group, rest, gate), gate)
        return self._remote

    def _finish(self) -> None:
        if self._remote is not None:
            remote, self._remote = self._remote, None
            if problem := remote.finish():
                assert self._group is not None
                self._ledger.problems.append(f"{self._group.suite}: {problem}")

    def _job(self, group: Group, items: list[pytest.Item], gate: Path) -> Job:
        from samebits.isolate.device import own_card
        from samebits.isolate.protocol import Job

        config = self._config
        payload = {
            "args": _arguments(config),
            "dir": str(config.invocation_params.dir),
            "path": [p for p in sys.path if p],
            "files": list(dict.fromkeys(str(item.path) for item in items)),
            "items": {item.stash[KEY]: item.nodeid for item in items},
            "gate": str(gate),
            "basetemp": str(gate.with_name(f"tmp-{self._processes}")),
            "workerinput": plain(getattr(config, "workerinput", None)),
        }
        # What the tests will import, the template has imported; collecting a suite need not have imported torch.
        preload = ["samebits.plugin.worker"]
        if "torch" in sys.modules or any(uses_torch(item) for item in items):
            preload += ["torch", "samebits.session.case"]
        self._deadlines = {item.nodeid: item.stash[DEADLINE] for item in items if DEADLINE in item.stash}
        return Job(
            suite=_short(group.suite, config.rootpath),
            entry=ENTRY,
            payload=payload,
            cases=tuple(item.nodeid for item in items),
            env={**own_card(), **dict(group.env)},
            start=self._settings.start,
            deadline=self._settings.deadline,
            deadlines=self._deadlines,
            preload=tuple(preload),
        )

    def _reports(self, item: pytest.Item, answer: Answer) -> Iterator[pytest.TestReport]:
        for warning in answer.of("warning"):
            self._warn(item, warning)
        reports = [self._report(item, m["data"]) for m in answer.of("report")]
        if answer.lost is not None:
            yield _made(
                item,
                "setup",
                "failed",
                _words(f"infrastructure: {answer.lost.message}: the test did not run", answer.lost),
                0.0,
            )
            return
        for missing in answer.of("missing"):
            yield _made(item, "setup", "failed", missing["text"], 0.0)
            return
        if answer.death is None:
            yield from reports
            return
        # One failed report for a death: a result that was shipped before it does not count any more.
        yield from (r for r in reports if r.when == "setup")
        if not any(r.when == "setup" for r in reports):
            yield _made(item, "setup", "passed", None, 0.0)
        if not any(r.when == "setup" and not r.passed for r in reports):
            yield self._death(item, answer, [r for r in reports if r.when == "call"])
        yield _made(item, "teardown", "passed", None, 0.0)

    def _death(self, item: pytest.Item, answer: Answer, before: list[pytest.TestReport]) -> pytest.TestReport:
        from samebits.report.model import CaseRecord

        assert answer.death is not None
        record = item.record() if isinstance(item, CaseItem) else CaseRecord(item.name)
        for message in answer.of("check"):
            record.take(message)
        record.state, record.death, record.seconds = "died", answer.death, answer.seconds
        text: str | None = None
        if isinstance(item, CaseItem):
            try:
                item.judge(record)
            except CaseError as error:
                text = str(error)
        else:
            label, said = record.verdict.label, answer.death.message
            text = _words(said if said.startswith(label) else f"{label}: {said}", answer.death)
        for earlier in before:  # such as the exception that tells of a sticky CUDA error
            text = f"{text}\n\n{earlier.longreprtext}" if text and earlier.failed else text
        report = _made(item, "call", "failed" if text else "passed", text, answer.seconds)
        report.user_properties = list(item.user_properties)
        if FACTS in item.stash:
            report.samebits = item.stash[FACTS]  # type: ignore[attr-defined]
        return report

    def _report(self, item: pytest.Item, data: dict[str, Any]) -> pytest.TestReport:
        data.update(nodeid=item.nodeid, location=item.location)  # as this process knows it
        data["sections"] = tuples(data.get("sections", ()))
        data["user_properties"] = tuples(data.get("user_properties", ()))
        if isinstance(data.get("longrepr"), list):  # of a skip: file, line, reason
            data["longrepr"] = tuple(data["longrepr"])
        report: pytest.TestReport = self._config.hook.pytest_report_from_serializable(
            config=self._config, data=data
        )
        return report

    def _warn(self, item: pytest.Item, data: dict[str, Any]) -> None:
        category = getattr(__import__("builtins"), data["category"], None)
        if not (isinstance(category, type) and issubclass(category, Warning)):
            category = type(data["category"], (UserWarning,), {})
        message = warnings.WarningMessage(
            category(data["message"]), category, data["filename"], data["lineno"]
        )  # fmt: skip
        location = tuple(data["location"]) if data["location"] else None
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": data["when"], "nodeid": item.nodeid, "location": location}
        )

    def _tear_down(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """What earlier items have set up in this process, and the next one does not need."""
        call = pytest.CallInfo.from_call(
            lambda: item.session._setupstate.teardown_exact(nextitem),
            when="teardown",
            reraise=(pytest.exit.Exception, KeyboardInterrupt),
        )
        if call.excinfo is not None:
            report = item.ihook.pytest_runtest_makereport(item=item, call=call)
            item.ihook.pytest_runtest_logreport(report=report)


def _arguments(config: pytest.Config) -> list[str]:
    given = [str(a) for a in config.invocation_params.args]
    more = []
    if config.getoption("capture", "no") in ("fd", "sys"):
        # Captured for the report, and passed on to the worker's files, which survive it. File descriptors are left
        # alone: what native code says before it aborts is then in those files, and not in one that goes with it.
        more.append("--capture=tee-sys")
    if config.getoption("cov_source", None):
        more.append("--cov-append")  # pytest-cov begins by deleting what other processes have measured
    at = given.index("--") if "--" in given else len(given)
    return [*given[:at], *more, *given[at:]]


def _made(item: pytest.Item, when: Any, outcome: Any, text: str | None, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid, location=item.location, keywords=dict.fromkeys(item.keywords, 1), outcome=outcome,
        longrepr=text, when=when, duration=seconds,
    )  # fmt: skip


def _words(headline: str, death: Death) -> str:
    lines = [headline]
    lines += [f"  device     {death.device_error}"] if death.device_error else []
    lines += [f"  core dump  {death.core}"] if death.core else []
    shown = {"stderr": death.stderr.splitlines()[-LINES:], "stack": death.stack.splitlines()[:LINES]}
    for title, text in shown.items():
        lines += [f"  {title}", *(f"    {line}" for line in text)] if text else []
    return "\n".join(lines)


def _directory(config: pytest.Config) -> Path:
    """Where processes leave their files: with pytest's other temporary folders, which it tidies up."""
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is None:
        return Path(tempfile.mkdtemp(prefix="samebits-"))
    folder: Path = factory.mktemp("samebits")
    return folder


def _short(suite: str, root: Path) -> str:
    return os.path.relpath(suite, root) if suite.startswith(str(root)) else suite


def _cuda_started() -> bool:
    from samebits.isolate.environment import cuda_started

    return cuda_started()
