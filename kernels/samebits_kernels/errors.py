"""What samebits_kernels raises on purpose. It never imports samebits, so it has small classes of its own."""

from __future__ import annotations


class KernelsError(Exception):
    """Base of everything raised here on purpose."""


class UsageError(KernelsError, ValueError):
    """The call cannot be carried out as written. Raised before any memory is touched.

    Common causes: K not a multiple of 16, scales in the plain instead of the 128x4 swizzled layout, tensors on
    two devices, a backend that does not support batch invariance under `VLLM_BATCH_INVARIANT=1`.

    Args:
        asked: what was asked for.
        found: what was found instead (the value).
        allowed: what is allowed.
        fix: what to do.
    """

    def __init__(self, asked: str, *, found: str = "", allowed: str = "", fix: str = "") -> None:
        self.asked, self.found, self.allowed, self.fix = asked, found, allowed, fix
        parts = [asked]
        parts += [f"  found:   {found}"] if found else []
        parts += [f"  allowed: {allowed}"] if allowed else []
        parts += [f"  do:      {fix}"] if fix else []
        super().__init__("\n".join(parts))


class BackendUnavailableError(KernelsError, RuntimeError):
    """The backend exists but this machine cannot run it; the message is `available()`'s reason."""


class BuildError(KernelsError, RuntimeError):
    """The kernels did not compile. The message names the command and the log.

    Common causes: a compiler older than C++17, no space left in the cache, a kernel being edited.
    """
