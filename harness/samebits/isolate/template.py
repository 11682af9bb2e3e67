"""The template: imports the heavy modules once, touches no device, forks a worker per suite.

Run as `python -m samebits.isolate.template FD`; speaks JSON lines over the socket FD.
Requests: {"preload": [...]}, {"fork": spec} with the notify pipe's end as ancillary data.
Answers: {"ready": seconds} or {"error": text}, {"pid": n}, {"exit": n, "status": waitpid status}.
"""

from __future__ import annotations

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


def _send(sock: socket.socket, message: dict[str, Any]) -> None:
    sock.sendall(json.dumps(message).encode() + b"\n")


def _preload(modules: Sequence[str]) -> dict[str, Any]:
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


def serve(sock: socket.socket) -> None:
    """Answer requests until the parent goes."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(sock, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    buffer = b""
    fds: list[int] = []
    while True:
        for key, _ in selector.select():
            if key.fd == wake_read:
                os.read(wake_read, 4096)
                continue
            data, got, _, _ = socket.recv_fds(sock, 1 << 20, 4)
            if not data:
                return
            fds += got
            buffer += data
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            request = json.loads(line)
            if "preload" in request:
                _send(sock, _preload(request["preload"]))
            elif "fork" in request:
                notify = fds.pop(0)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    selector.close()
                    sock.close()
                    os.close(wake_read)
                    os.close(wake_write)
                    worker.main(request["fork"], notify)
                os.close(notify)
                _send(sock, {"pid": pid})
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            _send(sock, {"exit": pid, "status": status})


if __name__ == "__main__":
    worker.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
