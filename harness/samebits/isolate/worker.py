"""The process in which kernels run: one suite, one journal, no way back but the journal.

Run as `python -m samebits.isolate.worker SPEC` for a cold start; forked from a template otherwise.
"""

from __future__ import annotations

import contextlib
import ctypes
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

from samebits.isolate.journal import JournalWriter

DEVICE_EXIT = 75
"""Exit status of a worker whose CUDA context is beyond repair."""
_PR_SET_PDEATHSIG = 1


class WorkerChannel:
    """`protocol.Channel` over a journal."""

    def __init__(self, writer: JournalWriter, remaining: tuple[str, ...]) -> None:
        self._writer, self.remaining = writer, remaining

    def start(self, case: str) -> None:
        """This case begins."""
        self._writer.write({"type": "start", "case": case})

    def result(self, case: str, data: Mapping[str, Any]) -> None:
        """Something was obtained."""
        self._writer.write({"type": "result", "case": case, "data": dict(data)})

    def end(self, case: str) -> None:
        """This case is complete; a device that broke in it ends the process."""
        error = device_error()
        if error is not None:
            self._writer.write({"type": "device", "case": case, "error": error})
            os._exit(DEVICE_EXIT)
        self._writer.write({"type": "end", "case": case})


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent goes (prctl(2), PR_SET_PDEATHSIG)."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


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


def main(spec: Mapping[str, Any], notify: int | None) -> None:
    """Run `spec["entry"]` over `spec["cases"]`, output into files; never returns."""
    os.setsid() if os.getsid(0) != os.getpid() else None
    die_with_parent()
    for number, key in ((1, "stdout"), (2, "stderr")):
        fd = os.open(spec[key], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(fd, number)
        os.close(fd)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    stacks = os.open(spec["stacks"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    faulthandler.enable(file=stacks, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends the group
    code = 0
    try:
        writer = JournalWriter(Path(spec["journal"]), notify)
        module, _, function = spec["entry"].partition(":")
        for path in spec.get("path", ()):
            if path not in sys.path:
                sys.path.append(path)
        run = getattr(importlib.import_module(module), function)
        run(spec["payload"], WorkerChannel(writer, tuple(spec["cases"])))
        writer.write({"type": "done"})
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = DEVICE_EXIT if device_error() is not None else 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # No interpreter shutdown: native threads of a kernel under test may hang it.
        os._exit(code)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
