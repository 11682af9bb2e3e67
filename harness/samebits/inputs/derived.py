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
COLUMNS = 1024
"""Most columns whose weights are learned: the others of a null-space row are zero."""
LEARN = 64
"""Rows of a launch that learns weights."""
MOST_WORK = {"cpu": 1 << 33}
"""Multiply-adds that learning may take; elsewhere 2**40."""
CORRECTIONS = 3
"""Groups of columns that take up what rounding has left of the sums, one after another."""


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
        64 chosen outputs cancel, which leaves their rounding; *ordinary* rows are randn.
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
    """Rows [r, K] that some outputs of `fn` sum to almost zero, or None where `fn` is not linear.

    A kernel that is linear in its row gives its weights away: y(e_k) is column k. Most columns keep the values of
    `start`; three groups of the others are solved for, each after the former have been rounded to the row's dtype.
    Every group leaves some 2**-8 of what it takes up (bf16), so that the sum ends below the rounding errors of
    fp32, as far as the weights are known: a kernel that rounds its outputs to bf16 tells them to 2**-9.
    """
    import torch

    k = like.shape[1]
    g = torch.Generator().manual_seed(7)
    step = -(-k // COLUMNS)
    # One of each `step`, at random: a fixed stride would fill one lane of a vector loop.
    columns = torch.arange(0, k, step)
    columns = (columns + torch.randint(step, columns.shape, generator=g)).clamp(max=k - 1)
    weights = _weights(fn, like, columns)
    if weights is None:
        return None
    # At random, so that every tile of K holds some of each group.
    order = torch.randperm(len(columns), generator=g)
    group = 2 * weights.shape[0]
    kept = len(columns) - CORRECTIONS * group
    rows = torch.zeros(start.shape[0], k, dtype=torch.float64)
    for first, last in [(0, kept), *((e, e + group) for e in range(kept, len(columns), group))]:
        part = order[first:last]
        if first == 0:
            values = start[:, columns[part]]
        else:
            left = rows[:, columns] @ weights.T
            values = -torch.linalg.lstsq(weights[:, part], left.T).solution.T
        if not bool(torch.isfinite(values).all()):
            return None
        rows[:, columns[part]] = values.to(like.dtype).double()
    return rows if bool(torch.isfinite(rows).all()) else None


def _weights(fn: Callable[..., Any], like: Tensor, columns: Tensor) -> Tensor | None:
    """float64 [outputs, len(columns)], verified on a random row, or None."""
    import torch

    k, count = like.shape[1], len(columns)
    chosen, found = torch.zeros(0, dtype=torch.int64), []
    try:
        with torch.no_grad():
            for start in range(0, count, LEARN):
                at = columns[start : start + LEARN]
                unit = torch.zeros(len(at), k, dtype=like.dtype)
                unit[torch.arange(len(at)), at] = 1
                y = fn(unit.to(like.device))
                if not isinstance(y, torch.Tensor) or y.dim() != 2 or not y.dtype.is_floating_point:
                    return None
                if start == 0:
                    n = y.shape[1]
                    outputs = min(OUTPUTS, n, count // (2 * CORRECTIONS + 2))
                    if outputs < 1 or count * k * n > MOST_WORK.get(like.device.type, 1 << 40):
                        return None
                    if y.shape == unit.shape and not (y.cpu() * (1 - unit)).any():
                        return None  # element-wise: there is no sum to cancel
                    chosen = torch.arange(outputs) * n // outputs
                found.append(y.cpu()[:, chosen].double())
            weights = torch.cat(found).T
            trial = torch.zeros(1, k, dtype=like.dtype)
            trial[0, columns] = torch.randn(count, generator=torch.Generator().manual_seed(5)).to(like.dtype)
            seen = fn(trial.to(like.device)).cpu().double()[0, chosen]
    except Exception:  # a kernel may refuse such rows in any way: then its weights stay its own
        return None
    terms = weights * trial[:, columns].double()
    error = (seen - terms.sum(1)).abs()
    eps = torch.finfo(like.dtype).eps
    linear = bool(torch.isfinite(weights).all()) and bool((error <= 8 * eps * (terms.abs().sum(1) + 1e-30)).all())
    return weights if linear and bool(weights.any()) else None
