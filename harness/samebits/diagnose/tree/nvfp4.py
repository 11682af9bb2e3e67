"""The tree of an NVFP4 matrix product, through packed operands and a bf16 or fp16 output.

Leaves are blocks of 16: what a block sums to is exact on tensor cores, and a mask inside of it would be at most
144 times a unit. A mask is 15 lanes of 6 * 6 under block scale 448: 241,920; a unit one lane of 0.5 * 0.5 under
2**-9: 2**-11. So a mask is 495,452,160 units and its last bit in float32 is 32 of them: at most 7 units a column
never move it by rounding to nearest, and an adder that rounds toward zero loses whole multiples of 32, which are
taken off again. Columns of 7 units are few, so each pair is asked for in stripes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from samebits.diagnose.tree.fprev import reconstruct
from samebits.diagnose.tree.structure import NoTreeError, Tree
from samebits.inputs.nvfp4 import BLOCK, pack

if TYPE_CHECKING:
    from torch import Tensor

STRIPE = 7
"""Units in one column."""
ULP = 32
"""Units in the last bit of a mask."""
ALPHA = 2.0**11
"""Makes a unit 1 in the output."""
ONE, LARGEST, LEAST = 0x38, 0x7E, 0x01
"""e4m3 codes of 1, 448 and 2**-9."""
SIX, HALF = 7, 1
"""e2m1 codes."""

Packed = Callable[["Tensor", "Tensor", "Tensor", "Tensor", float], "Tensor"]
"""(x uint8 [m, k/2], e4m3 bits [m, k/16], w uint8 [n, k/2], e4m3 bits [n, k/16], alpha) -> [m, n]; scales not
swizzled."""


def nvfp4_tree(fn: Packed, k: int, n: int, *, m: int = 1, row: int = 0, fused: bool = True) -> Tree:
    """The order in which `fn` adds blocks of 16 products; leaf b is the block b.

    Args:
        fn: see `Packed`.
        k: length of the sums, a multiple of 16.
        n: columns: so many stripes are asked for in one launch.
        m, row: the batch size, and the row that is looked at.
        fused: several blocks may enter in one step that adds them exactly, as on Blackwell.

    Raises:
        NoTreeError: launches that disagree; answers that no tree gives.
    """
    import torch

    blocks = k // BLOCK
    lanes = torch.tensor([SIX] * (BLOCK - 1) + [HALF], dtype=torch.uint8)
    x = pack(lanes.expand(m, blocks, BLOCK))
    x_scale = torch.full((m, blocks), ONE, dtype=torch.uint8)
    launches = 0

    def launch(columns: list[tuple[int, int, list[int]]]) -> list[int]:
        nonlocal launches
        codes = torch.zeros(n, blocks, BLOCK, dtype=torch.uint8)
        scale = torch.full((n, blocks), ONE, dtype=torch.uint8)
        for c, (i, j, units) in enumerate(columns):
            codes[c, i, : BLOCK - 1], codes[c, j, : BLOCK - 1] = SIX, SIX | 8
            scale[c, i] = scale[c, j] = LARGEST
            codes[c, units, BLOCK - 1] = HALF
            scale[c, units] = LEAST
        launches += 1
        with torch.no_grad():
            y = fn(x, x_scale, pack(codes), scale, ALPHA)[row].double().cpu()
        return [_survivors(v) for v in y[: len(columns)].tolist()]

    def ask(pairs: Sequence[tuple[int, int]]) -> list[int]:
        columns: list[tuple[int, int, list[int]]] = []
        of: list[int] = []
        met = [2] * len(pairs)
        for p, (i, j) in enumerate(pairs):
            rest = [b for b in range(blocks) if b not in (i, j)]
            for s in range(0, len(rest), STRIPE):
                columns.append((i, j, rest[s : s + STRIPE]))
                of.append(p)
        for start in range(0, len(columns), n):
            part = columns[start : start + n]
            for (_, _, units), p, left in zip(part, of[start:], launch(part), strict=False):
                met[p] += len(units) - left
        return met

    few = [(0, j) for j in sorted({1, blocks // 2, blocks - 1} - {0})]
    if ask(few) != ask(few):
        raise NoTreeError("arrival-order: the same launch gives another sum when it is repeated")
    return dataclasses.replace(reconstruct(blocks, ask, fused_exact=fused), unit=BLOCK, launches=launches)


def _survivors(value: float) -> int:
    if not value.is_integer() or abs(value) > 256 or int(value) % ULP > STRIPE:
        raise NoTreeError(f"a sum of two masks and {STRIPE} units gave {value}: this is no plain NVFP4 product")
    return int(value) % ULP
