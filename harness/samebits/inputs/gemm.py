"""Operands of x @ w.T whose sums show every change of their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.errors import UsageError
from samebits.inputs.mirror import mirror

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DESIGNS = ("mixed", "stratified", "ordinary")
LIFELIKE = ("outliers", "sparse", "subnormal", "signed-zeros")
"""Rows as models make them: no order need show, but other paths are taken (flush to zero, skipped zeros)."""
KINDS = DESIGNS + LIFELIKE
EXPONENTS = (12, 3, -3, -9)
"""Bands of the stratified design: powers of two of the row's magnitudes, one of each in every four places."""
FP8_BANDS = ((104, 126), (72, 104), (40, 72), (8, 40))
"""The same for fp8, as codes of e4m3: 48..448 down to 2**-6."""
JITTER = 1
"""Powers of two by which a place may lie beside its band."""


@dataclass(frozen=True)
class GemmOperands:
    """x [rows, k] and w [n, k] of y = x @ w.T."""

    x: Tensor
    w: Tensor
    order: Tensor
    """int64 [k]: the columns, each followed by its negative."""

    def reordered(self) -> tuple[Tensor, Tensor]:
        """(x, w) with the reduction axis permuted alike: the same function of the reals, another order."""
        return pick(self.x, self.order), pick(self.w, self.order)


def pick(t: Tensor, order: Tensor) -> Tensor:
    """Columns of a matrix; by their bytes, since index_select knows no fp8."""
    import torch

    if t.element_size() == 1 and t.dtype.is_floating_point:
        return t.view(torch.uint8).index_select(1, order).view(t.dtype)
    return t.index_select(1, order)


def gemm(
    rows: int,
    n: int,
    k: int,
    *,
    dtype: torch.dtype | str = "bfloat16",
    seed: int = 0,
    device: torch.device | str = "cpu",
    kind: str = "mixed",
) -> GemmOperands:
    """Operands for a GEMM, exactly representable in `dtype`.

    Args:
        rows, n, k: x is [rows, k], w is [n, k].
        dtype: float64, float32, bfloat16, float16 or float8_e4m3fn.
        seed: decides everything.
        device: where they end up; they are made on the CPU.
        kind: "stratified" rows cancel over a wide range of exponents; "ordinary" ones are randn, which
            element-wise and epilogue faults need; "mixed" alternates them over the same weights. "outliers" has
            one column in 64 at 64 times the rest, "sparse" nine zeros in ten, "subnormal" and "signed-zeros" are
            what they say; all four over ordinary weights.

    Raises:
        UsageError: an unknown kind, or a size below 1.
    """
    import torch

    check(kind, KINDS, rows=rows, n=n, k=k)
    kept = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    g = torch.Generator().manual_seed(seed)
    m = mirror(k, len(EXPONENTS), g)
    place, sign = m.source.clamp(min=0), m.sign.double()
    originals = max(1, m.originals)
    if kept.itemsize == 1:
        # Three mantissa bits make products of few bits: both operands need the bands, and the whole format.
        band = m.original_bands
        x0, w0 = _fp8_magnitudes(rows, band, g), _fp8_magnitudes(n, band, g)
        scale = torch.ones(k, dtype=torch.float64)
    else:
        jitter = torch.randint(-JITTER, JITTER + 1, (originals,), generator=g)[place]
        scale = torch.ldexp(torch.ones(k, dtype=torch.float64), torch.tensor(EXPONENTS)[m.band] + jitter)
        largest = m.original_bands == 0
        w0 = _round(torch.randn(n, originals, generator=g, dtype=torch.float64), kept)
        x0 = _round(torch.randn(rows, originals, generator=g, dtype=torch.float64), kept)
        # Products of one sign: see `mirror`.
        x0, w0 = torch.where(largest, x0.abs(), x0), torch.where(largest, w0.abs(), w0)
    w = w0[:, place] * (m.sign != 0)
    stratified = x0[:, place] * sign * scale
    ordinary = torch.randn(rows, k, generator=g, dtype=torch.float64)
    if kind not in ("mixed", "stratified"):
        w = torch.randn(n, k, generator=g, dtype=torch.float64)
    if kind in LIFELIKE:
        x = _lifelike(kind, ordinary, kept, g)
        return GemmOperands(x.to(kept).to(device), w.to(kept).to(device), m.paired().to(device))
    alternate = torch.arange(rows)[:, None] % 2 == 0
    x = {"stratified": stratified, "ordinary": ordinary}.get(kind, torch.where(alternate, stratified, ordinary))
    return GemmOperands(x.to(kept).to(device), w.to(kept).to(device), m.paired().to(device))


def _lifelike(kind: str, x: Tensor, dtype: torch.dtype, g: torch.Generator) -> Tensor:
    """float64 [rows, k] of one of LIFELIKE, from ordinary `x`."""
    import torch

    if kind == "outliers":
        channel = torch.randperm(x.shape[1], generator=g)[: max(1, x.shape[1] // 64)]
        factor = torch.ones(x.shape[1], dtype=x.dtype).index_fill(0, channel, 64)
        return x * factor
    if kind == "sparse":
        return x * (torch.rand(x.shape, generator=g) < 0.1)
    if kind == "subnormal":
        return x.clamp(-4, 4) / 4 * torch.finfo(dtype).smallest_normal
    return torch.where(torch.rand(x.shape, generator=g) < 0.5, x, torch.zeros_like(x).copysign(x))


def _fp8_magnitudes(rows: int, band: Tensor, g: torch.Generator) -> Tensor:
    """float64 [rows, originals] of e4m3 values, each from its band of codes; the largest are positive."""
    import torch

    low = torch.tensor([b[0] for b in FP8_BANDS])[band]
    high = torch.tensor([b[1] for b in FP8_BANDS])[band]
    code = low + (torch.rand(rows, len(band), generator=g) * (high - low)).floor().long()
    sign = torch.randint(0, 2, code.shape, generator=g) * 128 * (band > 0)
    return (code + sign).to(torch.uint8).view(torch.float8_e4m3fn).double()


def _round(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Through `dtype` and back, so that scaling by powers of two stays exact."""
    return t.to(dtype).double()


def check(kind: str, kinds: tuple[str, ...], **sizes: int) -> None:
    """Refuse unknown kinds and sizes below 1."""
    if kind not in kinds:
        raise UsageError("a kind of inputs", found=repr(kind), allowed=", ".join(kinds))
    for name, value in sizes.items():
        if value < 1:
            raise UsageError(f"{name} must be positive", found=str(value), allowed=">= 1")
