"""The environment of children, decided before their interpreter starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""NVML instead of the CUDA runtime answers `torch.cuda.is_available()`, which would poison every later fork."""
CORE_FLAGS = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
)
PASSING = frozenset({"PYTEST_CURRENT_TEST", "SAMEBITS_WORKER"})
"""Variables that change by themselves; children do not get them, so that a template can serve many."""


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with `extra` over it, and what only children of samebits get.

    CUDA core dumps abort the host process, so they are on in children only; a worker says where they go.
    """
    env = {k: v for k, v in os.environ.items() if k not in PASSING}
    env[NVML_CHECK] = "1"
    env.setdefault("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1")
    env.setdefault("CUDA_COREDUMP_GENERATION_FLAGS", CORE_FLAGS)
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.update(extra)
    return env


def cuda_started() -> bool:
    """Whether this process has a CUDA context through torch. Never imports torch to find out."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # absent while torch is being imported
    return bool(cuda is not None and cuda.is_initialized())
