"""Rows to NVFP4, plain and fused with the activation that precedes it: element-wise, and yet a place for faults.

A row's outputs are its packed data, its plain block scales and the number of bytes set in the padding of the
swizzled buffer that it shares, which must be none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import samebits
from samebits import Subject
from samebits_suites import kernels
from samebits_suites.profile import by_profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

DTYPES = ("bfloat16", "float16")
ACTIVATIONS = ("silu", "swiglustep")
SIZES = (16, 48, 1008, 4096)
"""K, or I for the fused ones: one block; three, in one column of tiles; ragged; a model's."""
ROWS = 48
GLOBAL_SCALE = 24.0
"""Not a power of two, so that the scales have a rounding to get wrong."""
SHORT = ("batch-size", "solo", "permutation", "neighbours", "padding", "layout")

suite = samebits.Suite("quantise", summary="NVFP4 quantisation, and SiLU or SwigluStep fused with it")


def rows(seed: int, k: int, dtype: str) -> Tensor:
    """[ROWS, k]: wide-ranging, ordinary, saturating and exactly tied values, and blocks of zeros."""
    import torch

    kept = getattr(torch, dtype)
    half = ROWS // 2
    wide = samebits.inputs.reduction(half, k, dtype=dtype, seed=seed)
    exact = samebits.inputs.nvfp4_gemm(half, 1, k, seed=seed).activations(kept)
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0], dtype=kept)
    exact[1::4] = ties.repeat(k // 8 + 1)[:k] / GLOBAL_SCALE * 8
    exact[2::4, :16] = 0
    exact[3::4, -16:] *= -64
    return torch.cat([wide, exact])


def _subject(
    op: str, backend: str, name: str, x: Tensor, quantised: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Subject:
    import torch

    import samebits_kernels

    def kernel(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, buffer = quantised(x)
        m, columns = q.shape[0], q.shape[1] // 8
        scales = samebits_kernels.unswizzle_scales(buffer, m, columns).view(torch.uint8)
        stray = buffer.view(torch.uint8).count_nonzero() - scales.count_nonzero()
        return q, scales, stray.expand(m, 1).clone()

    return Subject(
        kernel, (x,), name=name, poisons=kernels.workspaces(kernel), **kernels.declared(op, backend)
    )  # fmt: skip


def quantise(seed: int, k: int, dtype: str, backend: str) -> Subject:
    """With a static global scale."""
    import torch

    import samebits_kernels

    scale = torch.tensor([GLOBAL_SCALE])
    return _subject(
        "quantise",
        backend,
        f"quantise K={k} {dtype} on {backend}",
        rows(seed, k, dtype),
        lambda x: samebits_kernels.quantise(x, scale, backend=backend),
    )


def activation_quantise(seed: int, i: int, activation: str, dtype: str, backend: str) -> Subject:
    """Rows are [gate, up]; the gates reach from deep in SiLU's tail to beyond SwigluStep's clamp."""
    import torch

    import samebits_kernels

    scale = torch.tensor([GLOBAL_SCALE])
    pairs = rows(seed, 2 * i, dtype)
    pairs = (pairs.float() / pairs.float().abs().amax(1, keepdim=True).clamp(min=1) * 24).to(pairs.dtype)
    return _subject(
        "activation_quantise",
        backend,
        f"{activation} + quantise I={i} {dtype} on {backend}",
        pairs,
        lambda x: samebits_kernels.activation_quantise(x, scale, activation, backend=backend),
    )


def dynamic_scale(seed: int, k: int) -> Subject:
    """The global scale is taken from the batch at hand: a row's bits depend on its neighbours' largest value."""
    import samebits_kernels

    def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = (samebits_kernels.E4M3_MAX * samebits_kernels.E2M1_MAX / x.float().abs().amax()).reshape(1)
        return samebits_kernels.quantise(x, scale, backend="reference")

    made = _subject("quantise", "reference", "scale of the whole tensor", rows(seed, k, "bfloat16"), quantised)
    return Subject(made.fn, made.rows, name=made.name, derive=False)


for _backend in kernels.BACKENDS:
    for _k in SIZES if _backend == "cpu" else by_profile(SIZES[1:2], SIZES):
        _options: dict[str, Any] = {
            "dtype": DTYPES,
            "backend": [_backend],
            "needs": kernels.needs(_backend),
            "checks": by_profile(SHORT, None),
            "max_batch": by_profile(129 if _k < 100 and _backend == "cpu" else 24, 1024),
        }
        suite.case(k=[_k], **_options)(quantise)
        if _k in by_profile((48, 1008), SIZES):
            suite.case(i=[_k], activation=ACTIVATIONS, **_options)(activation_quantise)
suite.case(
    name="every_check",
    k=[512],
    dtype=["bfloat16"],
    backend=["cpu"],
    needs=kernels.needs("cpu"),
    max_batch=by_profile(64, 1024),
)(quantise)
suite.control(k=[256], checks=["batch-size", "neighbours"], max_batch=32)(dynamic_scale)
