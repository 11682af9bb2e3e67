"""The proof of a tree: add random operands along it, and compare the bits with the kernel's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samebits.diagnose.tree.structure import Proof, Tree

if TYPE_CHECKING:
    import torch
    from torch import Tensor

COLUMNS = 64


def replay(
    tree: Tree,
    fn: Callable[[Tensor, Tensor], Tensor],
    k: int,
    n: int,
    *,
    dtype: torch.dtype,
    m: int = 1,
    row: int = 0,
    device: torch.device | str = "cpu",
    signs_only: bool = False,
) -> Proof:
    """Compare up to 64 columns of one launch with the tree's sums.

    Args:
        tree: over the k products of an output element.
        fn, k, n, dtype, m, row, device: as in `accumulation_tree`.
        signs_only: weights are +-1, for sums in which nothing is multiplied.
    """
    import torch

    from samebits import inputs

    # Ordinary magnitudes in float32; otherwise sums of exact products that differ must show in a short output.
    operands = inputs.gemm(
        m, n, k, dtype=dtype, seed=11, kind="ordinary" if dtype == torch.float32 else "stratified"
    )
    x, w = operands.x, operands.w
    if signs_only:
        w = torch.where(w < 0, -torch.ones_like(w), torch.ones_like(w))
    with torch.no_grad():
        y = fn(x.to(device), w.to(device))[row, :COLUMNS].cpu()
    a, b = x[row].double(), w[:COLUMNS].double()
    found = {}
    for fused in (False, True):
        total = evaluate(tree, a.numpy(), b.numpy(), fused=fused, double=dtype == torch.float64)
        again = torch.from_numpy(total).to(y.dtype)
        found[fused] = int((again.view(_word(y)) == y.contiguous().view(_word(y))).sum())
    return Proof(multiply_add=found[False], fma=found[True], of=y.numel())


def _word(y: Tensor) -> torch.dtype:
    import torch

    return {2: torch.int16, 4: torch.int32, 8: torch.int64}[y.element_size()]


def evaluate(tree: Tree, a: Any, b: Any, *, fused: bool, double: bool = False) -> Any:
    """The sums along the tree of a [k] times each row of b [n, k], in float32 (float64 with `double`).

    Fused: a product that is added to a partial sum is not rounded first. (By way of float64, which rounds twice in
    one case of 2**29.) Nodes of more than two operands add them exactly and round once.
    """
    import numpy as np

    kept = np.float64 if double else np.float32
    exact = (a * b).T
    values: list[Any] = [None] * tree.leaves
    for children in tree.nodes:
        # The lowest product starts a sum, and is rounded in any case.
        order = sorted(children, key=lambda c: (c < tree.leaves, c))
        if fused or len(order) > 2:
            first = values[order[0]] if order[0] >= tree.leaves else exact[order[0]].astype(kept)
            rest = [exact[c] if c < tree.leaves else values[c] for c in order[1:]]
        else:
            first, *rest = [values[c] if c >= tree.leaves else exact[c].astype(kept) for c in order]
        total = first.astype(np.float64)
        for r in rest:
            total = total + r
        values.append(total.astype(kept))
    return values[-1] if tree.nodes else exact[0].astype(kept)
