"""The operator library: definitions, implementations and fakes meet here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LIBRARY = torch.library.Library("samebits", "DEF")  # type: ignore[no-untyped-call]


def define(schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Define one operator from its schema; returns the overload to call.

    `real` runs on the CPU (later also CUDA) and gets real tensors; `fake` gets shapes only.
    """
    LIBRARY.define(schema)  # type: ignore[no-untyped-call]
    name = schema.partition("(")[0]
    LIBRARY.impl(name, real, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"samebits::{name}", fake, lib=LIBRARY)
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.samebits, packet), overload or "default")
