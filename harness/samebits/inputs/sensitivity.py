"""Could a change of the accumulation order show, on this data, on this machine?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = 4
"""Groups of columns whose partial sums are looked at."""


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
    output, a reordering can show. That is an estimate, and says so.
    """
    import torch

    with torch.no_grad():
        y = _outputs(fn(*rows))
        total = sum(t.numel() for t in y)
        if reordered is not None:
            other = _outputs(reordered[0](*reordered[1]))
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
    if whole.shape == x.shape:
        masks = torch.arange(k, device=x.device) * groups // k
        if all(
            bool(((p == whole) | (p.isnan() & whole.isnan()))[..., masks == i].all())
            for i, p in enumerate(partial)
        ):
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
    fp32 = 2.0**-24 if whole.dtype != torch.float64 else 2.0**-53
    ulp = torch.nextafter(whole.abs(), torch.full_like(whole, torch.inf)).double() - whole.double().abs()
    # A partial sum that overflows a short output type is larger than any that does not.
    sees = torch.isfinite(whole) & ~size.isnan() & (live >= 2) & (parts.abs().amax(0) * fp32 >= ulp / 2)
    share = float(sees.double().mean())
    known = addends if addends is not None else (int(live.max()) if k <= groups else None)
    return Sensitivity(
        share, total, known, f"estimated by masking columns: {share:.0%} of {total:,} output elements can show it"
    )
