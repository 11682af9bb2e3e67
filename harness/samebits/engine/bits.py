"""Compare bits, never values.

`torch.equal(0., -0.)` is True and NaN is not equal to itself, so tensors are compared as integers of the same
width, on their device; a synchronisation happens only when a Python number is asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from samebits.engine.result import Element

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def as_bits(tensor: Tensor) -> Tensor:
    """The same memory as integers of the same width; complex numbers as pairs. Shape [M, ...] -> [M, E]."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    tensor = tensor.detach().contiguous()
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.element_size() not in integers:  # quantised or packed dtypes wider than a register
        return tensor.view(torch.uint8).reshape(tensor.shape[0], -1)
    bits = tensor if tensor.dtype == torch.uint8 else tensor.view(integers[tensor.element_size()])
    return bits.reshape(bits.shape[0], -1) if bits.dim() and bits.shape[0] else bits.reshape(0, 0)


def same(a: Tensor, b: Tensor) -> bool:
    """True where every bit agrees; False for other shapes or dtypes. Synchronises."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(as_bits(a), as_bits(b)))


def differing_rows(found: Tensor, expected: Tensor) -> Tensor:
    """[M] int64 on the device: how many elements of each row differ. No synchronisation."""
    return (as_bits(found) != as_bits(expected)).sum(dim=1)


@cache
def _memcmp() -> Callable[[int, int, int], int] | None:
    try:
        memcmp = ctypes.CDLL(None).memcmp
    except (OSError, AttributeError, TypeError):  # no such symbol to be had from the process itself
        return None
    memcmp.argtypes, memcmp.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
    return cast("Callable[[int, int, int], int]", memcmp)


def _same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two contiguous integer tensors of the CPU agree: four times as fast as `torch.equal` on them."""
    import torch

    memcmp = _memcmp()
    if memcmp is None or a.shape != b.shape or a.dtype != b.dtype:
        return torch.equal(a, b)
    return memcmp(a.data_ptr(), b.data_ptr(), a.nbytes) == 0


class Tally:
    """Differences of many launches, counted on the device and read once.

    On the CPU a comparison is one pass with an early exit; on a GPU it is queued behind the launch, so that a
    check of thousands of launches synchronises once.
    """

    def __init__(self, launches: int, device: torch.device) -> None:
        import torch

        self._counts = torch.zeros(launches, dtype=torch.int64, device=device)
        self._cpu = device.type == "cpu"

    def add(self, launch: int, found: Tensor, expected: Tensor) -> None:
        """Count the differing elements of one output of launch number `launch`."""
        a, b = as_bits(found), as_bits(expected)
        if self._cpu:
            if not _same_memory(a, b):
                self._counts[launch] += (a != b).sum()
        else:
            self._counts[launch] += (a != b).count_nonzero()

    def read(self) -> list[int]:
        """Counts per launch. The one synchronisation."""
        return [int(c) for c in self._counts.tolist()]


def digest_rows(tensor: Tensor) -> Tensor:
    """[M] int64 on the device: one 64-bit digest per row (a weighted sum modulo 2**64, so its own order of
    summation cannot matter). Equal rows have equal digests; others collide with probability 2**-63 or so."""
    import torch

    bits = as_bits(tensor).to(torch.int64)
    generator = torch.Generator().manual_seed(0x5A3EB175)
    weights = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=generator) | 1
    return (bits * weights.to(bits.device) + (bits ^ 0x9E37)).sum(dim=1)


def kind_of(expected: Tensor, found: Tensor) -> str:
    """The class of a difference between two rows of one dtype: see `Finding.kind`."""
    import torch

    if expected.shape != found.shape:
        return "shape"
    if expected.dtype != found.dtype:
        return "dtype"
    if not expected.dtype.is_floating_point or expected.element_size() == 1:
        return "value"
    differ = (as_bits(expected[None]) != as_bits(found[None])).reshape(expected.shape)
    e, f = expected[differ].double(), found[differ].double()
    if bool((torch.isnan(e) & torch.isnan(f)).all()):
        return "nan payload"
    if not bool((torch.isfinite(e) == torch.isfinite(f)).all()):
        return "finite"
    return "signed zero" if bool(((e == 0) & (f == 0)).all()) else "value"


def ordered(bits: int, width: int) -> int:
    """Sign-magnitude bits as an integer that grows with the value, so that neighbours differ by one ULP."""
    sign = 1 << (width - 1)
    return bits if bits < sign else sign - bits


def element(expected: Tensor, found: Tensor, flat: int) -> Element:
    """Both sides of element number `flat` of two rows of the same shape and dtype."""
    import torch

    width = expected.element_size() * 8
    wide = expected.is_complex()
    sides = []
    for row in (expected, found):
        value = row.reshape(-1)[flat]
        raw = as_bits(value.reshape(1)).reshape(-1)
        bits = 0
        for part in reversed([int(p) for p in raw.tolist()]):
            bits = (bits << (width // raw.numel())) | (part & ((1 << (width // raw.numel())) - 1))
        number = value.to(torch.float64) if value.dtype.is_floating_point else value
        sides.append((bits, f"{number.item():.9g}" if value.dtype.is_floating_point else str(number.item())))
    (eb, ev), (fb, fv) = sides
    ulp = None
    if not wide and expected.dtype.is_floating_point and "nan" not in (ev, fv):
        ulp = abs(ordered(eb, width) - ordered(fb, width))
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), expected.shape))
    digits = width // 4
    return Element(index, f"0x{eb:0{digits}x}", f"0x{fb:0{digits}x}", ev, fv, ulp)


def first_and_greatest(expected: Tensor, found: Tensor) -> tuple[Element, Element]:
    """The first differing element of two rows, and the one that differs most in value (NaN first)."""
    import torch

    differ = (as_bits(expected[None]) != as_bits(found[None])).reshape(-1)
    if expected.is_complex():
        differ = differ.reshape(-1, 2).any(1)
    places = torch.nonzero(differ).reshape(-1)
    e, f = expected.reshape(-1)[places], found.reshape(-1)[places]
    if e.dtype.is_floating_point and e.element_size() == 1:  # fp8 converts to float only
        e, f = e.float(), f.float()
    gap = (e.to(torch.complex128) - f.to(torch.complex128)).abs()
    gap = torch.where(torch.isnan(gap), torch.inf, gap)
    first, greatest = int(places[0]), int(places[int(gap.argmax())])
    return element(expected, found, first), element(expected, found, greatest)
