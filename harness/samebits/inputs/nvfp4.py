"""NVFP4 operands whose fp32 sums are not exact: `randn`, once quantised, has sums that no order can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.errors import UsageError
from samebits.inputs.gemm import DESIGNS, check
from samebits.inputs.mirror import mirror

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BLOCK = 16
"""Elements that share a scale."""
BANDS = ((120, 127), (56, 80), (40, 64), (24, 48))
"""e4m3 codes of the block scales, one band for each of the four blocks in 64 elements: 256..448, 1..7, 1/4..1.9,
1/16..1/2. The first is narrow, so that two tiles nearly cancel; products of the others straddle the last bit of
running sums of the first."""
SPREAD = {1: (0,), 2: (0, 3), 3: (0, 2, 3)}
"""Which bands the pairs of a short sum take: as far apart as may be."""
LONE = 24
"""e4m3 code of the scale of a block that has no partner: 2**-4."""
ORDINARY = (52, 60)
"""e4m3 codes of the scales of ordinary rows: around 1."""
ALPHA = 2.0**-6
"""Brings the outputs of both kinds of rows into the normal range of bf16 and of fp16."""


@dataclass(frozen=True)
class Nvfp4Operands:
    """Packed operands of y = alpha * (x * sx) @ (w * sw).T."""

    x: Tensor
    """uint8 [rows, k/2], even element in the low nibble."""
    x_scale: Tensor
    """uint8 bits of e4m3 [rows, k/16], not swizzled."""
    w: Tensor
    """uint8 [n, k/2]."""
    w_scale: Tensor
    """uint8 bits of e4m3 [n, k/16], not swizzled."""
    alpha: float
    order: Tensor
    """int64 [k/16]: the blocks, each followed by its negative."""

    def activations(self, dtype: torch.dtype) -> Tensor:
        """[rows, k] in bf16 or fp16 whose quantisation with global scale 1 gives `x` and `x_scale` back.

        Every block has an element of magnitude 6, which pins its scale; all values have at most 6 significant
        bits and lie in 2**-10..2688, exact in both.
        """
        return dequantise(self.x, self.x_scale).to(dtype)

    def reordered(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(x, x_scale, w, w_scale) with the blocks of the reduction axis permuted alike."""
        blocks, order = self.x_scale.shape[1], self.order

        def move(t: Tensor) -> Tensor:
            return t.reshape(-1, blocks, BLOCK // 2).index_select(1, order).flatten(1)

        return move(self.x), self.x_scale[:, order], move(self.w), self.w_scale[:, order]


def dequantise(packed: Tensor, scale: Tensor) -> Tensor:
    """float64 [r, k] from uint8 [r, k/2] and e4m3 bits [r, k/16]: exact."""
    import torch

    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64, device=packed.device)
    table = torch.cat([magnitudes, -magnitudes])
    values = table[torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).long()]
    return values * scale.view(torch.float8_e4m3fn).double().repeat_interleave(BLOCK, dim=1)


def nvfp4_gemm(
    rows: int,
    n: int,
    k: int,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    kind: str = "mixed",
) -> Nvfp4Operands:
    """Operands of an NVFP4 scaled-MM; see `gemm` for the kinds "mixed", "stratified" and "ordinary".

    Raises:
        UsageError: K no multiple of 16, an unknown kind, or a size below 1.
    """
    import torch

    check(kind, DESIGNS, rows=rows, n=n, k=k)
    if k % BLOCK:
        raise UsageError("K is a whole number of blocks", found=f"K = {k}", allowed="multiples of 16")
    g = torch.Generator().manual_seed(seed)
    blocks = k // BLOCK
    m = mirror(blocks, len(BANDS), g, tile=len(BANDS))
    originals, place = max(1, m.originals), m.source.clamp(min=0)
    x0, sx = block_codes(rows, originals, g), block_scales(rows, m.band, m.source, g)
    w0, sw = block_codes(n, originals, g), block_scales(n, m.band, m.source, g)
    # Products of one sign in the largest band: see `mirror`.
    largest = m.original_bands[None, :, None] == 0
    x0, w0 = torch.where(largest, x0 & 7, x0), torch.where(largest, w0 & 7, w0)
    partnered = (m.sign != 0)[None, :, None]
    x = torch.where(m.sign[None, :, None] < 0, x0[:, place] ^ 8, x0[:, place])
    w = w0[:, place]
    plain, plain_scale = block_codes(rows, blocks, g), torch.randint(*ORDINARY, (rows, blocks), generator=g)
    # A block without a partner is small beside the pairs: it survives or not by when it is added.
    alone = (m.sign == 0)[None, :]
    x, w = (
        torch.where(partnered, x, block_codes(rows, blocks, g)),
        torch.where(partnered, w, block_codes(n, blocks, g)),
    )
    sx, sw = torch.where(alone, LONE, sx), torch.where(alone, LONE, sw)
    alternate = torch.arange(rows) % 2 == 0 if kind == "mixed" else torch.full((rows,), kind == "stratified")
    x = torch.where(alternate[:, None, None], x, plain)
    sx = torch.where(alternate[:, None], sx, plain_scale)
    if kind == "ordinary":
        w, sw = block_codes(n, blocks, g), torch.randint(*ORDINARY, (n, blocks), generator=g)
    return Nvfp4Operands(
        pack(x).to(device),
        sx.to(torch.uint8).to(device),
        pack(w).to(device),
        sw.to(torch.uint8).to(device),
        ALPHA,
        m.paired().to(device),
    )


def block_codes(rows: int, blocks: int, g: torch.Generator) -> Tensor:
    """uint8 [rows, blocks, 16] nibbles, one of magnitude 6 in each block."""
    import torch

    codes = torch.randint(0, 16, (rows, blocks, BLOCK), generator=g, dtype=torch.uint8)
    lane = torch.randint(0, BLOCK, (rows, blocks, 1), generator=g)
    return codes.scatter(2, lane, codes.gather(2, lane) | 7)


def block_scales(rows: int, band: Tensor, source: Tensor, g: torch.Generator) -> Tensor:
    """[rows, blocks] e4m3 codes: each original draws from its band, its mirror image has the same."""
    import torch

    which = torch.tensor(SPREAD.get(int(band.max()) + 1, tuple(range(len(BANDS)))))[band]
    low = torch.tensor([b[0] for b in BANDS])[which]
    high = torch.tensor([b[1] for b in BANDS])[which]
    originals = max(1, int(source.max()) + 1)
    drawn = torch.rand(rows, originals, generator=g)[:, source.clamp(min=0)]
    return (low + (drawn * (high - low)).floor()).to(torch.int64)


def pack(codes: Tensor) -> Tensor:
    """uint8 [r, blocks, 16] nibbles to [r, k/2], even element in the low nibble."""
    flat = codes.flatten(1)
    return (flat[:, 0::2] | (flat[:, 1::2] << 4)).contiguous()
