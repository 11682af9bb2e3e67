"""The four classes of bad news, never mixed, and the exit codes that carry them.

| class | exception | exit code | may CI retry it? |
| --- | --- | --- | --- |
| usage | `UsageError` | 2 | no: the call is wrong |
| divergence | `DivergenceError` | 1 | never: determinism is the subject |
| divergence | `KernelError`: it raised or died | 1 | never: it is the kernel's own doing |
| flaky | `FlakyError` | 1 | never: the same launch gave other bits, which is a finding of its own |
| infrastructure | `InfrastructureError` | 3 | yes |
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.engine.result import CaseResult


class ExitCode(IntEnum):
    """What a samebits process says with its exit status (published in docs/reference/exit-codes)."""

    INVARIANT = 0
    DIVERGENCE = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    NOTHING_TESTED = 5


class SamebitsError(Exception):
    """Base of everything samebits raises on purpose."""

    exit_code = ExitCode.INFRASTRUCTURE


class UsageError(SamebitsError):
    """The request cannot be carried out as written.

    Common causes: a row input whose dimension 0 is not the batch, row inputs of different lengths, a
    backend that does not support batch invariance under `VLLM_BATCH_INVARIANT=1`, an unknown check id.

    Args:
        asked: what was asked for.
        found: what was found instead (the value, not its type alone).
        allowed: what is allowed.
        fix: what to do.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, asked: str, *, found: str = "", allowed: str = "", fix: str = "") -> None:
        self.asked, self.found, self.allowed, self.fix = asked, found, allowed, fix
        parts = [asked]
        parts += [f"  found:   {found}"] if found else []
        parts += [f"  allowed: {allowed}"] if allowed else []
        parts += [f"  do:      {fix}"] if fix else []
        super().__init__("\n".join(parts))


class InfrastructureError(SamebitsError):
    """The machine, not the kernel: a full disk, a process that could not be started, a failed build.

    Common causes: no space left where results are written, no C++ compiler, a card that fell off the bus.
    """


class DivergenceError(SamebitsError, AssertionError):
    """A kernel's bits changed with its batch. An AssertionError, so that every test runner understands it.

    `result` holds the findings; the message is the report's own text.
    """

    exit_code = ExitCode.DIVERGENCE

    def __init__(self, message: str, result: CaseResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class FlakyError(DivergenceError):
    """The very same launch gave different bits: a race, arrival order, or uninitialised memory.

    Common causes: floating-point atomics, a missing barrier, workspace read before it is written.
    """


class KernelError(SamebitsError, AssertionError):
    """The kernel under test raised or died: its own doing, not the machine's, so it counts as a failure (1).

    Common causes: a batch size or layout that it does not support, a device error, memory exhausted.
    """

    exit_code = ExitCode.DIVERGENCE

    def __init__(self, message: str, result: CaseResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class NothingTestedError(SamebitsError):
    """No check had the power to see anything, so nothing was proven. Never green.

    Common causes: every check was inapplicable, rows that are all equal, outputs with fewer than three addends.
    """

    exit_code = ExitCode.NOTHING_TESTED
