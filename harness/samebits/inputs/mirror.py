"""One fixed arrangement of a reduction axis in which every product meets its negative somewhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TILE = 64
"""K of one MMA step on the widest unit (Blackwell, NVFP4): within it, no order can be seen from outside."""


@dataclass(frozen=True)
class Mirror:
    """Positions [0, length) of an axis in units: where each unit's original and its mirror image lie.

    A row is -1 times its original at the mirror's place, a weight is its original: they stay separable, so one
    arrangement serves all rows and all columns.
    """

    source: Tensor
    """[length] int64: which original unit lies at each place; -1 where a place has no partner (it is zero)."""
    sign: Tensor
    """[length] int8: +1 original, -1 mirror image, 0 no partner."""
    band: Tensor
    """[length] int64: the magnitude band of the place's unit."""

    def paired(self) -> Tensor:
        """[length] places in an order in which every original is followed by its image: the order in which
        the sum is exact, and so the one that differs most from any other."""
        import torch

        last = self.source.max() + 1 if self.source.numel() else 0
        key: Tensor = torch.where(self.source < 0, last, self.source) * 2 + (self.sign < 0)
        return key.argsort(stable=True)

    @property
    def originals(self) -> int:
        """Number of original units."""
        return int(self.source.max()) + 1 if self.source.numel() else 0


def mirror(length: int, bands: int, generator: torch.Generator) -> Mirror:
    """Arrange `length` units so that each band lies evenly over the axis and originals and images are apart.

    Each run of `bands` places holds every band once, in random order; within a band, originals and images are
    shuffled over the places, so that any way to cut the axis separates some pairs.
    """
    import torch

    if length < 4 * bands:
        return _short(length)
    source = torch.full((length,), -1, dtype=torch.int64)
    sign = torch.zeros(length, dtype=torch.int8)
    order = [torch.randperm(bands, generator=generator) for _ in range(-(-length // bands))]
    band = torch.cat(order)[:length] if length else torch.zeros(0, dtype=torch.int64)
    used = 0
    for b in range(bands):
        places = (band == b).nonzero().reshape(-1)
        places = places[torch.randperm(len(places), generator=generator)]
        pairs = len(places) // 2
        first, second = places[:pairs], places[pairs : 2 * pairs]
        ids = torch.arange(used, used + pairs)
        source[first], sign[first] = ids, 1
        source[second], sign[second] = ids[torch.randperm(pairs, generator=generator)], -1
        used += pairs
    return Mirror(source, sign, band)


def _short(length: int) -> Mirror:
    """Originals, then what has no partner, then the images: no pair may be adjacent by chance."""
    import torch

    pairs = length // 2
    ids = torch.arange(pairs)
    alone = torch.full((length - 2 * pairs,), -1)
    source = torch.cat([ids, alone, ids])
    sign = torch.cat([torch.ones(pairs), torch.zeros(len(alone)), -torch.ones(pairs)]).to(torch.int8)
    bands = torch.cat([ids, torch.zeros(len(alone), dtype=torch.int64), ids])
    return Mirror(source, sign, bands)
