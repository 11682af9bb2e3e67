"""Operator `scaled_mm`: NVFP4 x NVFP4 -> bf16 or fp16 (vLLM: `cutlass_scaled_fp4_mm`).

`D[m, n] = cast(alpha * sum_k a[m, k] * sa[m, k/16] * b[n, k] * sb[n, k/16])`, fp32 accumulation, one multiply by
alpha in fp32, one rounding (to Inf beyond the range of fp16). A NaN scale makes the outputs of its row, or of its
column for B, NaN with the bits of `formats.NAN_BITS`, whatever the other operand holds. The sign bit of a scale
must be zero. M = 0 and N = 0 give empty tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from samebits_kernels.backends.registry import resolve
from samebits_kernels.errors import UsageError
from samebits_kernels.ops import arguments as check
from samebits_kernels.ops.allocate import empty
from samebits_kernels.ops.library import define


@dataclass(frozen=True)
class PreparedWeight:
    """Weights in the order that one backend's kernel reads them; made once by `prepare`.

    The results have the same bits as with the public layout.
    """

    packed: Tensor
    n: int
    k: int
    backend: str


def _check(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, alpha: Tensor, dtype: torch.dtype
) -> tuple[int, int]:
    check.same_device(a=a, b=b, block_scale_a=a_scale, block_scale_b=b_scale, alpha=alpha)
    check.out_dtype(dtype)
    k = check.packed("a", a)
    check.packed("b", b, k)
    check.scales("block_scale_a", a_scale, a.shape[0], k)
    check.scales("block_scale_b", b_scale, b.shape[0], k)
    check.scalar("alpha", alpha)
    return a.shape[0], b.shape[0]


def _fake(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alpha: Tensor,
    out_dtype: torch.dtype,
    backend: str = "",
) -> Tensor:
    return empty(_check(a, b, block_scale_a, block_scale_b, alpha, out_dtype), out_dtype, a.device)


def _real(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alpha: Tensor,
    out_dtype: torch.dtype,
    backend: str = "",
) -> Tensor:
    chosen = resolve(backend, a.device.type)
    d = empty(_check(a, b, block_scale_a, block_scale_b, alpha, out_dtype), out_dtype, a.device)
    chosen.scaled_mm(d, a, b, block_scale_a, block_scale_b, alpha)
    return d


def _fake_out(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alpha: Tensor,
    backend: str = "",
    *,
    out: Tensor,
) -> None:
    shape = _check(a, b, block_scale_a, block_scale_b, alpha, out.dtype)
    check.same_device(out=out, a=a)
    check.output("out", out, out.dtype, shape)


def _real_out(
    a: Tensor,
    b: Tensor,
    block_scale_a: Tensor,
    block_scale_b: Tensor,
    alpha: Tensor,
    backend: str = "",
    *,
    out: Tensor,
) -> None:
    chosen = resolve(backend, a.device.type)
    _fake_out(a, b, block_scale_a, block_scale_b, alpha, out=out)
    check.no_overlap(out, a=a, b=b, block_scale_a=block_scale_a, block_scale_b=block_scale_b, alpha=alpha)
    chosen.scaled_mm(out, a, b, block_scale_a, block_scale_b, alpha)


def _prepare_fake(b: Tensor, block_scale_b: Tensor, backend: str = "") -> Tensor:
    check.same_device(b=b, block_scale_b=block_scale_b)
    k = check.packed("b", b)
    check.scales("block_scale_b", block_scale_b, b.shape[0], k)
    size = resolve(backend, b.device.type).prepared_bytes(b.shape[0], k)
    return empty((size,), torch.uint8, b.device)


def _prepare(b: Tensor, block_scale_b: Tensor, backend: str = "") -> Tensor:
    packed = _prepare_fake(b, block_scale_b, backend)
    resolve(backend, b.device.type).prepare(packed, b, block_scale_b)
    return packed


def _prepared_check(
    a: Tensor, packed: Tensor, a_scale: Tensor, alpha: Tensor, n: int, dtype: torch.dtype, backend: str
) -> tuple[int, int]:
    check.same_device(a=a, packed=packed, block_scale_a=a_scale, alpha=alpha)
    check.out_dtype(dtype)
    k = check.packed("a", a)
    check.scales("block_scale_a", a_scale, a.shape[0], k)
    check.scalar("alpha", alpha)
    size = resolve(backend, a.device.type).prepared_bytes(n, k)
    check.contiguous(f"weights prepared for N = {n}, K = {k}", packed, torch.uint8, (size,))
    return a.shape[0], n


def _prepared_fake_out(
    a: Tensor, packed: Tensor, block_scale_a: Tensor, alpha: Tensor, backend: str = "", *, out: Tensor
) -> None:
    check.same_device(out=out, a=a)
    shape = _prepared_check(a, packed, block_scale_a, alpha, out.shape[-1], out.dtype, backend)
    check.output("out", out, out.dtype, shape)


def _prepared_out(
    a: Tensor, packed: Tensor, block_scale_a: Tensor, alpha: Tensor, backend: str = "", *, out: Tensor
) -> None:
    _prepared_fake_out(a, packed, block_scale_a, alpha, backend, out=out)
    check.no_overlap(out, a=a, b=packed, block_scale_a=block_scale_a, alpha=alpha)
    resolve(backend, a.device.type).scaled_mm_prepared(out, a, packed, block_scale_a, alpha)


def _prepared_fake(
    a: Tensor,
    packed: Tensor,
    block_scale_a: Tensor,
    alpha: Tensor,
    n: int,
    out_dtype: torch.dtype,
    backend: str = "",
) -> Tensor:
    shape = _prepared_check(a, packed, block_scale_a, alpha, n, out_dtype, backend)
    return empty(shape, out_dtype, a.device)


def _prepared(
    a: Tensor,
    packed: Tensor,
    block_scale_a: Tensor,
    alpha: Tensor,
    n: int,
    out_dtype: torch.dtype,
    backend: str = "",
) -> Tensor:
    d = _prepared_fake(a, packed, block_scale_a, alpha, n, out_dtype, backend)
    resolve(backend, a.device.type).scaled_mm_prepared(d, a, packed, block_scale_a, alpha)
    return d


_TENSORS = "Tensor a, Tensor b, Tensor block_scale_a, Tensor block_scale_b, Tensor alpha"
_PREPARED_TENSORS = "Tensor a, Tensor packed, Tensor block_scale_a, Tensor alpha"
_OP = define(f'scaled_mm({_TENSORS}, ScalarType out_dtype, str backend="") -> Tensor', _real, _fake)
_OUT = define(f'scaled_mm.out({_TENSORS}, str backend="", *, Tensor(a!) out) -> ()', _real_out, _fake_out)
_PREPARE = define('prepare(Tensor b, Tensor block_scale_b, str backend="") -> Tensor', _prepare, _prepare_fake)
_PREPARED = define(
    f'scaled_mm_prepared({_PREPARED_TENSORS}, SymInt n, ScalarType out_dtype, str backend="") -> Tensor',
    _prepared,
    _prepared_fake,
)
_PREPARED_OUT = define(
    f'scaled_mm_prepared.out({_PREPARED_TENSORS}, str backend="", *, Tensor(a!) out) -> ()',
    _prepared_out,
    _prepared_fake_out,
)


def prepare(b: Tensor, block_scale_b: Tensor, *, backend: str = "") -> PreparedWeight:
    """Repack weights once for `scaled_mm` (worth it at small M). Later changes to `b` are not seen.

    Args:
        b: uint8 [N, K/2].
        block_scale_b: swizzled e4m3 of N x K/16.
        backend: by name; "" is the best available. The result serves that backend only.
    """
    name = resolve(backend, b.device.type).name
    return PreparedWeight(_PREPARE(b, block_scale_b, name), b.shape[0], b.shape[1] * 2, name)


def scaled_mm(
    a: Tensor,
    b: Tensor | PreparedWeight,
    block_scale_a: Tensor,
    block_scale_b: Tensor | None,
    alpha: Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: Tensor | None = None,
    backend: str = "",
) -> Tensor:
    """NVFP4 matrix product.

    Args:
        a: uint8 [M, K/2], rows contiguous (any row stride).
        b: uint8 [N, K/2] (K-major weights), or what `prepare` returned.
        block_scale_a: swizzled e4m3 of M x K/16.
        block_scale_b: swizzled e4m3 of N x K/16; None for a prepared b.
        alpha: fp32 [1], `1 / (a_global_scale * b_global_scale)`.
        out_dtype: torch.bfloat16 (default) or torch.float16; with `out`, its dtype.
        out: [M, N] that receives the result; overlaps no input.
        backend: by name; "" is the best available.

    Raises:
        UsageError: an argument does not fit (see the message); nothing has been touched.
    """
    if out is not None and out_dtype not in {None, out.dtype}:
        raise UsageError("out has the dtype asked for", found=str(out.dtype), allowed=str(out_dtype))
    dtype = out_dtype or torch.bfloat16
    result: Tensor
    if isinstance(b, PreparedWeight):
        if backend not in {"", b.backend}:
            raise UsageError(f"backend {backend}", found=f"weights prepared for {b.backend}", allowed=b.backend)
        if out is None:
            result = _PREPARED(a, b.packed, block_scale_a, alpha, b.n, dtype, b.backend)
            return result
        _PREPARED_OUT(a, b.packed, block_scale_a, alpha, b.backend, out=out)
        return out
    if block_scale_b is None:
        raise UsageError("scales of b", found="None", allowed="a tensor, unless b is prepared")
    if out is None:
        result = _OP(a, b, block_scale_a, block_scale_b, alpha, dtype, backend)
        return result
    _OUT(a, b, block_scale_a, block_scale_b, alpha, backend, out=out)
    return out
