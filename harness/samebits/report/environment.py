"""What a run ran on, learnt without importing torch and without creating a CUDA context."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "apache-tvm-ffi", "pytest", "pytest-forked", "pytest-xdist")
VARIABLES = re.compile(
    r"^(VLLM_BATCH_INVARIANT|CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|CUBLAS_.*|CUBLASLT_.*|NVIDIA_TF32_OVERRIDE|"
    r"OMP_NUM_THREADS|MKL_.*|TORCH_CUDA_ARCH_LIST|PYTORCH_.*|SAMEBITS_.*)$"
)
"""Variables that can change bits; nothing else of the environment is kept."""


def environment(directory: Path | None = None) -> dict[str, Any]:
    """Python, packages, processor, cards, driver, toolkit, and the commit of the repository around `directory`."""
    driver, cards, _ = cards_and_driver()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": processor(),
        "cores": os.cpu_count() or 1,
        "packages": {name: v for name in PACKAGES if (v := version(name))},
        "cards": cards,
        "driver": driver,
        "toolkit": toolkit(),
        "repository": repository(directory or Path.cwd()),
        "variables": {k: v for k, v in sorted(os.environ.items()) if VARIABLES.match(k)},
    }


def machine_words(found: dict[str, Any]) -> str:
    """ "NVIDIA H200 · driver 580.95 · CUDA 13.0" or the processor, for the last line of a finding."""
    if not found.get("cards"):
        return str(found.get("cpu") or found.get("platform") or "")
    words = [str(found["cards"][0]["name"])]
    words += [f"driver {found['driver']}"] if found.get("driver") else []
    words += [f"CUDA {found['toolkit']}"] if found.get("toolkit") else []
    return " · ".join(words)


def version(package: str) -> str | None:
    """Of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The model name of the CPU."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def cards_and_driver() -> tuple[str | None, list[dict[str, Any]], str]:
    """(driver version, cards, why there are none), from NVML."""
    try:
        import pynvml
    except ImportError:
        return None, [], "nvidia-ml-py is not installed (pip install samebits[gpu])"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, [], f"no NVIDIA driver ({error})"
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        cards = []
        for i in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(i)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            cards.append(
                {
                    "index": i,
                    "name": _text(pynvml.nvmlDeviceGetName(handle)),
                    "arch": f"sm_{major}{minor}",
                    "memory": int(memory.total),
                    "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
                }
            )
        return driver, cards, "" if cards else "the driver shows no card"
    except pynvml.NVMLError as error:
        return None, [], f"NVML failed: {error}"
    finally:
        pynvml.nvmlShutdown()


def toolkit() -> str | None:
    """Version of nvcc, or None."""
    nvcc = nvcc_path()
    found = re.search(r"release ([\d.]+)", said([nvcc, "--version"])) if nvcc else None
    return found[1] if found else None


def nvcc_path() -> str | None:
    """Where nvcc is: on PATH, or below CUDA_HOME, or in its usual place."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    usual = [Path(home) / "bin" / "nvcc" for home in homes if home]
    return shutil.which("nvcc") or next((str(p) for p in usual if p.is_file()), None)


def repository(directory: Path) -> dict[str, Any] | None:
    """{"commit", "dirty"} of the git repository around `directory`, or None."""
    git = shutil.which("git")
    commit = said([git, "-C", str(directory), "rev-parse", "HEAD"]).strip() if git else ""
    if not git or not commit:
        return None
    changes = said([git, "-C", str(directory), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "dirty": bool(changes.strip())}


def said(command: Sequence[str | None]) -> str:
    """Standard output of a short command; empty where it fails."""
    try:
        done = subprocess.run(
            [c for c in command if c], capture_output=True, text=True, timeout=20, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
