"""NVFP4 scaled-MM: the public grid, the edges of K, and layers of real models at small batches."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import samebits
from samebits import Subject
from samebits.engine.suite import FLAG
from samebits_suites import kernels
from samebits_suites.constructed import chained_mm
from samebits_suites.profile import by_profile, most_checks

if TYPE_CHECKING:
    from collections.abc import Mapping

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
SHORT = ("batch-size", "solo", "permutation", "neighbours", "padding", "out-contract")
"""The checks that say most in few launches, where one launch takes milliseconds."""
CONTROL = ("batch-size", "solo")
ROWS = 48
DTYPES = ("bfloat16", "float16")

suite = samebits.Suite(
    "scaled_mm", summary="NVFP4 scaled matrix product: packed rows, and bf16/fp16 rows through quantise"
)


def scaled_mm(seed: int, n: int, k: int, dtype: str, backend: str) -> Subject:
    """Rows are packed data [K/2] and plain block scales [K/16]; weights are prepared once."""
    import torch

    import samebits_kernels

    operands = samebits.inputs.nvfp4_gemm(ROWS, n, k, seed=seed)
    kept = getattr(torch, dtype)
    alpha = torch.tensor([operands.alpha])

    def made(weight: Weight, byte: int | None = None) -> Kernel:
        def kernel(a: Tensor, a_scale: Tensor, out: Tensor | None = None) -> Tensor:
            scale = samebits_kernels.swizzle_scales(a_scale)
            if byte is not None:
                scale = kernels.fill_scale_padding(scale, a.shape[0], k // 16, byte)
            b = weight.prepared()
            return samebits_kernels.scaled_mm(a, b, scale, None, alpha, kept, out=out, backend=backend)

        return kernel

    weight = Weight(operands.w, operands.w_scale, backend)
    kernel = made(weight)
    # The sum within a block is exact and one addition commutes: no order can show in fewer than three blocks.
    moved = operands.reordered() if k > 32 else None
    return Subject(
        kernel,
        (operands.x, operands.x_scale),
        name=f"scaled_mm N={n} K={k} {dtype} on {backend}",
        out=kernel,
        reordered=None if moved is None else (made(Weight(moved[2], moved[3], backend)), moved[:2]),
        addends=None if moved is None else k,
        poisons={"scale padding": lambda byte: made(weight, byte), **kernels.workspaces(kernel)},
        derive=False,
        **kernels.declared("scaled_mm", backend),
    )


def quantised_mm(seed: int, n: int, k: int, dtype: str, backend: str) -> Subject:
    """Rows are activations: quantised with a static global scale, then multiplied."""
    import torch

    import samebits_kernels

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
    twin = dataclasses.replace(operands, x=x, x_scale=x_scale)
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


def split_k(seed: int, n: int, k: int) -> Subject:
    """The same function in plain torch, with K split in four below M = 8."""
    import torch

    from samebits.inputs.nvfp4 import dequantise

    operands = samebits.inputs.nvfp4_gemm(ROWS, n, k, seed=seed)
    w = dequantise(operands.w, operands.w_scale).float()

    def kernel(a: Tensor, a_scale: Tensor) -> Tensor:
        splits = 4 if a.shape[0] < 8 else 1
        return (chained_mm(dequantise(a, a_scale).float(), w, splits) * operands.alpha).to(torch.bfloat16)

    return Subject(kernel, (operands.x, operands.x_scale), name="split K below M=8", addends=k, derive=False)


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
    first = (_n, _k) == (256, 4096)
    suite.case(
        name="public", n=[_n], k=[_k], dtype=DTYPES if first else by_profile(DTYPES[:1], DTYPES), backend=["cpu"],
        needs=kernels.needs("cpu"), checks=None if first else most_checks(), max_batch=by_profile(48, _m),
    )(scaled_mm)  # fmt: skip
suite.case(
    name="public", n=[by_profile(32, 320)], k=[by_profile(512, 2016)], dtype=DTYPES, backend=["reference"],
    checks=by_profile(SHORT, None), max_batch=by_profile(24, 333),
)(scaled_mm)  # fmt: skip
suite.case(
    name="edge", n=[24], k=EDGES, dtype=by_profile(DTYPES[:1], DTYPES), backend=["cpu"],
    needs=kernels.needs("cpu"), checks=by_profile(SHORT, None), max_batch=by_profile(129, 1024),
)(scaled_mm)  # fmt: skip
suite.case(
    name="edge", n=[24], k=by_profile(EDGES[2:3], EDGES), dtype=["bfloat16"], backend=["reference"],
    checks=by_profile(SHORT, None), max_batch=by_profile(32, 257),
)(scaled_mm)  # fmt: skip
for _n, _k in LAYERS:
    suite.case(
        name="layer", n=[_n], k=[_k], dtype=["bfloat16"], backend=["cpu"], needs=kernels.needs("cpu"),
        checks=by_profile(SHORT, None), max_batch=by_profile(5, 129),
    )(scaled_mm)  # fmt: skip
suite.case(
    name="quantised", n=[320], k=[2016], dtype=DTYPES, backend=["cpu"], needs=kernels.needs("cpu"),
    checks=most_checks(), max_batch=by_profile(48, 1024),
)(quantised_mm)  # fmt: skip
suite.case(
    name="quantised", n=[32], k=[256], dtype=["bfloat16"], backend=["reference"],
    checks=by_profile(SHORT, None), max_batch=by_profile(24, 257),
)(quantised_mm)  # fmt: skip

suite.control(
    name="free_mode", n=[256], k=[4096], dtype=["bfloat16"], backend=["cpu"], env={FLAG: "0"},
    needs=kernels.needs("cpu"), checks=CONTROL, max_batch=64,
)(scaled_mm)  # fmt: skip
suite.control(name="split_k", n=[16], k=[256], checks=CONTROL, max_batch=16)(split_k)


def shapes() -> Mapping[str, Any]:
    """For the search: what Hypothesis draws, smallest first."""
    from hypothesis import strategies as st

    return {
        "n": st.integers(1, 96),
        "k": st.integers(3, 64).map(lambda blocks: 16 * blocks),
        "dtype": st.sampled_from(DTYPES),
    }


@suite.explore(shapes, name="any_shape", max_batch=17, needs=kernels.needs("cpu"))
def any_shape(seed: int, n: int, k: int, dtype: str) -> Subject:
    """A shape nobody thought of: one that fails is shrunk to the smallest."""
    return scaled_mm(seed, n, k, dtype, "cpu")
