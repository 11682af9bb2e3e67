"""Same bits, whatever the batch.

    samebits.assert_batch_invariant(lambda x: F.linear(x, w), x)

Everything here is loaded when first used: importing samebits costs neither torch nor pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from samebits.errors import (
    DivergenceError,
    ExitCode,
    FlakyError,
    InfrastructureError,
    KernelError,
    NothingTestedError,
    SamebitsError,
    UsageError,
)

if TYPE_CHECKING:
    from samebits import inputs
    from samebits.engine.subject import Subject
    from samebits.engine.suite import Case, Expect, Suite
    from samebits.session.assertion import assert_batch_invariant

__version__ = "0.1.0"

_LAZY = {
    "assert_batch_invariant": "samebits.session.assertion",
    "Subject": "samebits.engine.subject",
    "Suite": "samebits.engine.suite",
    "Case": "samebits.engine.suite",
    "Expect": "samebits.engine.suite",
}

__all__ = [
    "Case",
    "DivergenceError",
    "ExitCode",
    "Expect",
    "FlakyError",
    "InfrastructureError",
    "KernelError",
    "NothingTestedError",
    "SamebitsError",
    "Subject",
    "Suite",
    "UsageError",
    "assert_batch_invariant",
    "inputs",
]


def __getattr__(name: str) -> Any:
    if name == "inputs":
        return importlib.import_module("samebits.inputs")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'samebits' has no attribute {name!r}")
