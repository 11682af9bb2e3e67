"""From `csrc/` to a loaded library: hash, look up, compile under a lock, publish, load."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samebits_kernels.errors import BackendUnavailableError, BuildError, UsageError
from samebits_kernels.jit import toolchain
from samebits_kernels.jit.cache import Entry

CSRC = Path(__file__).resolve().parent.parent / "csrc"
# -ffp-contract=off: a compiler that fuses where it likes gives every vector width its own bits.
CPU_FLAGS = (
    "-O3",
    "-ffp-contract=off",
    "-fno-fast-math",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
    "-Wno-maybe-uninitialized",
    "-Wno-psabi",
)


@dataclass(frozen=True)
class Target:
    """What one backend builds."""

    name: str
    folders: tuple[str, ...]
    flags: tuple[str, ...]

    def files(self) -> list[Path]:
        """Every file that the result depends on, in a fixed order."""
        return sorted(f for folder in self.folders for f in (CSRC / folder).iterdir() if f.is_file())

    def units(self) -> list[Path]:
        """The translation units among them."""
        return [f for f in self.files() if f.suffix == ".cpp"]

    def source_hash(self) -> str:
        """Digest of names, contents and flags: what the bits come from, whatever compiles it."""
        digest = hashlib.sha256("\0".join(self.flags).encode())
        for file in self.files():
            digest.update(f"{file.relative_to(CSRC)}\0".encode())
            digest.update(file.read_bytes())
        return digest.hexdigest()


TARGETS = {"cpu": Target("cpu", ("common", "scheduler", "cpu"), CPU_FLAGS)}


def target(name: str) -> Target:
    """The target called `name`.

    Raises:
        UsageError: there is none.
    """
    if name not in TARGETS:
        raise UsageError("a build target", found=repr(name), allowed=", ".join(TARGETS))
    return TARGETS[name]


def entry(what: Target) -> Entry:
    """The cache entry for `what` with this machine's toolchain."""
    import tvm_ffi

    tools = toolchain.host()
    identity = "\0".join(
        (what.source_hash(), tools.cxx, tools.version, str(tvm_ffi.__version__), platform.machine(), "layout 1")
    )
    return Entry(f"{what.name}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}")


def build(what: Target, *, force: bool = False) -> dict[str, Any]:
    """Compile unless the cache has it; returns the manifest, with `folder`, `built` and `seconds`.

    Raises:
        BackendUnavailableError: no compiler.
        BuildError: it does not compile; names the command and the log.
    """
    reason = toolchain.missing()
    if reason is not None:
        raise BackendUnavailableError(f"cannot build {what.name}: {reason}")
    place = entry(what)
    found = None if force else place.manifest()
    if found is not None:
        return {**found, "folder": str(place.folder), "built": False}
    try:
        with place.lock():
            found = None if force else place.manifest()  # another process may have built it while we waited
            if found is not None:
                return {**found, "folder": str(place.folder), "built": False}
            return {**_compile(what, place), "folder": str(place.folder), "built": True}
    except OSError as error:
        raise BuildError(
            f"building {what.name} kernels: {error}\n  do:      free space, or set SAMEBITS_CACHE_DIR to a "
            "writable folder"
        ) from error


def _compile(what: Target, place: Entry) -> dict[str, Any]:
    import tvm_ffi.cpp

    tools = toolchain.host()
    staging = place.staging()
    start = time.perf_counter()
    try:
        with _on_path(tools):
            library = tvm_ffi.cpp.build(
                f"samebits_{what.name}",
                sources=[str(unit) for unit in what.units()],
                extra_cflags=list(what.flags),
                extra_ldflags=["-pthread"],
                build_directory=str(staging),
            )
    except RuntimeError as error:
        log = place.failed_log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(str(error))
        shutil.rmtree(staging, ignore_errors=True)
        raise BuildError(_failure(what, str(error), log)) from None
    about = {
        "target": what.name,
        "sources": what.source_hash(),
        "compiler": tools.version,
        "flags": list(what.flags),
        "seconds": round(time.perf_counter() - start, 2),
    }
    place.publish(staging, Path(library), about)
    shutil.rmtree(staging, ignore_errors=True)
    manifest = place.manifest()
    if manifest is None:
        raise BuildError(f"building {what.name} kernels: the library vanished from {place.folder}")
    return manifest


def _failure(what: Target, text: str, log: Path) -> str:
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith("FAILED")), None)
    command = lines[at + 1] if at is not None and at + 1 < len(lines) else "ninja"
    errors = [line for line in lines if re.search(r"\berror\b", line)][:3] or lines[-3:]
    return "\n".join(
        (
            f"building {what.name} kernels failed",
            *(f"  {line}" for line in errors),
            f"  command: {command}",
            f"  log:     {log}",
            '  do:      fix the source, or run with backend="reference", which needs no compiler',
        )
    )


@contextlib.contextmanager
def _on_path(tools: toolchain.Toolchain) -> Iterator[None]:
    """tvm-ffi calls `ninja` by name; in a virtual environment that is not activated it is not on PATH."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = str(Path(tools.ninja).parent) + os.pathsep + before
    try:
        yield
    finally:
        os.environ["PATH"] = before


def load(what: Target) -> tuple[Any, dict[str, Any]]:
    """The library as a tvm-ffi module, built first if need be, and its manifest.

    An entry that does not load is rebuilt once.
    """
    import tvm_ffi

    manifest = build(what)
    try:
        module = tvm_ffi.load_module(str(Path(manifest["folder"]) / manifest["library"]))
    except (OSError, RuntimeError):
        manifest = build(what, force=True)
        module = tvm_ffi.load_module(str(Path(manifest["folder"]) / manifest["library"]))
    return module, manifest
