"""What a dead worker left behind, in one line and in full."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from samebits.isolate.journal import DISK_EXIT
from samebits.isolate.protocol import Death
from samebits.isolate.worker import DEVICE_EXIT

TAIL = 4000
"""Characters of standard error and of stacks that are kept."""
_CUDA = re.compile(r".*(CUDA error|CUDA_ERROR_|cudaError|device-side assert).*")
_MEMORY = re.compile(r"std::bad_alloc|MemoryError|OutOfMemoryError|can't allocate memory|Cannot allocate memory")


def oom_kills() -> int:
    """How often the kernel has killed for memory in this process's control group (memory.events, oom_kill)."""
    try:
        group = Path("/proc/self/cgroup").read_text().strip().rsplit(":", 1)[-1]
        text = Path(f"/sys/fs/cgroup{group}/memory.events").read_text()
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def describe(
    suite: str, case: str | None, status: int, *, folder: Path, device: str | None, oom: bool, hang: str = ""
) -> Death:
    """The death of a worker from its waitpid status and its files."""
    stderr, stack = _tail(folder / "stderr"), _tail(folder / "stacks")
    where = f"while running case {case}" if case else f"outside any case of suite {suite}"
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    name = _signal_name(number)
    if device is None and (match := _CUDA.search(stderr)):
        device = match[0].strip()
    core = next((str(p) for p in sorted((*folder.parent.glob("cuda_*"), *folder.glob("core*")))), None)
    if hang:
        kind, message = "hang", hang
    elif code == DISK_EXIT:
        kind, message = "disk", f"no room left to write results {where}"
    elif code == DEVICE_EXIT or (device is not None and number is not None):
        kind, message = "device", f"the CUDA context broke {where}: {device}"
    elif oom or _MEMORY.search(stderr):
        kind, message = "memory", f"out of memory {where}"
    elif number is not None:
        kind, message = "signal", f"killed by {name} {where}"
    else:
        kind, message = "exit", f"the process left with exit code {code} {where}"
    return Death(kind, message, case, name, code, stderr, stack, core, device)


def _signal_name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-TAIL:].strip()
    except OSError:
        return ""
