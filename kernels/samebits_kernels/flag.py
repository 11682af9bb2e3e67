"""The one place where Python reads `VLLM_BATCH_INVARIANT`.

Exactly "0", "1" or unset are accepted. Elsewhere native code reads it with `atoi` ("true" is off, "2" is on)
while Python raises on "true"; two readers that disagree are how a run ends up in a mode nobody asked for.
The native library applies the same rule once, at its first use: `samebits_kernels.probe()` says what it read.
"""

from __future__ import annotations

import os

from samebits_kernels.errors import UsageError

FLAG = "VLLM_BATCH_INVARIANT"


def batch_invariant() -> bool:
    """Whether the environment asks for batch invariance now.

    Raises:
        UsageError: the variable is set to anything but 0 or 1.
    """
    value = os.environ.get(FLAG)
    if value is None or value == "0":
        return False
    if value == "1":
        return True
    raise UsageError(f"{FLAG} asks for a mode", found=repr(value), allowed="0, 1 or unset", fix=f"export {FLAG}=1")
