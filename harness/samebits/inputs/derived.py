"""Rows made from somebody else's rows, for a kernel whose weights are not ours to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

PER_KIND = 8
"""Rows of each kind that are added."""
WIDE = (6, 2, -2, -6)
"""Powers of two of the wide-range rows, by column: products of every size meet in each sum."""
OUTPUTS = 64
"""Outputs that a null-space row is made to cancel on."""
LARGEST_K = 4096
"""Columns beyond which the weights are not learned: it takes one launch per 64 of them."""
LEARN = 64
"""Rows of a launch that learns weights."""


def derive(rows: Sequence[Tensor], *, seed: int = 0, fn: Callable[..., Any] | None = None) -> tuple[Tensor, ...]:
    """More rows of the same shapes and dtypes, in which rounding shows.

    Args:
        rows: the row inputs [R, ...], sharing dimension 0.
        seed: decides every random choice.
        fn: the kernel, to learn its weights if it is linear in its only row input.

    Returns:
        As many tensors as `rows`, sharing dimension 0; empty where nothing can be derived. The first
        floating-point input varies; the others, routing and integers among them, are drawn from the given rows.
        Kinds: *wide* rows are given rows times powers of two by column; *null-space* rows are projected so that
        64 chosen outputs cancel almost fully, which leaves their rounding; *ordinary* rows are randn.
    """
    import torch

    at = next((i for i, t in enumerate(rows) if t.dtype.is_floating_point and t.dim() >= 2), None)
    if at is None or rows[at].element_size() < 2 or rows[at].shape[-1] < 4:
        return ()
    g = torch.Generator().manual_seed(seed)
    base = rows[at]
    pick = torch.arange(PER_KIND) % base.shape[0]
    chosen = base.index_select(0, pick.to(base.device)).cpu().double()
    plain = torch.randn(chosen.shape, generator=g, dtype=torch.float64)
    order = torch.arange(base.shape[-1]) % len(WIDE)
    factor = torch.ldexp(torch.ones(base.shape[-1], dtype=torch.float64), torch.tensor(WIDE)[order])
    limit = torch.finfo(base.dtype).max / 4
    kinds = [(chosen * factor).clamp(-limit, limit), plain]
    if fn is not None and len(rows) == 1 and base.dim() == 2:
        hidden = null_space(fn, base, plain * factor.roll(1))
        kinds += [hidden] if hidden is not None else []
    made = torch.cat(kinds).to(base.dtype).to(base.device)
    source = torch.arange(made.shape[0]) % base.shape[0]
    return tuple(made if i == at else t.index_select(0, source.to(t.device)) for i, t in enumerate(rows))


def null_space(fn: Callable[..., Any], like: Tensor, start: Tensor) -> Tensor | None:
    """`start` [r, K] projected off the weights of some outputs of `fn`, or None where `fn` is not linear.

    A kernel that is linear in its row gives its weights away: y(e_k) is column k. The projection leaves of the
    chosen outputs what rounding to the row's dtype leaves: about 2**-9 of the addends in bf16, so that a
    reordering is some 2**8 times as visible as in `start`.
    """
    import torch

    k = like.shape[1]
    if k > LARGEST_K or k < 8:
        return None
    weights = _weights(fn, like, min(OUTPUTS, k // 4))
    if weights is None:
        return None
    # Orthonormal basis of the chosen outputs' weights; what lies in it is taken out of the rows.
    basis = torch.linalg.qr(weights.T)[0]
    projected: Tensor = start - (start @ basis) @ basis.T
    return projected


def _weights(fn: Callable[..., Any], like: Tensor, outputs: int) -> Tensor | None:
    """float64 [outputs, K], verified on a random row, or None."""
    import torch

    k = like.shape[1]
    columns = []
    try:
        with torch.no_grad():
            for start in range(0, k, LEARN):
                unit = torch.zeros(min(LEARN, k - start), k, dtype=like.dtype, device=like.device)
                unit[torch.arange(unit.shape[0]), start + torch.arange(unit.shape[0])] = 1
                y = fn(unit)
                if not isinstance(y, torch.Tensor) or y.dim() != 2 or not y.dtype.is_floating_point:
                    return None
                columns.append(y.cpu().double())
                if start == 0 and y.shape == unit.shape and not (y.cpu() * (1 - unit.cpu())).any():
                    return None  # element-wise: there is no sum to cancel
            every = torch.cat(columns).T  # [N, K]
            step = max(1, every.shape[0] // outputs)
            chosen = torch.arange(0, min(every.shape[0], outputs * step), step)
            weights = every[chosen]
            trial = torch.randn(1, k, generator=torch.Generator().manual_seed(5)).to(like.dtype)
            seen = fn(trial.to(like.device)).cpu().double()[0, chosen]
    except Exception:  # a kernel may refuse such rows in any way: then its weights stay its own
        return None
    terms = weights * trial.double()
    error = (seen - terms.sum(1)).abs()
    eps = torch.finfo(like.dtype).eps
    linear = bool(torch.isfinite(weights).all()) and bool((error <= 8 * eps * (terms.abs().sum(1) + 1e-30)).all())
    return weights if linear and bool(weights.any()) else None
