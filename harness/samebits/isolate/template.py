"""The template: imports the heavy modules once, touches no device, starts workers and outlives none of them.

Run as `python -m samebits.isolate.template FD PARENT`; speaks JSON lines over the socket FD.
Requests: {"preload": [modules]}; {"fork": path of a spec} or {"spawn": path}, with the write end of the notify
pipe as ancillary data; {"signal": n, "pid": n, "group": bool}.
Answers: {"ready": seconds} or {"error": text}; {"pid": n}; {"exit": pid, "status": waitpid status}.

It stays single-threaded and starts no CUDA, because a fork carries neither over. When the parent goes, in
whatever way, its socket closes: then every worker is killed with all that it started.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samebits.isolate import worker
from samebits.isolate.environment import cuda_started


def threads_after_fork() -> int:
    """Threads of this process once it has forked: a fork copies only the caller's, so there must be one.

    OpenBLAS, which NumPy loads, ends its pool in a pthread_atfork handler and starts it again when needed: such
    threads are gone after a first fork. Those that remain would be lost in every worker.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(list(Path("/proc/self/task").iterdir()))


def preload(modules: Sequence[str]) -> dict[str, Any]:
    """Import `modules`; the answer says how long it took, or why this process cannot be forked."""
    start = time.perf_counter()
    try:
        for module in modules:
            importlib.import_module(module)
    except BaseException:
        return {"error": traceback.format_exc()}
    if cuda_started():
        return {"error": f"importing {', '.join(modules)} created a CUDA context: forking would break it"}
    if (threads := threads_after_fork()) != 1:
        return {"error": f"importing {', '.join(modules)} started {threads - 1} threads: a fork would lose them"}
    return {"ready": time.perf_counter() - start}


class Template:
    """Requests in, workers out."""

    def __init__(self, sock: socket.socket, parent: int) -> None:
        self._sock, self._parent = sock, parent
        self._live: set[int] = set()
        self._buffer, self._fds = b"", list[int]()
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Answer until the parent goes."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminated)
        worker.die_with_parent(self._parent, signal.SIGTERM)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        self._selector.register(self._sock, selectors.EVENT_READ)
        self._selector.register(self._wake[0], selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        except OSError:  # the parent went in the middle of a message
            pass
        finally:
            self._end_all()

    def _turn(self) -> bool:
        for key, _ in self._selector.select():
            if key.fd == self._wake[0]:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake[0], 4096)
                continue
            data, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 4)
            if not data:
                return False
            self._fds += fds
            self._buffer += data
        while b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
            self._answer(json.loads(line))
        self._reap()
        return True

    def _answer(self, request: dict[str, Any]) -> None:
        if "preload" in request:
            self._send(preload(request["preload"]))
        elif "signal" in request:
            if request["pid"] in self._live:
                send = os.killpg if request["group"] else os.kill
                with contextlib.suppress(ProcessLookupError):
                    send(request["pid"], request["signal"])
        else:
            notify = self._fds.pop(0)
            me = os.getpid()
            pid = os.fork()
            if pid == 0:
                try:
                    self._become_worker(request, notify, me)
                finally:
                    os._exit(1)
            os.close(notify)
            self._live.add(pid)
            self._send({"pid": pid})

    def _become_worker(self, request: dict[str, Any], notify: int, template: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        worker.die_with_parent(template)
        os.setsid()
        self._selector.close()
        self._sock.close()
        for fd in self._wake:
            os.close(fd)
        if "spawn" in request:
            os.set_inheritable(notify, True)
            command = [sys.executable, "-P", "-m", "samebits.isolate.worker", request["spawn"], str(notify)]
            os.execv(sys.executable, command)
        worker.main(json.loads(Path(request["fork"]).read_text()), notify)

    def _reap(self) -> None:
        while self._live:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Before its number is free again: what it started belongs to its group, and goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            pid, status = os.waitpid(ended.si_pid, 0)
            self._live.discard(pid)
            self._send({"exit": pid, "status": status})

    def _send(self, message: dict[str, Any]) -> None:
        self._sock.sendall(json.dumps(message).encode() + b"\n")

    def _end_all(self) -> None:
        for pid in self._live:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _terminated(self, *_: object) -> None:
        # Also sent when only the parent's thread that started us ends: then the parent is still there.
        if os.getppid() != self._parent:
            self._end_all()
            os._exit(1)


if __name__ == "__main__":
    Template(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve()
