"""What the suites of our own kernels share: whether a backend runs here, and what they declare to the harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.subject import Kernel

BACKENDS = ("cpu", "reference")
"""Those that promise batch invariance on the CPU."""


def needs(backend: str) -> Callable[[], str | None]:
    """For `needs=`: why this machine cannot run the backend, asked in the worker."""

    def reason() -> str | None:
        import samebits_kernels

        found = {b.name: b for b in samebits_kernels.backends()}.get(backend)
        if found is None:
            return f"no backend {backend}"
        why = found.available()
        return None if why is None else f"backend {backend}: {why}"

    return reason


def declared(op: str, backend: str) -> dict[str, Any]:
    """`contract=` and `probe=` of a subject."""
    import samebits_kernels

    return {
        "contract": samebits_kernels.contract(op, backend),
        "probe": lambda: samebits_kernels.probe(backend),
    }


def workspaces(kernel: Kernel) -> Mapping[str, Callable[[int], Kernel]]:
    """For `poisons=`: outputs and workspaces of our operators hold a byte before each launch."""
    import samebits_kernels

    def with_byte(byte: int) -> Kernel:
        def run(*rows: Tensor) -> Any:
            with samebits_kernels.poisoned(byte):
                return kernel(*rows)

        return run

    return {"workspaces": with_byte}


def fill_scale_padding(buffer: Tensor, rows: int, columns: int, byte: int) -> Tensor:
    """A swizzled buffer of rows x columns scales whose padding holds `byte`."""
    import torch

    import samebits_kernels

    real = samebits_kernels.swizzle_scales(torch.ones(rows, columns, dtype=torch.uint8, device=buffer.device))
    filled = torch.where(real.view(torch.uint8) == 1, buffer.view(torch.uint8), byte)
    return filled.to(torch.uint8).view(buffer.dtype)
