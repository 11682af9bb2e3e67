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
_ASSERTION = re.compile(r"Assertion .* failed")
_MACHINERY = re.compile(
    r"^  File .*(/pluggy/|/_pytest/|/samebits/(isolate|plugin|session)/|<frozen )|"
    r"^Extension modules:"
)
_MEMORY = re.compile(r"std::bad_alloc|MemoryError|OutOfMemoryError|can't allocate memory|Cannot allocate memory")


def oom_kills() -> int:
    """How often the kernel has killed for memory in this process's control group (version 2 or 1)."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0
    total = 0
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = [Path(f"/sys/fs/cgroup{path}/memory.events"), Path("/sys/fs/cgroup/memory.events")]
        elif controllers == "memory":
            root = Path("/sys/fs/cgroup/memory")
            files = [Path(f"{root}{path}/memory.oom_control"), root / "memory.oom_control"]
        else:
            continue
        file = next((f for f in files if f.is_file()), None)  # inside a container the root is the group itself
        if file is not None and (found := re.search(r"^oom_kill (\d+)$", _read(file), re.MULTILINE)):
            total += int(found[1])
    return total


def describe(
    status: int,
    case: str | None,
    where: str,
    *,
    folder: Path,
    stderr_from: int = 0,
    device: str | None = None,
    oom: bool = False,
    hang: str = "",
) -> Death:
    """The death of a worker.

    Args:
        status: as from waitpid.
        case: the one that was running, or None.
        where: "while running case X", for the message.
        folder: the worker's files.
        stderr_from: where its standard error stood when the case began.
        device: what a CUDA synchronisation said.
        oom: the kernel has killed for memory meanwhile.
        hang: the message, if it was killed for its deadline.
    """
    stderr, stack = _read(folder / "stderr", stderr_from)[-TAIL:].strip(), _stack(_read(folder / "stacks"))
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    name = _signal_name(number)
    dumped, core = sorted(folder.glob("cuda_*")), next(iter(sorted(folder.glob("core*"))), None)
    if device is None and not hang:
        if match := _CUDA.search(stderr):
            device = match[0].strip()
        elif dumped:  # the driver aborts the process once it has written one, before anybody says what happened
            match = _ASSERTION.search(stderr)
            device = match[0].strip() if match else "CUDA wrote a core dump"
    if hang:
        kind, message = "hang", hang
    elif code == DISK_EXIT:
        kind, message = "disk", f"no room left to write results {where}"
    elif code == DEVICE_EXIT or (device is not None and number is not None):
        kind, message = "device", f"the CUDA context broke {where}: {device or 'see its standard error'}"
    elif (oom and number == signal.SIGKILL) or (number != signal.SIGKILL and _MEMORY.search(stderr)):
        kind, message = "memory", f"out of memory {where}" + (f" (killed by {name})" if name else "")
    elif number is not None:
        kind, message = "signal", f"killed by {name} {where}"
    else:
        kind, message = "exit", f"the process left with exit code {code} {where}"
    kept = next(iter(dumped), core)
    return Death(kind, message, case, name, code, stderr, stack, str(kept) if kept else None, device)


def _stack(text: str) -> str:
    """The latest calls come first; those of test runners and of ourselves say nothing."""
    return "\n".join(line for line in text.splitlines() if not _MACHINERY.search(line))[:TAIL].strip()


def _signal_name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read(path: Path, start: int = 0) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
