"""One fixed arrangement of a reduction axis in which every product meets its negative somewhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TILE = 64
"""K of one MMA step on the widest unit (Blackwell, NVFP4): within it, no order can be seen from outside."""

EIGHT = (2, 0, 1, 3, 2, 3, 0, 1)
"""Which band lies where in a sum of eight units: of 250 arrangements tried, the one that shows most orders."""
EIGHT_SIGNS = (1, -1, 1, -1, -1, 1, 1, -1)


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

    @property
    def original_bands(self) -> Tensor:
        """[max(1, originals)] int64: the band of each original unit."""
        import torch

        out = torch.zeros(max(1, self.originals), dtype=torch.int64)
        placed = self.source >= 0
        out[self.source[placed]] = self.band[placed]
        return out


def mirror(length: int, bands: int, generator: torch.Generator, *, tile: int = TILE) -> Mirror:
    """Arrange `length` units so that each band lies evenly over the axis and originals and images are apart.

    Each run of `bands` places holds every band once, in random order. Within a band, originals and images are
    shuffled over the places, so that any way to cut the axis separates some pairs.

    Band 0, the largest, decides how large a running sum gets, and is arranged by tiles of `tile` units: one tile
    of each two in a row has originals only, the other images only. With products of one sign among the
    originals, every tile then has a sum far above its addends, so that each step rounds off many bits; and every
    second running sum is small again, so that errors stay comparable over the whole axis and those of the last
    tile are not lost among the others'. Either tile of the two may come first: truncating adders err toward zero,
    and must not err in one direction all the time.
    """
    import torch

    if length < 4 * bands:
        return _short(length, bands)
    source = torch.full((length,), -1, dtype=torch.int64)
    sign = torch.zeros(length, dtype=torch.int8)
    order = [torch.randperm(bands, generator=generator) for _ in range(-(-length // bands))]
    band = torch.cat(order)[:length] if length else torch.zeros(0, dtype=torch.int64)
    used = 0
    for b in range(bands):
        places = (band == b).nonzero().reshape(-1)
        first, second = _by_tiles(places, length, tile, generator) if b == 0 else _halves(places, generator)
        pairs = len(first)
        ids = torch.arange(used, used + pairs)
        source[first], sign[first] = ids, 1
        source[second], sign[second] = ids[torch.randperm(pairs, generator=generator)], -1
        used += pairs
    return Mirror(source, sign, band)


def _halves(places: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Places of originals and of images, as many of each, at random."""
    import torch

    places = places[torch.randperm(len(places), generator=generator)]
    pairs = len(places) // 2
    return places[:pairs], places[pairs : 2 * pairs]


def _by_tiles(places: Tensor, length: int, tile: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The same, by whole tiles where two in a row hold equally many."""
    import torch

    first, second = [], []
    for start in range(0, length, 2 * tile):
        inside = places[(places >= start) & (places < start + 2 * tile)]
        one, other = inside[inside < start + tile], inside[inside >= start + tile]
        if len(one) != len(other):
            one, other = _halves(inside, generator)
        if int(torch.randint(2, (1,), generator=generator)):
            one, other = other, one
        first.append(one)
        second.append(other)
    return torch.cat(first), torch.cat(second)


def _short(length: int, bands: int) -> Mirror:
    """No pair may be adjacent by chance: eight places as `EIGHT`, then originals, the odd one, images."""
    import torch

    if length >= len(EIGHT) and bands == len(EIGHT) // 2:
        rest = _short(length - len(EIGHT), bands)
        ids = torch.tensor(EIGHT)
        moved = torch.where(rest.source < 0, rest.source, rest.source + bands)
        sign = torch.tensor(EIGHT_SIGNS, dtype=torch.int8)
        return Mirror(torch.cat([ids, moved]), torch.cat([sign, rest.sign]), torch.cat([ids, rest.band]))
    pairs = length // 2
    ids = torch.arange(pairs)
    band = ids * bands // max(bands, pairs)
    alone = torch.full((length - 2 * pairs,), -1)
    source = torch.cat([ids, alone, ids])
    sign = torch.cat([torch.ones(pairs), torch.zeros(len(alone)), -torch.ones(pairs)]).to(torch.int8)
    return Mirror(source, sign, torch.cat([band, torch.zeros(len(alone), dtype=torch.int64), band]))
