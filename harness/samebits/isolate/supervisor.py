"""The parent's side: start workers, read their journals, hold the deadlines, turn death into an event."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from samebits.isolate.death import describe, oom_kills
from samebits.isolate.environment import child_environment
from samebits.isolate.journal import JournalReader
from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, CaseStarted, Death, Event, Job, SuiteFailed

GRACE = 2.0
"""Seconds between asking a hung worker for its stacks, asking it to end, and ending it."""
STARTUP = 120.0
"""Seconds that a template may take to import, or a worker to start its first case."""
TRIES = 2
"""A suite whose worker dies this often before any case started is given up."""


class Supervisor:
    """Runs jobs one after another, each in fresh processes; templates are shared by environment.

    Args:
        directory: journals, output and dumps of the workers go here, one folder per worker.
        start: "template" or "spawn", over the job's own.
        deadline: seconds per case, over the job's own.
    """

    def __init__(self, directory: Path, *, start: str | None = None, deadline: float | None = None) -> None:
        self.directory, self._start, self._deadline = directory, start, deadline
        self._templates: dict[tuple[Any, ...], _Template] = {}
        self._workers = 0
        directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every template."""
        for template in self._templates.values():
            template.close()
        self._templates.clear()

    def run(self, job: Job) -> Iterator[Event]:
        """Run a job to its end, over as many workers as it takes. Closing the iterator kills the worker."""
        remaining, failures = job.cases, 0
        while remaining:
            attempt = _Attempt(self, job, remaining)
            try:
                yield from attempt.events()
            finally:
                attempt.kill()
            death = attempt.death
            if death is None:
                return
            if attempt.died is not None:
                at = remaining.index(attempt.died)
                remaining, failures = remaining[at + 1 :], 0
                yield CaseDied(job.suite, attempt.died, death, attempt.seconds)
                if death.kind == "disk" and remaining:
                    yield SuiteFailed(job.suite, death, remaining)
                    return
                continue
            if attempt.ended:
                remaining, failures = tuple(c for c in remaining if c not in attempt.ended), 0
            failures += 1
            if death.kind == "disk" or failures >= TRIES:
                if remaining:
                    yield SuiteFailed(job.suite, death, remaining)
                return

    def folder(self) -> Path:
        """A new folder for one worker."""
        self._workers += 1
        path = self.directory / f"worker-{self._workers:03d}"
        path.mkdir(parents=True)
        return path

    def launch(self, job: Job, spec: dict[str, Any], notify: int) -> _Process:
        """Start the worker of `spec`; `notify` is its end of the wake-up pipe."""
        env = child_environment(job.env, self.directory)
        if (self._start or job.start) == "spawn":
            return _Spawned(spec, notify, env, self.directory)
        key = (tuple(sorted(job.env.items())), job.preload)
        template = self._templates.get(key)
        if template is None or not template.alive():
            template = self._templates[key] = _Template(env, job.preload, self.directory)
        return template.fork(spec, notify)

    def deadline(self, job: Job, case: str | None) -> float:
        """Seconds that this case may take."""
        if case is None:
            return STARTUP
        return job.deadlines.get(case, self._deadline or job.deadline)


class _Process:
    """A worker process; `fd` becomes readable when there is news of it."""

    pid: int

    def poll(self, timeout: float = 0.0) -> int | None:
        """waitpid status once it has ended, or None."""
        raise NotImplementedError

    @property
    def fd(self) -> int:
        raise NotImplementedError


