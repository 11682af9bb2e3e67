"""What the parent and a worker say to each other.

The parent (pytest or the command line) never touches CUDA. It describes a `Job`; a fresh process runs it and
journals every message to a file with fsync before the next case starts. The parent reads that journal, holds
the deadlines, and turns death into an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Job:
    """One suite (or the part of it with one environment) to run in a process of its own."""

    suite: str
    entry: str
    """"package.module:function", called in the worker as `function(payload, channel)`."""
    payload: Mapping[str, Any]
    """JSON-able arguments of `entry`."""
    cases: tuple[str, ...]
    """Case ids, in the order they will run."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Set before the interpreter starts, because native code caches it at its first GEMM."""
    start: str = "template"
    """"template": forked from a warm process with this environment; "spawn": a cold interpreter."""
    deadline: float = 300.0
    """Seconds one case may take; a case's own deadline in `deadlines` wins."""
    deadlines: Mapping[str, float] = field(default_factory=dict)
    preload: tuple[str, ...] = ("torch",)
    """Modules the template imports once."""


class Channel(Protocol):
    """The worker's side. Every call is on disk when it returns."""

    remaining: tuple[str, ...]
    """The cases to run now: after a crash, those behind the one that died."""

    def start(self, case: str) -> None:
        """This case begins: its deadline runs from here."""

    def result(self, case: str, data: Mapping[str, Any]) -> None:
        """Something was obtained (one check's result, one pytest report). Survives whatever follows."""

    def end(self, case: str) -> None:
        """This case is complete."""


@dataclass(frozen=True)
class Death:
    """How a worker ended when it should not have."""

    kind: str
    """One of: signal, exit, hang, memory, device, disk."""
    message: str
    """One line: "killed by SIGSEGV while running case X"."""
    case: str | None
    """The case that had started, or None if it died before any."""
    signal: str | None = None
    exit_code: int | None = None
    stderr: str = ""
    """Last lines of its standard error."""
    stack: str = ""
    """Python stacks (faulthandler), where there are any."""
    core: str | None = None
    """Path of a core dump, host or CUDA."""
    device_error: str | None = None
    """CUDA error text, sticky errors included."""


@dataclass(frozen=True)
class CaseStarted:
    """A case began."""

    suite: str
    case: str


@dataclass(frozen=True)
class CaseData:
    """One `Channel.result` message."""

    suite: str
    case: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class CaseEnded:
    """A case is complete."""

    suite: str
    case: str
    seconds: float


@dataclass(frozen=True)
class CaseDied:
    """A case took its process down (or was killed at its deadline); the rest continues in a new one."""

    suite: str
    case: str
    death: Death
    seconds: float


@dataclass(frozen=True)
class SuiteFailed:
    """The suite's process could not start or died outside any case, twice: infrastructure."""

    suite: str
    death: Death
    lost: tuple[str, ...]
    """Cases that were not run."""


Event = CaseStarted | CaseData | CaseEnded | CaseDied | SuiteFailed
