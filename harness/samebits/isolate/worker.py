"""The process in which kernels run: some cases of one suite, one journal, no way back but the journal.

Forked from a template; or, for a cold start, `python -m samebits.isolate.worker SPEC NOTIFY`.

A forked worker has the hash seed of its template, and random state as a new interpreter would: `random` seeds
itself anew after a fork, NumPy's global generator is seeded here, and torch's always starts from one constant.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from samebits.isolate.journal import DISK_EXIT, JournalWriter

FOLDER = "SAMEBITS_WORKER"
"""Environment variable that names the folder of a worker, for files that should go when its run's files go: a
worker ends without running exit handlers."""
DEVICE_EXIT = 75
"""Exit status of a worker whose CUDA context is beyond repair."""
CONDEMNED = "condemned"
"""A file in the folder of a worker that is being ended for its deadline: it has nothing more to say."""
_PR_SET_PDEATHSIG = 1
_stacks: list[int] = []
"""The file that faulthandler writes to, once there is one."""


class WorkerChannel:
    """`protocol.Channel` over a journal."""

    def __init__(self, writer: JournalWriter, remaining: tuple[str, ...], folder: Path) -> None:
        self._writer, self.remaining, self._folder = writer, remaining, folder

    def start(self, case: str) -> None:
        """This case begins."""
        offset = (self._folder / "stderr").stat().st_size  # what a dead case said is what came after this
        self._write({"type": "start", "case": case, "stderr": offset})

    def result(self, case: str, data: Mapping[str, Any]) -> None:
        """Something was obtained."""
        self._write({"type": "result", "case": case, "data": dict(data)})

    def end(self, case: str) -> None:
        """This case is complete; a device that broke in it ends the process."""
        error = device_error()
        if error is not None:
            self._write({"type": "device", "case": case, "error": error})
            leave(DEVICE_EXIT)
        self._write({"type": "end", "case": case})

    def _write(self, record: Mapping[str, Any]) -> None:
        if (self._folder / CONDEMNED).exists():
            leave(1)
        self._writer.write(record)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when `parent` goes (prctl(2), PR_SET_PDEATHSIG); 0 calls it off."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it went before the call
        os._exit(1)


def keep_stacks() -> None:
    """Write the stacks of a crash to the worker's own file. Test runners point faulthandler elsewhere."""
    for fd in _stacks:
        faulthandler.enable(file=fd, all_threads=True)


def device_error() -> str | None:
    """The sticky CUDA error of this process, or None. Synchronises a context that exists; creates none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        torch.cuda.synchronize()
    except Exception as error:
        return str(error).splitlines()[0]
    return None


def leave(code: int) -> None:
    """End the process without an interpreter shutdown: native threads of a kernel under test may hang that."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main(spec: Mapping[str, Any], notify: int) -> None:
    """Run `spec["entry"]` over `spec["cases"]`, output into files; never returns."""
    code = 1
    try:
        _prepare(spec)
        writer = JournalWriter(Path(spec["journal"]), notify)
        module, _, function = spec["entry"].partition(":")
        run = getattr(importlib.import_module(module), function)
        run(spec["payload"], WorkerChannel(writer, tuple(spec["cases"]), Path(spec["folder"])))
        writer.write({"type": "done"})
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except OSError as error:
        code = DISK_EXIT if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1
        traceback.print_exc()
    except BaseException:
        code = DEVICE_EXIT if device_error() is not None else 1
        traceback.print_exc()
    finally:
        leave(code)


def _prepare(spec: Mapping[str, Any]) -> None:
    if os.getsid(0) != os.getpid():
        os.setsid()
    for number, key in ((1, "stdout"), (2, "stderr")):
        fd = os.open(spec[key], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(fd, number)
        os.close(fd)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.environ[FOLDER] = spec["folder"]
    os.environ["CUDA_COREDUMP_FILE"] = str(Path(spec["folder"]) / "cuda_%h.%p.%t")
    _stacks.append(os.open(spec["stacks"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    keep_stacks()
    faulthandler.register(signal.SIGUSR1, file=_stacks[0], all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends the group
    sys.path.extend(p for p in spec["path"] if p not in sys.path)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


if __name__ == "__main__":
    # As a module of its own name, or entries that import it would find a second one.
    worker = importlib.import_module("samebits.isolate.worker")
    worker.die_with_parent(os.getppid())
    worker.main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
