"""The parent's handles: a template, and a worker that a template started."""

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from samebits.errors import InfrastructureError

STARTUP = 120.0
"""Seconds that a template may take to import, and a worker to reach its first case or the next."""


class Worker:
    """A worker process. `fd` becomes readable when there may be news of it."""

    def __init__(self, template: TemplateProcess, pid: int) -> None:
        self._template, self.pid = template, pid

    @property
    def fd(self) -> int:
        """To select on."""
        return self._template.fd

    def poll(self, timeout: float = 0.0) -> int | None:
        """Its waitpid status once it has ended, or None."""
        return self._template.status(self.pid, timeout)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Signal it, or it and all that it started. The template does it: only there is its number safe."""
        self._template.send({"signal": int(number), "pid": self.pid, "group": group})


class TemplateProcess:
    """A process with one environment that starts workers.

    Args:
        env: its whole environment.
        modules: imported before the first fork; empty for a template that only spawns cold workers.
        log: its output.

    Raises:
        InfrastructureError: it did not start, or cannot be forked once it has imported `modules`.
    """

    def __init__(self, env: Mapping[str, str], modules: Sequence[str], log: Path) -> None:
        self._log, self._buffer = log, b""
        self._exits: dict[int, int] = {}
        self._started: set[int] = set()
        self._sock, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            # -P: a folder that happens to be the current one must not shadow anybody's modules.
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "samebits.isolate.template", str(theirs.fileno()), str(os.getpid())],
                env=dict(env),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self.send({"preload": list(modules)})
            answer = self._receive(STARTUP)
            if answer is None or "ready" not in answer:
                said = answer["error"] if answer else self._last_words()
                raise InfrastructureError(f"the template process could not start: {said}")
        except BaseException:
            self.close()
            raise

    @property
    def fd(self) -> int:
        """To select on."""
        return self._sock.fileno()

    @property
    def alive(self) -> bool:
        """Whether it can still start workers."""
        return self._popen.poll() is None

    @property
    def busy(self) -> bool:
        """Whether a worker of it may still run."""
        return not self._started <= self._exits.keys()

    def start(self, spec: Path, notify: int, *, cold: bool) -> Worker:
        """Start the worker that `spec` describes; `notify` is its end of the wake-up pipe.

        Raises:
            InfrastructureError: the template is gone.
        """
        message = json.dumps({"spawn" if cold else "fork": str(spec)}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._sock, [message], [notify])
        while (answer := self._receive(STARTUP)) is not None:
            if "pid" in answer:
                pid = int(answer["pid"])
                self._exits.pop(pid, None)  # of an earlier process with this number
                self._started.add(pid)
                return Worker(self, pid)
            self._note(answer)
        raise InfrastructureError(f"the template process died: {self._last_words()}")

    def status(self, pid: int, timeout: float) -> int | None:
        """The waitpid status of one of its workers, or None."""
        until = time.monotonic() + timeout
        while pid not in self._exits:
            answer = self._receive(max(0.0, until - time.monotonic()))
            if answer is None:
                if self.fd < 0 or not self.alive:
                    # The kernel ends the workers of a template that goes, but not what those had started.
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
                    self._exits.setdefault(pid, signal.SIGKILL)
                break
            self._note(answer)
        return self._exits.get(pid)

    def send(self, message: dict[str, Any]) -> None:
        """A request. One that a dead template cannot take is dropped: its workers are dead, too."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """End it and every worker it still has."""
        self._sock.close()
        try:
            self._popen.wait(2.0)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _note(self, answer: dict[str, Any]) -> None:
        if "exit" in answer:
            self._exits[int(answer["exit"])] = int(answer["status"])

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        until = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if self.fd < 0:
                return None
            if not select.select([self._sock], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            try:
                data = self._sock.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                # A closed socket is seen a moment before the process can be waited for.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(1.0)
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")[-2000:].strip()
        return ""
