"""The compiler that builds the kernels, and its identity for the cache key."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler with its version line, and ninja."""

    cxx: str
    version: str
    ninja: str


def find_ninja() -> str | None:
    """Path of ninja: the wheel's, or the one on PATH."""
    try:
        import ninja  # type: ignore[import-not-found,unused-ignore]

        bundled = Path(ninja.BIN_DIR) / "ninja"
        if bundled.exists():
            return str(bundled)
    except ImportError:
        pass
    return shutil.which("ninja")


def missing() -> str | None:
    """Why nothing can be compiled here, or None."""
    wanted = os.environ.get("CXX", "c++")
    if shutil.which(wanted) is None:
        where = "$CXX" if "CXX" in os.environ else "PATH"
        return f"no C++ compiler ({wanted!r} from {where} not found); install g++ or clang++, or set CXX"
    if find_ninja() is None:
        return "no ninja; pip install ninja"
    return None


@functools.cache
def _identify(cxx: str) -> str:
    done = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return (done.stdout or done.stderr).splitlines()[0] if done.stdout or done.stderr else "unknown"


def host() -> Toolchain:
    """The host toolchain; call `missing` first."""
    cxx = shutil.which(os.environ.get("CXX", "c++"))
    ninja = find_ninja()
    assert cxx is not None
    assert ninja is not None
    return Toolchain(cxx, _identify(cxx), ninja)