class _Spawned(_Process):
    def __init__(self, spec: dict[str, Any], notify: int, env: dict[str, str], directory: Path) -> None:
        path = Path(spec["folder"]) / "spec.json"
        path.write_text(json.dumps(spec))
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "samebits.isolate.worker", str(path), str(notify)],
            env=env,
            pass_fds=(notify,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def fd(self) -> int:
        return self._pidfd

    def poll(self, timeout: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._popen.wait(timeout) if timeout else self._popen.poll()
            if code is not None:
                return -code if code < 0 else code << 8
        return None


class _Forked(_Process):
    def __init__(self, template: _Template, pid: int) -> None:
        self._template, self.pid = template, pid

    @property
    def fd(self) -> int:
        return self._template.sock.fileno()

    def poll(self, timeout: float = 0.0) -> int | None:
        return self._template.status(self.pid, timeout)


class _Template:
    """A warm process with one environment."""

    def __init__(self, env: dict[str, str], preload: tuple[str, ...], directory: Path) -> None:
        self.sock, theirs = socket.socketpair()
        self._buffer, self._exits = b"", {}  # type: ignore[var-annotated]
        self._log = directory / "template.log"
        with theirs, self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "samebits.isolate.template", str(theirs.fileno())],
                env=env,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._send({"preload": list(preload)})
        answer = self._receive(STARTUP)
        self.problem = None if answer is not None and "ready" in answer else self._why(answer)

    def _why(self, answer: dict[str, Any] | None) -> str:
        if answer is not None:
            return str(answer.get("error", answer))
        return f"the template process did not start: {self._log.read_text(errors='replace')[-2000:]}"

    def alive(self) -> bool:
        return self._popen.poll() is None and self.problem is None

    def fork(self, spec: dict[str, Any], notify: int) -> _Process:
        if self.problem is not None:
            raise OSError(self.problem)
        socket.send_fds(self.sock, [json.dumps({"fork": spec}).encode() + b"\n"], [notify])
        while True:
            answer = self._receive(STARTUP)
            if answer is None:
                raise OSError(f"the template died: {self._log.read_text(errors='replace')[-2000:]}")
            if "pid" in answer:
                return _Forked(self, int(answer["pid"]))
            self._note(answer)

    def status(self, pid: int, timeout: float) -> int | None:
        until = time.monotonic() + timeout
        while pid not in self._exits:
            answer = self._receive(max(0.0, until - time.monotonic()))
            if answer is None:
                if self._popen.poll() is not None and pid not in self._exits:
                    self._exits[pid] = 9  # the kernel ends workers whose template goes
                break
            self._note(answer)
        return self._exits.get(pid)

    def _note(self, answer: dict[str, Any]) -> None:
        if "exit" in answer:
            self._exits[int(answer["exit"])] = int(answer["status"])

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.sock.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        until = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if not select.select([self.sock], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            with contextlib.suppress(ConnectionResetError):
                if data := self.sock.recv(1 << 16):
                    self._buffer += data
                    continue
            return None
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.sock.close()
        try:
            self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


class _Attempt:
    """One worker over the remaining cases of a job."""

    def __init__(self, supervisor: Supervisor, job: Job, cases: tuple[str, ...]) -> None:
        self._supervisor, self._job, self._cases = supervisor, job, cases
        self.ended: set[str] = set()
        self.death: Death | None = None
        self.died: str | None = None
        self.seconds = 0.0
        self._process: _Process | None = None
        self._case: str | None = None
        self._since = time.monotonic()
        self._device: str | None = None
        self._done = False
        self._folder = supervisor.folder()

    def events(self) -> Iterator[Event]:
        """Everything the worker says, until it has ended; afterwards `death` tells how."""
        job, folder = self._job, self._folder
        spec = {
            "folder": str(folder),
            "journal": str(folder / "journal"),
            "stdout": str(folder / "stdout"),
            "stderr": str(folder / "stderr"),
            "stacks": str(folder / "stacks"),
            "entry": job.entry,
            "payload": dict(job.payload),
            "cases": list(self._cases),
            "path": [p for p in sys.path if p],
        }
        kills = oom_kills()
        read, write = os.pipe()
        try:
            try:
                self._process = self._supervisor.launch(job, spec, write)
            except OSError as error:
                self.death = Death("exit", f"the process of suite {job.suite} could not start: {error}", None)
                return
            finally:
                os.close(write)
            yield from self._follow(JournalReader(folder / "journal"), read, self._process, kills)
        finally:
            os.close(read)

    def _follow(self, journal: JournalReader, read: int, process: _Process, kills: int) -> Iterator[Event]:
        watched = [read, process.fd]
        while True:
            left = self._since + self._supervisor.deadline(self._job, self._case) - time.monotonic()
            ready = select.select(watched, [], [], max(0.0, min(left, 0.5)))[0]
            if read in ready and not os.read(read, 4096):
                watched.remove(read)
            status = process.poll()
            yield from self._fold(journal)
            if status is not None:
                yield from self._fold(journal)
                self.kill()
                left_out = [c for c in self._cases if c not in self.ended]
                if self._done and status == 0 and left_out:
                    self._die(Death("exit", f"the suite ended without running {', '.join(left_out)}", None))
                elif not (self._done and status == 0):
                    self._die(self._describe(status, oom=oom_kills() > kills))
                return
            if left <= 0:
                seconds = self._supervisor.deadline(self._job, self._case)
                what = f"while running case {self._case}" if self._case else "before its first case"
                self._end_hung(process)
                # What it obtained before the deadline counts; what it did after being woken by a signal does not.
                self._die(self._describe(signal.SIGKILL, hang=f"hung: no end after {seconds:g} s {what}"))
                return

    def _describe(self, status: int, *, oom: bool = False, hang: str = "") -> Death:
        return describe(
            self._job.suite, self._case, status, folder=self._folder, device=self._device, oom=oom, hang=hang
        )

    def _fold(self, journal: JournalReader) -> Iterator[Event]:
        suite = self._job.suite
        for record in journal.read():
            kind, case = record["type"], record.get("case", "")
            if kind == "start":
                self._case, self._since = case, time.monotonic()
                yield CaseStarted(suite, case)
            elif kind == "result":
                yield CaseData(suite, case, record["data"])
            elif kind == "end":
                self.ended.add(case)
                seconds = time.monotonic() - self._since
                self._case, self._since = None, time.monotonic()
                yield CaseEnded(suite, case, seconds)
            elif kind == "device":
                self._device = record["error"]
            elif kind == "done":
                self._done = True

    def _die(self, death: Death) -> None:
        self.death, self.died = death, self._case
        self.seconds = time.monotonic() - self._since

    def _end_hung(self, process: _Process) -> None:
        # faulthandler writes the stacks of all threads on SIGUSR1, at C level, even where native code has the GIL.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGUSR1)
        process.poll(GRACE / 10)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        process.poll(GRACE / 10)
        self.kill()

    def kill(self) -> None:
        """End the worker and everything that it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.poll(GRACE)
