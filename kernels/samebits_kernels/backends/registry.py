"""Which backend a call gets: the one it names, or the best that this machine can run.

Under `VLLM_BATCH_INVARIANT=1` only backends that support batch invariance are chosen, and naming another is a
usage error that names those that do.
"""

from __future__ import annotations

import logging
import os

from samebits_kernels.backends.cpu import CpuBackend
from samebits_kernels.backends.protocol import Backend
from samebits_kernels.backends.reference import ReferenceBackend
from samebits_kernels.backends.torch_mm import TorchBackend
from samebits_kernels.errors import BackendUnavailableError, UsageError
from samebits_kernels.flag import FLAG, batch_invariant

_LOG = logging.getLogger("samebits_kernels")
_BACKENDS: dict[str, Backend] = {}
_RESOLVED: dict[tuple[str, str, str | None], Backend] = {}


def register(backend: Backend, *, first: bool = False) -> None:
    """Add a backend; `first` puts it before the others in the order of preference.

    Raises:
        UsageError: the name is taken by another backend.
    """
    if backend.name in _BACKENDS:
        raise UsageError("a backend needs its own name", found=backend.name, allowed="a name not in " + known())
    others = dict(_BACKENDS)
    if first:
        _BACKENDS.clear()
    _BACKENDS[backend.name] = backend
    if first:
        _BACKENDS.update(others)
    _RESOLVED.clear()


def unregister(name: str) -> None:
    """Remove a backend (tests and plug-ins)."""
    _BACKENDS.pop(name, None)
    _RESOLVED.clear()


def backends() -> tuple[Backend, ...]:
    """All of them, best first, whether this machine can run them or not."""
    return tuple(_BACKENDS.values())


def known() -> str:
    """Names, for messages."""
    return ", ".join(_BACKENDS) or "none"


def invariant_names() -> str:
    """Names of the backends that support batch invariance and run here."""
    return ", ".join(b.name for b in backends() if b.supports_batch_invariance() and b.available() is None)


def resolve(name: str = "", device: str = "cpu") -> Backend:
    """The backend called `name`, or the best for `device`.

    Raises:
        UsageError: unknown name, wrong device, or no batch invariance under the flag.
        BackendUnavailableError: this machine cannot run it.
    """
    key = (name, device, os.environ.get(FLAG))
    found = _RESOLVED.get(key)
    if found is None:
        found = _RESOLVED[key] = _named(name, device) if name else _best(device)
    return found


def _named(name: str, device: str) -> Backend:
    backend = _BACKENDS.get(name)
    if backend is None:
        raise UsageError("a backend by name", found=repr(name), allowed=known())
    if batch_invariant() and not backend.supports_batch_invariance():
        raise UsageError(
            f"backend {name} under {FLAG}=1",
            found=f"{name} does not support batch invariance",
            allowed=invariant_names(),
            fix=f"choose one of these, or unset {FLAG}",
        )
    if backend.device != device:
        raise UsageError(
            f"backend {name} for tensors on {device}",
            found=f"it computes on {backend.device}",
            allowed=", ".join(b.name for b in backends() if b.device == device) or "no backend",
        )
    reason = backend.available()
    if reason is not None:
        raise BackendUnavailableError(f"backend {name} is not available: {reason}")
    return backend


def _best(device: str) -> Backend:
    passed_over: list[str] = []
    for backend in backends():
        if backend.device != device:
            continue
        reason = backend.available()
        if reason is None and batch_invariant() and not backend.supports_batch_invariance():
            reason = "does not support batch invariance"
        if reason is None:
            if passed_over:
                _LOG.warning("using backend %s (%s)", backend.name, "; ".join(passed_over))
            return backend
        passed_over.append(f"{backend.name}: {reason}")
    raise BackendUnavailableError(f"no backend for {device}: {'; '.join(passed_over) or 'none registered'}")


register(CpuBackend())
register(ReferenceBackend())
register(TorchBackend())
