from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, CaseStarted, Death, Event, Job, SuiteFailed
from samebits.isolate.supervisor import Supervisor

MARK = "SAMEBITS_TEST_MARK"

DEADLY = """
import ctypes, os, resource, signal, subprocess, sys, time


def die(how, channel, case):
    if how == "ok":
        return
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
    elif how == "segfault":
        sys.stderr.write("about to read nothing\\n")
        ctypes.string_at(0)
    elif how == "exit0":
        os._exit(0)
    elif how == "exit7":
        os._exit(7)
    elif how == "native hang":
        subprocess.Popen(["sleep", "600"])  # a grandchild: it has to go, too
        ctypes.PyDLL(None).pause()  # PyDLL holds the GIL: no Python code runs in any thread
    elif how == "stubborn hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    elif how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        bytearray(1 << 30)
    elif how == "disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
        channel.result(case, {"filler": "x" * (1 << 15)})
    elif how == "device":
        class Cuda:  # what torch does once a kernel has failed for good
            is_initialized = staticmethod(lambda: True)
            @staticmethod
            def synchronize():
                raise RuntimeError("CUDA error: an illegal memory access was encountered\\nmore")
        sys.modules["torch"] = type(sys)("torch")
        sys.modules["torch"].cuda = Cuda
    else:
        raise ValueError(how)


def run(payload, channel):
    for case in channel.remaining:
        channel.start(case)
        channel.result(case, {"pid": os.getpid(), "case": case})
        die(payload.get(case, "ok"), channel, case)
        channel.end(case)


def outside(payload, channel):
    with open(payload["log"], "a") as log:
        log.write(f"{os.getpid()}\\n")
    if payload.get("after") is None:
        sys.stderr.write("no such card\\n")
        os._exit(9)
    for case in channel.remaining:
        channel.start(case)
        channel.end(case)
        if case == payload["after"]:
            os._exit(9)


def says(payload, channel):
    import random
    for case in channel.remaining:
        channel.start(case)
        torch = sys.modules.get("torch")
        channel.result(case, {
            "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "cwd": os.getcwd(),
            "env": dict(os.environ), "random": random.random(), "torch": torch is not None,
            "argv": sys.orig_argv, "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        })
        print("to stdout")
        print("to stderr", file=sys.stderr)
        channel.end(case)


def careless(payload, channel):
    channel.start(channel.remaining[0])
    channel.end(channel.remaining[0])
"""


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module of worker entries that die in every way; importable in workers."""
    name = f"deadly_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.fixture
def mark() -> Iterator[str]:
    """A value of the environment variable MARK; at the end no process that has it may be alive."""
    value = uuid.uuid4().hex
    yield value
    assert not alive(value)


def alive(value: str, patience: float = 3.0) -> list[str]:
    """Command lines of processes whose environment has MARK=value, once `patience` seconds have passed."""
    until = time.monotonic() + patience
    while True:
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or process.name == str(os.getpid()):
                continue
            try:
                if f"{MARK}={value}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has just gone, or is a zombie
                continue
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.02)


class Told(list[Event]):
    """The events of a job."""

    def data(self, case: str) -> list[dict[str, Any]]:
        return [dict(e.data) for e in self if isinstance(e, CaseData) and e.case == case]

    @property
    def pids(self) -> list[int]:
        return list(dict.fromkeys(e.data["pid"] for e in self if isinstance(e, CaseData) and "pid" in e.data))

    @property
    def words(self) -> list[str]:
        word = {CaseStarted: "start", CaseEnded: "end", CaseDied: "died"}
        return [f"{word[type(e)]} {e.case}" for e in self if type(e) in word]

    @property
    def death(self) -> Death:
        (found,) = [e.death for e in self if isinstance(e, CaseDied)]
        return found

    @property
    def failure(self) -> SuiteFailed:
        (found,) = [e for e in self if isinstance(e, SuiteFailed)]
        return found


Play = Callable[..., Told]


@pytest.fixture
def job(deadly: str, mark: str) -> Callable[..., Job]:
    """`job({"b": "SIGKILL"}, cases="abc", entry="run")`: cases that do so, in processes that carry the mark."""

    def make(
        payload: dict[str, Any], cases: Sequence[str] = "abc", entry: str = "run",
        env: dict[str, str] | None = None, **options: Any,
    ) -> Job:  # fmt: skip
        options.setdefault("preload", ())
        return Job("mine", f"{deadly}:{entry}", payload, tuple(cases), env={MARK: mark, **(env or {})}, **options)

    return make


@pytest.fixture
def play(tmp_path: Path, job: Callable[..., Job]) -> Iterator[Play]:
    """As `job`, and run to its end."""
    with Supervisor(tmp_path / "run") as supervisor:
        yield lambda *args, **options: Told(supervisor.run(job(*args, **options)))


@pytest.fixture
def told() -> type[Told]:
    return Told


@pytest.fixture
def survivors(mark: str) -> Callable[..., list[str]]:
    """Command lines of the processes that carry the mark."""
    return lambda **options: alive(mark, **options)
