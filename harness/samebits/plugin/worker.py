"""The fresh process: a pytest session with the same options, which runs items as the parent asks for them."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from samebits.plugin.groups import key
from samebits.plugin.remote import plain

if TYPE_CHECKING:
    from samebits.engine.result import CheckResult
    from samebits.isolate.protocol import Channel

SILENT: Mapping[str, Any] = {
    # The parent has selected, counts failures, distributes and writes the files of a session.
    "keyword": "", "markexpr": "", "deselect": None, "pyargs": False,
    "maxfail": 0, "lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "stepwise_skip": False,
    "xmlpath": None, "log_file": os.devnull, "pastebin": None, "collectonly": False, "usepdb": False,
    "numprocesses": None, "maxprocesses": None, "dist": "no", "distload": False, "tx": [], "looponfail": False,
    "forked": False,
}  # fmt: skip
OTHERS = ("lfplugin", "nfplugin", "stepwiseplugin", "pytest_forked", "rerunfailures", "flaky")
"""Plugins that would write what is the parent's to write, fork once more, or run a test again until it passes: one
that differs and then agrees has found something."""


def run_items(payload: Mapping[str, Any], channel: Channel) -> None:
    """Entry of a worker."""
    import samebits.plugin

    sys.path[:] = payload["path"]
    os.chdir(payload["dir"])
    sys.argv = ["pytest", *payload["args"]]
    for module in (samebits, samebits.plugin):
        # A plugin's asserts are rewritten when it is imported, and pytest warns of one that is there already.
        module.__doc__ = f"{module.__doc__}\nPYTEST_DONT_REWRITE"
    server = Server(payload, channel)
    code = pytest.main(list(payload["args"]), plugins=[server])
    if not server.ended:
        sys.stderr.write(f"pytest ended with exit code {int(code)} in the fresh process\n")
        raise SystemExit(int(code) or 1)
    problem = (
        "pytest failed while it finished in the fresh process" if code == pytest.ExitCode.INTERNAL_ERROR else ""
    )
    channel.result("", {"type": "finished", "problem": problem})


class Server:
    """A plugin of the worker's session."""

    __name__ = "samebits-worker"  # the name under which pytest registers it
    _config: pytest.Config

    def __init__(self, payload: Mapping[str, Any], channel: Channel) -> None:
        self._payload, self._channel = payload, channel
        self._items: dict[str, pytest.Item] = {}
        self._errors: list[str] = []
        self._current: str | None = None
        self.ended = False
        """The parent has asked for the end."""

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        """The parent's options, less what is the parent's own business."""
        config = yield
        self._config = config
        for name, value in SILENT.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.basetemp = self._payload["basetemp"]
        if self._payload["workerinput"] is not None:  # of the xdist worker that asks
            config.workerinput = self._payload["workerinput"]  # type: ignore[attr-defined]
            config.workeroutput = {}  # type: ignore[attr-defined]
        return config

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Only the files of these items; nothing that writes for a whole session."""
        config.args = list(self._payload["files"])
        for name in OTHERS:
            if config.pluginmanager.hasplugin(name):
                config.pluginmanager.unregister(name=name)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, settings: Any) -> bool | None:
        """The parent holds the deadline, except that of a test's function alone: only here is its start known."""
        return None if getattr(settings, "func_only", False) else True

    def pytest_internalerror(self, excrepr: object) -> None:
        """Where the parent finds it."""
        sys.stderr.write(f"{excrepr}\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Why items are missing."""
        if report.failed:
            self._errors.append(f"{report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Only these items."""
        wanted = self._payload["items"]
        found = {key(item): item for item in items}
        self._items = {nodeid: found[k] for k, nodeid in wanted.items() if k in found}
        items[:] = self._items.values()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what is asked for, until the end is asked for or the parent is gone."""
        from samebits.isolate.worker import keep_stacks

        keep_stacks()  # pytest has just pointed faulthandler to standard error
        with Path(self._payload["gate"]).open("rb", buffering=0) as gate:
            while "run" in (request := _request(gate)):
                self._run(session, request["run"], request["next"])
        self.ended = True
        return True

    def _run(self, session: pytest.Session, nodeid: str, following: str | None) -> None:
        self._channel.start(nodeid)
        item = self._items.get(nodeid)
        self._current = nodeid
        if item is None:
            said = "\n\n".join(self._errors) or "it is collected in the parent, and not here"
            self._channel.result(nodeid, {"type": "missing", "text": f"not found in its fresh process\n{said}"})
        else:
            try:
                nextitem = self._items.get(following) if following else None
                item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            except pytest.exit.Exception as stop:
                self._channel.result(nodeid, {"type": "stop", "reason": str(stop), "code": stop.returncode})
        self._channel.end(nodeid)
        self._current = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Ship it."""
        assert self._current is not None
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.result(self._current, {"type": "report", "data": plain(data)})

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, location: tuple[str, int, str] | None
    ) -> None:
        """Ship it, if it is of a test: those of collecting the parent has seen itself."""
        if self._current is None or when != "runtest":
            return
        said = {
            "type": "warning", "when": when, "location": location, "message": str(warning_message.message),
            "category": warning_message.category.__name__, "filename": warning_message.filename,
            "lineno": warning_message.lineno,
        }  # fmt: skip
        self._channel.result(self._current, plain(said))

    def check(self, result: CheckResult) -> None:
        """Ship what one check of a case found, before the next one starts."""
        if self._current is not None:
            self._channel.result(self._current, {"type": "check", "result": result.to_json()})


def on_check(config: pytest.Config) -> Callable[[CheckResult], None] | None:
    """Where a case tells of its checks, in a worker."""
    server = config.pluginmanager.get_plugin(Server.__name__)
    return server.check if isinstance(server, Server) else None


def _request(gate: IO[bytes]) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        byte = gate.read(1)  # no further: the next request may be for the next process
        if not byte:
            return {}
        line += byte
    request: dict[str, Any] = json.loads(line)
    return request
