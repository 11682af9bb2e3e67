"""Could a change of the accumulation order show, on this data, on this machine?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = 4
"""Groups of columns whose partial sums are looked at."""
SAMPLED = 64
"""Columns whose addends are looked at, to know whether any sum of them has to be rounded."""


@dataclass(frozen=True)
class Sensitivity:
    """What was measured."""

    share: float | None
    """Share of output elements that show a reordering; None: not a reduction, or not measurable."""
    elements: int
    """Output elements looked at, over all rows."""
    addends: int | None
    """Length of the reduction, where known; an estimate is a lower bound."""
    how: str
    """How it was measured, or why not."""


def sensitivity(
    fn: Callable[..., Any],
    rows: Sequence[Tensor],
    *,
    reordered: tuple[Callable[..., Any], Sequence[Tensor]] | None = None,
    addends: int | None = None,
) -> Sensitivity:
    """Measure which output elements are order-sensitive.

    Args:
        fn: the kernel.
        rows: its row inputs [R, ...].
        reordered: the same function and rows with the reduction axis permuted. Its bits are compared with
            `fn`'s: an element that differs is order-sensitive, beyond doubt.
        addends: length of the reduction, if the author knows it.

    Without `reordered`, and for a kernel of one floating-point row input, the columns are masked in four groups:
    where the partial sums are so large that their rounding in fp32 reaches half a unit in the last place of the
    output, a reordering can show; unless every sum of the addends is exact, as those of small integers are. That
    is an estimate, and says so.
    """
    import torch

    with torch.no_grad():
        # Cloned: a kernel that writes to its rows must not change the caller's.
        y = _outputs(fn(*(t.clone() for t in rows)))
        total = sum(t.numel() for t in y)
        if reordered is not None:
            other = _outputs(reordered[0](*(t.clone() for t in reordered[1])))
            return _measured(y, other, total, addends)
        if len(rows) != 1 or not rows[0].dtype.is_floating_point or rows[0].dim() < 2:
            return Sensitivity(
                None, total, addends, "not measured: no reordered twin, several or integer row inputs"
            )
        return _masked(fn, rows[0], y, total, addends)


def _outputs(y: Any) -> tuple[Tensor, ...]:
    import torch

    return (y,) if isinstance(y, torch.Tensor) else tuple(y)


def _measured(y: tuple[Tensor, ...], other: tuple[Tensor, ...], total: int, addends: int | None) -> Sensitivity:
    from samebits.engine.bits import differing_rows

    changed = sum(int(differing_rows(a, b).sum()) for a, b in zip(y, other, strict=True))
    share = changed / max(1, total)
    how = f"{changed:,} of {total:,} output elements change when the reduction axis is permuted"
    return Sensitivity(share, total, addends, how)


def _masked(
    fn: Callable[..., Any], x: Tensor, y: tuple[Tensor, ...], total: int, addends: int | None
) -> Sensitivity:
    import torch

    k = x.shape[-1]
    unmeasured = "not measured: "
    if len(y) != 1 or not y[0].dtype.is_floating_point or y[0].element_size() < 2:
        return Sensitivity(None, total, addends, unmeasured + "several or integer outputs, no reordered twin")
    groups = min(GROUPS, k)
    partial = []
    try:
        for i in range(groups):
            mask = torch.arange(k, device=x.device) * groups // k == i
            partial.append(_outputs(fn(torch.where(mask, x, torch.zeros_like(x))))[0])
    except Exception as error:  # a kernel may refuse zeros; then nothing is known of its sums
        return Sensitivity(None, total, addends, f"{unmeasured}masked rows raise {type(error).__name__}")
    whole = y[0]
    same = [(p == whole) | (p.isnan() & whole.isnan()) for p in partial]
    if groups > 1 and all(bool(s.all()) for s in same):
        return Sensitivity(0.0, total, addends, "no output element changes when columns of the rows are zeroed")
    if whole.shape == x.shape:
        masks = torch.arange(k, device=x.device) * groups // k
        if all(bool(s[..., masks == i].all()) for i, s in enumerate(same)):
            return Sensitivity(None, total, None, "element-wise: there is no sum to reorder")
    parts = torch.stack([p.double() for p in partial])
    size = parts.abs().sum(0)
    eps = torch.finfo(whole.dtype).eps
    rest = (parts.sum(0) - whole.double()).abs()
    finite = torch.isfinite(size) & torch.isfinite(whole.double())
    # Sums of k addends in fp32 err by more than the rounding of their result, and the addends may have cancelled:
    # what is not linear misses by far more than a few hundredths of the row's largest part.
    scale = torch.where(finite, size, 0).reshape(size.shape[0], -1).amax(1).reshape(-1, *[1] * (size.dim() - 1))
    if not bool(finite.any()) or not bool((rest <= max(8 * eps, 2.0**-12) * scale)[finite].all()):
        return Sensitivity(None, total, addends, unmeasured + "not linear in its rows, no reordered twin")
    live = (parts != 0).sum(0)
    digits = 24 if whole.dtype != torch.float64 else 53
    fp32 = 2.0**-digits
    ulp = torch.nextafter(whole.abs(), torch.full_like(whole, torch.inf)).double() - whole.double().abs()
    # A partial sum that overflows a short output type is larger than any that does not.
    sees = torch.isfinite(whole) & ~size.isnan() & (live >= 2) & (parts.abs().amax(0) * fp32 >= ulp / 2)
    large = int(sees.sum())
    if large:
        sees &= _rounds(fn, x, whole, digits)
    share = (seen := int(sees.sum())) / max(1, total)
    known = addends if addends is not None else (int(live.max()) if k <= groups else None)
    how = f"estimated by masking columns: {100 * share:.2g} % of {total:,} output elements can show it"
    if large and not seen:
        how = f"every sum of the addends is exact in {digits} bits, in any order (seen on up to {SAMPLED} columns)"
    return Sensitivity(share, total, known, how)


def _rounds(fn: Callable[..., Any], x: Tensor, whole: Tensor, digits: int) -> Tensor:
    """Which elements of `whole` [R, ...] have addends that no accumulator of `digits` bits adds exactly.

    A kernel that is linear in its row gives weights away: y(e_k) is column k, and the lowest bit of x * w is the
    product of theirs. Where the absolute addends sum to less than 2**digits of the lowest bit among them, every
    partial sum in every order is exact. Seen on 64 columns: their sum is scaled up to all. Everything counts as
    rounded where that is not known: more than two dimensions, 8-bit rows (their units keep fewer bits).
    """
    import torch

    everything = torch.ones_like(whole, dtype=torch.bool)
    if x.dim() != 2 or x.element_size() < 2:
        return everything
    k = x.shape[1]
    count = min(SAMPLED, k)
    columns = torch.randperm(k, generator=torch.Generator().manual_seed(3))[:count].to(x.device)
    units = torch.zeros(count, k, dtype=x.dtype, device=x.device)
    units[torch.arange(count, device=x.device), columns] = 1
    try:
        w = _outputs(fn(units))[0].double()
    except Exception:  # a kernel may refuse unit rows; then its addends are not known
        return everything
    if w.shape[1:] != whole.shape[1:] or not bool(torch.isfinite(w).all()):
        return everything
    a, w = x[:, columns].double().nan_to_num(), w.reshape(count, -1)
    low_a, low_w = _lowest_bit(a), _lowest_bit(w)
    lowest = torch.full((x.shape[0], w.shape[1]), torch.inf, dtype=torch.float64, device=x.device)
    for i in range(count):
        lowest = torch.minimum(lowest, low_a[:, i, None] + low_w[i])
    size = (a.abs() @ w.abs()) * (k / count)
    # An element all of whose sampled addends are zero is known by none of them.
    return ((size.log2() > lowest + digits) | lowest.isinf()).reshape(whole.shape)


def _lowest_bit(values: Tensor) -> Tensor:
    """log2 of the lowest bit that is set in each float64; inf for a zero."""
    import torch

    mantissa, exponent = torch.frexp(values)
    digits = (mantissa * 2.0**53).to(torch.int64)
    lowest = (digits & -digits).double().log2() + exponent - 53
    return torch.where(values == 0, torch.inf, lowest)
