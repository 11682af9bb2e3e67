"""NVFP4 scaled-MM: the public grid, the edges of K, and layers of real models at small batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import samebits
from samebits import Subject
from samebits_suites import kernels
from samebits_suites.profile import by_profile

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.subject import Kernel

PUBLIC = (
    (256, 128, 8192), (512, 256, 8192), (256, 256, 4096), (241, 160, 4096), (401, 352, 3968), (333, 320, 2016),
    (287, 96, 8192),
)  # fmt: skip
"""(M, N, K) of vLLM's tests; M is the largest batch of the nightly profile."""
EDGES = (16, 32, 48, 64)
"""K of one scale block up to one block of the swizzled layout."""
LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (7168, 2048), (2048, 7168), (8192, 8192))
"""(N, K) of real models."""
ROWS = 48
DTYPES = ("bfloat16", "float16")

suite = samebits.Suite("scaled_mm", summary="NVFP4 scaled matrix product: packed rows, and bf16/fp16 rows through quantise")


def scaled_mm(seed: int, n: int, k: int, dtype: str, backend: str) -> Subject:
    """Rows are packed data [K/2] and plain block scales [K/16]; weights are prepared once."""
    import samebits_kernels
    import torch

    operands = samebits.inputs.nvfp4_gemm(ROWS, n, k, seed=seed)
    kept = getattr(torch, dtype)
    alpha = torch.tensor([operands.alpha])

    def made(weight: Weight, byte: int | None = None) -> Kernel:
        def kernel(a: Tensor, a_scale: Tensor, out: Tensor | None = None) -> Tensor:
            scale = samebits_kernels.swizzle_scales(a_scale)
            if byte is not None:
                scale = kernels.fill_scale_padding(scale, *a_scale.shape, byte)
            b = weight.prepared()
            return samebits_kernels.scaled_mm(a, b, scale, None, alpha, kept, out=out, backend=backend)

        return kernel

    weight = Weight(operands.w, operands.w_scale, backend)
    kernel = made(weight)
    x, x_scale, w, w_scale = operands.reordered()
    return Subject(
        kernel,
        (operands.x, operands.x_scale),
        name=f"scaled_mm N={n} K={k} {dtype} on {backend}",
        out=kernel,
        reordered=(made(Weight(w, w_scale, backend)), (x, x_scale)),
        addends=k,
        poisons={"scale padding": lambda byte: made(weight, byte), **kernels.workspaces(kernel)},
        derive=False,
        **kernels.declared("scaled_mm", backend),
    )


def quantised_mm(seed: int, n: int, k: int, dtype: str, backend: str) -> Subject:
    """Rows are activations: quantised with a static global scale, then multiplied."""
    import samebits_kernels
    import torch

    operands = samebits.inputs.nvfp4_gemm(ROWS, n, k, seed=seed)
    kept = getattr(torch, dtype)
    alpha, one = torch.tensor([operands.alpha]), torch.ones(1)

    def made(weight: Weight, byte: int | None = None) -> Kernel:
        def kernel(x: Tensor, out: Tensor | None = None) -> Tensor:
            a, scale = samebits_kernels.quantise(x, one, backend=backend)
            if byte is not None:
                scale = kernels.fill_scale_padding(scale, x.shape[0], k // 16, byte)
            b = weight.prepared()
            return samebits_kernels.scaled_mm(a, b, scale, None, alpha, kept, out=out, backend=backend)

        return kernel

    weight = Weight(operands.w, operands.w_scale, backend)
    kernel = made(weight)
    x, x_scale, w, w_scale = operands.reordered()
    twin = samebits.inputs.Nvfp4Operands(x, x_scale, w, w_scale, operands.alpha, seed)
    return Subject(
        kernel,
        (operands.activations(kept),),
        name=f"quantise + scaled_mm N={n} K={k} {dtype} on {backend}",
        out=kernel,
        reordered=(made(Weight(w, w_scale, backend)), (twin.activations(kept),)),
        addends=k,
        poisons={"scale padding": lambda byte: made(weight, byte), **kernels.workspaces(kernel)},
        **kernels.declared("scaled_mm", backend),
    )


class Weight:
    """Weights with plain scales, prepared for a backend when first needed: a twin may never run."""

    def __init__(self, packed: Tensor, scale: Tensor, backend: str) -> None:
        self._packed, self._scale, self._backend = packed, scale, backend
        self._prepared: Any = None

    def prepared(self) -> Any:
        """`samebits_kernels.PreparedWeight`."""
        import samebits_kernels

        if self._prepared is None:
            scale = samebits_kernels.swizzle_scales(self._scale)
            self._prepared = samebits_kernels.prepare(self._packed, scale, backend=self._backend)
        return self._prepared


for _m, _n, _k in PUBLIC:
    suite.case(
        name="public", n=[_n], k=[_k], dtype=DTYPES, backend=["cpu"],
        needs=kernels.needs("cpu"), max_batch=by_profile(64, _m),
    )(scaled_mm)  # fmt: skip
