"""Public kernels, as found on the running machine: PyTorch promises no batch invariance, so they are observed.

A divergence here is news about the machine's libraries (oneDNN, MKL, cuBLAS, ATen's vector code), not a failure:
`samebits run torch_ops --strict` makes it one. On a GPU every case runs a second time there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import samebits
from samebits import Subject
from samebits_suites.constructed import chained_mm
from samebits_suites.profile import by_profile

if TYPE_CHECKING:
    from torch import Tensor

suite = samebits.Suite(
    "torch_ops", summary="PyTorch's own kernels, observed: which of them are batch invariant here"
)

CHECKS = by_profile(
    ("batch-size", "solo", "permutation", "duplicates", "neighbours", "layout"),
    ("batch-size", "solo", "permutation", "duplicates", "neighbours", "repeat", "layout"),
)
"""What tells kinds of divergence apart; the rest hold for pure functions of PyTorch."""
ROWS = 16


def no_device(device: str) -> Callable[[], str | None]:
    """For `needs=`: asked in the worker, never in the parent."""

    def reason() -> str | None:
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            return "no CUDA device"
        return None

    return reason


def _mm(op: str, seed: int, n: int, k: int, dtype: str, device: str) -> Subject:
    import torch
    from torch.nn import functional as F

    o = samebits.inputs.gemm(ROWS, n, k, dtype=dtype, seed=seed, device=device)
    bias = torch.linspace(-1, 1, n, device=device).to(o.x.dtype)
    kernels: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "linear": lambda x, w: F.linear(x, w, bias),
        "mm": lambda x, w: x @ w.T,
        # One small GEMM a row: the batch is bmm's own.
        "bmm": lambda x, w: torch.bmm(x[:, None], w.T.expand(x.shape[0], -1, -1))[:, 0],
    }
    kernel = kernels[op]
    x, w = o.reordered()
    return Subject(
        lambda rows: kernel(rows, o.w),
        (o.x,),
        name=f"{op} {n}x{k} {dtype} on {device}",
        reordered=(lambda rows: kernel(rows, w), (x,)),
        addends=k,
    )


def linear(seed: int, n: int, k: int, dtype: str, device: str) -> Subject:
    """`F.linear` with a bias."""
    return _mm("linear", seed, n, k, dtype, device)


def mm(seed: int, n: int, k: int, dtype: str, device: str) -> Subject:
    """`x @ w.T`."""
    return _mm("mm", seed, n, k, dtype, device)


def bmm(seed: int, n: int, k: int, dtype: str, device: str) -> Subject:
    """`torch.bmm` with one row a matrix."""
    return _mm("bmm", seed, n, k, dtype, device)


def conv2d(seed: int, channels: int, dtype: str, device: str) -> Subject:
    """`F.conv2d`, 3x3: the batch is the number of pictures."""
    import torch
    from torch.nn import functional as F

    g = torch.Generator().manual_seed(seed)
    x = torch.randn(8, channels, 14, 14, generator=g).to(device, getattr(torch, dtype))
    w = torch.randn(channels, channels, 3, 3, generator=g).to(device, getattr(torch, dtype))
    return Subject(
        lambda x: F.conv2d(x, w, padding=1),
        (x,),
        name=f"conv2d {channels} {dtype} on {device}",
        addends=9 * channels,
    )


def attention(seed: int, heads: int, length: int, dtype: str, device: str) -> Subject:
    """`F.scaled_dot_product_attention`, one query a row over its own keys and values."""
    import torch
    from torch.nn import functional as F

    g = torch.Generator().manual_seed(seed)
    shapes = [(16, heads, 1, 64), (16, heads, length, 64), (16, heads, length, 64)]
    q, k, v = (torch.randn(s, generator=g).to(device, getattr(torch, dtype)) for s in shapes)
    return Subject(
        F.scaled_dot_product_attention,
        (q, k, v),
        name=f"sdpa {heads} heads, {length} keys, {dtype} on {device}",
        addends=length,
    )


def queries(seed: int, dtype: str, device: str) -> Subject:
    """The same, the rows being queries that share keys and values: what prefix caching relies on."""
    import torch
    from torch.nn import functional as F

    g = torch.Generator().manual_seed(seed)
    q = torch.randn(ROWS, 256, generator=g).to(device, getattr(torch, dtype))
    k, v = (torch.randn(1, 4, 128, 64, generator=g).to(device, getattr(torch, dtype)) for _ in range(2))

    def kernel(q: Tensor) -> Tensor:
        split = q.reshape(1, -1, 4, 64).transpose(1, 2)
        return F.scaled_dot_product_attention(split, k, v).transpose(1, 2).reshape(-1, 256)

    return Subject(kernel, (q,), name=f"sdpa, queries of one sequence, {dtype} on {device}", addends=128)


def row_op(seed: int, op: str, width: int, dtype: str, device: str) -> Subject:
    """Norms, softmax, activations, sums and topk over the last dimension."""
    import torch
    from torch.nn import functional as F

    kernels: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
        "layer_norm": lambda x: F.layer_norm(x, (width,)),
        "rms_norm": lambda x: F.rms_norm(x, (width,)),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "sum": lambda x: x.sum(-1),
        "mean": lambda x: x.mean(-1),
        "cumsum": lambda x: x.cumsum(-1),
        "topk": lambda x: tuple(x.topk(8, dim=-1)),
        "silu": F.silu,
        "gelu": F.gelu,
        "exp": torch.exp,
    }
    kernel = kernels[op]
    x = samebits.inputs.reduction(ROWS, width, dtype=dtype, seed=seed, device=device)
    if op in ("softmax", "log_softmax", "silu", "gelu", "exp"):
        x = torch.randn(ROWS, width, generator=torch.Generator().manual_seed(seed)).to(x.device, x.dtype)
    if op == "topk":
        x = (x.float() * 2).round().to(x.dtype)  # ties, as a router has them
    return Subject(kernel, (x,), name=f"{op} {width} {dtype} on {device}")


def split_by_m(seed: int, device: str) -> Subject:
    """The control: K is split in two from M = 7 on, in element-wise arithmetic that every machine agrees on."""
    o = samebits.inputs.gemm(16, 256, 64, dtype="float32", seed=seed, device=device)
    return Subject(
        lambda x: chained_mm(x, o.w, 2 if x.shape[0] >= 7 else 1),
        (o.x,),
        name=f"split-K chosen by M on {device}",
        addends=64,
        derive=False,
    )


_FLOATS = ("float32", "bfloat16")
_ROW_OPS = (
    "layer_norm",
    "rms_norm",
    "softmax",
    "log_softmax",
    "sum",
    "mean",
    "cumsum",
    "topk",
    "silu",
    "gelu",
    "exp",
)

for _device in ("cpu", "cuda"):
    _most = by_profile(32, 1024) if _device == "cpu" else by_profile(512, 4096)
    _options: dict[str, Any] = {
        "checks": CHECKS,
        "max_batch": _most,
        "needs": no_device(_device),
        "device": [_device],
    }
    for _op in (linear, mm):
        suite.case(expect="observed", n=(256, 1000), k=(512, 4096), dtype=_FLOATS, only=lambda n, k, **_: (
            (n == 256) == (k == 512)), **_options)(_op)  # fmt: skip
    suite.case(expect="observed", n=(256,), k=(512,), dtype=_FLOATS, **_options)(bmm)
    suite.case(expect="observed", channels=(16,), dtype=_FLOATS, **{**_options, "max_batch": 32})(conv2d)
    # On an H200 (torch 2.11) SDPA dies of misaligned addresses where a row input starts 4 bytes further.
    _aligned = {**_options, "checks": [c for c in CHECKS if c != "layout"]}
    suite.case(expect="observed", heads=(4,), length=(100,), dtype=_FLOATS, **_aligned)(attention)
    suite.case(expect="observed", dtype=_FLOATS, **_aligned)(queries)
    suite.case(expect="observed", op=_ROW_OPS, width=(1007,), dtype=_FLOATS, **_options)(row_op)
    suite.case(expect="observed", op=("sum", "softmax"), width=(8192,), dtype=("float32",), **_options)(row_op)
    suite.control(**{**_options, "max_batch": 16})(split_by_m)
