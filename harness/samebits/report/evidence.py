"""The evidence of a run: one versioned JSON document that says what ran, on what, what was covered and found.

It is rewritten after every case, into a new file that then takes the old one's name, so that a reader and a
crash of this process alike always find a complete document. The schema is evidence.schema.json.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import samebits
from samebits.errors import ExitCode, InfrastructureError
from samebits.isolate.protocol import Death
from samebits.report.model import CaseRecord, RunRecord, SuiteRecord
from samebits.report.summary import summary

SCHEMA_NAME = "samebits/evidence"
SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).with_name("evidence.schema.json")
HOME = ".samebits"
"""Folder of all runs, in the current directory."""


@dataclass
class Evidence:
    """A run and the folder that it is written to."""

    run: RunRecord
    directory: Path
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    finished: datetime | None = None
    problem: str = ""
    """Why it could not be written, in full sentences; empty as long as all went well."""
    _ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    """id -> document of the cases that have ended. Without it, the cost of a run grows with its square."""

    @property
    def path(self) -> Path:
        """The JSON document."""
        return self.directory / "evidence.json"

    @property
    def exit_code(self) -> ExitCode:
        """That of the run; evidence that could not be written makes a green run an infrastructure error."""
        code = self.run.exit_code
        spoilt = self.problem and code not in (ExitCode.DIVERGENCE, ExitCode.USAGE)
        return ExitCode.INFRASTRUCTURE if spoilt else code

    def document(self) -> dict[str, Any]:
        """As evidence.schema.json has it."""
        run = self.run
        document = {
            "schema": SCHEMA_NAME,
            "version": SCHEMA_VERSION,
            "samebits": samebits.__version__,
            "command": list(self.command),
            "options": dict(self.options),
            "started": self.started.isoformat(timespec="seconds"),
            "finished": self.finished.isoformat(timespec="seconds") if self.finished else None,
            "seconds": round(run.seconds, 3),
            "interrupted": run.interrupted,
            "environment": dict(self.environment),
            "exit_code": int(self.exit_code),
            "summary": summary(run),
        }
        return {**_clean(document), "suites": [self._suite(s) for s in run.suites.values()]}

    def _suite(self, suite: SuiteRecord) -> dict[str, Any]:
        about: dict[str, Any] = _clean(_suite(suite))
        return {**about, "cases": [self._ended.get(id(c)) or _clean(_case(c)) for c in suite.cases.values()]}

    def end(self, case: CaseRecord) -> None:
        """A case is over and will not change any more: write that down."""
        self._ended[id(case)] = _clean(_case(case))
        self.save()

    def save(self, indent: int | None = None) -> None:
        """Write it. A failure is kept in `problem` and never stops the run: results still reach the terminal."""
        if not self.problem:
            try:
                write_atomically(self.path, json.dumps(self.document(), indent=indent, allow_nan=False) + "\n")
            except InfrastructureError as error:
                self.problem = str(error)

    def finish(self) -> None:
        """The run is over: stamp it, write it, and let `latest` point at it."""
        self.finished = datetime.now(UTC)
        self.save(indent=1)
        if not self.problem:
            _point_latest(self.directory)


def new_directory(parent: Path | None = None, now: datetime | None = None) -> Path:
    """A fresh folder for one run: `.samebits/<time>` in the current directory, or in `parent`.

    Raises:
        InfrastructureError: it cannot be made.
    """
    home = parent or Path.cwd() / HOME
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    try:
        home.mkdir(parents=True, exist_ok=True)
        if parent is None and not (home / ".gitignore").exists():
            (home / ".gitignore").write_text("*\n")
        for n in range(1, 1000):
            directory = home / (stamp if n == 1 else f"{stamp}-{n}")
            with contextlib.suppress(FileExistsError):
                directory.mkdir()
                return directory
    except OSError as error:
        raise InfrastructureError(_words(error, home)) from error
    raise InfrastructureError(f"{home} has a thousand runs of this very second")


def write_atomically(path: Path, text: str) -> None:
    """All of it or nothing, and on disk when it returns.

    Raises:
        InfrastructureError: it cannot be written; says why and what to do.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise InfrastructureError(_words(error, path)) from error


def _words(error: OSError, path: Path) -> str:
    text = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{text}\n  do:      free some space there, or choose another place with --output"
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{text}\n  do:      choose a place that can be written with --output"
    return text


def _point_latest(directory: Path) -> None:
    link = directory.parent / "latest"
    draft = directory.parent / f".latest.{os.getpid()}"
    # Not every file system has links, and nothing depends on this one.
    with contextlib.suppress(OSError):
        draft.symlink_to(directory.name)
        draft.replace(link)


def _suite(suite: SuiteRecord) -> dict[str, Any]:
    return {
        "name": suite.name,
        "module": suite.module,
        "summary": suite.summary,
        "whole": suite.whole,
        "verdict": _verdict(suite),
        "death": _death(suite.death),
    }


def _case(case: CaseRecord) -> dict[str, Any]:
    result = case.result.to_json()
    return {
        "id": case.id,
        "expect": str(case.expect),
        "env": dict(case.env),
        "seed": case.seed,
        "state": case.state,
        "status": result["status"],
        "reason": case.reason,
        "verdict": _verdict(case),
        "seconds": round(case.seconds, 3),
        "pairs": case.pairs,
        "launches": case.launches,
        "death": _death(case.death),
        "facts": result["facts"],
        "checks": result["checks"],
    }


def _verdict(of: CaseRecord | SuiteRecord) -> dict[str, Any]:
    verdict = of.verdict
    return {**dataclasses.asdict(verdict), "exit_code": int(verdict.exit_code)}


def _death(death: Death | None) -> dict[str, Any] | None:
    return dataclasses.asdict(death) if death is not None else None


def _clean(value: Any) -> Any:
    """JSON has neither NaN nor tuples nor other people's types."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
