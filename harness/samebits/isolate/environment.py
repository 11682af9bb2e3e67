"""The environment of children, decided before their interpreter starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

CORE_FLAGS = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
)


def child_environment(extra: Mapping[str, str], directory: Path) -> dict[str, str]:
    """This process's environment with `extra` over it, and what only children of samebits get.

    NVML instead of the CUDA runtime answers `torch.cuda.is_available()`, because the runtime would poison every
    later fork. CUDA core dumps abort the host process, so they are on in children only.
    """
    env = dict(os.environ)
    env.update(
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
        CUDA_ENABLE_COREDUMP_ON_EXCEPTION="1",
        CUDA_COREDUMP_FILE=str(directory / "cuda_%h.%p.%t"),
        CUDA_COREDUMP_GENERATION_FLAGS=CORE_FLAGS,
        PYTHONFAULTHANDLER="1",
        PYTHONUNBUFFERED="1",
    )
    env.update(extra)
    return env


def cuda_started() -> bool:
    """Whether this process has a CUDA context through torch. Never imports torch to find out."""
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch.cuda.is_initialized())
