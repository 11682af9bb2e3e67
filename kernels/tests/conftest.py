"""Shared by the kernel tests: backends, poisoned workspaces, random operands that do not forgive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import samebits_kernels as sk

SLOW = os.environ.get("SAMEBITS_SLOW") == "1"


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that promises batch invariance here."""
    reason = {b.name: b.available() for b in sk.backends()}[request.param]
    if reason is not None:
        pytest.skip(f"backend {request.param}: {reason}")
    return str(request.param)


@pytest.fixture
def cpu() -> Iterator[Any]:
    """The cpu backend itself."""
    found = next(b for b in sk.backends() if b.name == "cpu")
    if found.available() is not None:
        pytest.skip(f"cpu: {found.available()}")
    yield found
    found.force_isa("")
    found.force_schedule("invariant")


@pytest.fixture(autouse=True)
def _invariant_and_poisoned() -> Iterator[None]:
    """Whatever the environment of the test run says: the invariant schedule, and no output or workspace clean."""
    found: Any = next(b for b in sk.backends() if b.name == "cpu")
    if found.available() is not None:
        with sk.poisoned(0xFF):
            yield
        return
    found.force_schedule("invariant")
    with sk.poisoned(0xFF):
        yield
    found.force_schedule("")


@pytest.fixture
def same() -> Callable[[Tensor, Tensor], bool]:
    """Same shape, dtype and bytes."""

    def compare(x: Tensor, y: Tensor) -> bool:
        return (
            x.shape == y.shape
            and x.dtype == y.dtype
            and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        )

    return compare


@pytest.fixture
def operand() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """(rows, k, seed) -> random codes, plain scale bytes over their whole finite range, swizzled scales.

    Half of every row cancels the other half, so fp32 sums round and their order shows.
    """

    def make(rows: int, k: int, seed: int, *, cancel: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        g = torch.Generator().manual_seed(seed)
        codes = torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8, generator=g)
        scales = torch.randint(0, 127, (rows, k // 16), dtype=torch.uint8, generator=g)
        if cancel and k >= 32:
            half = k // 32 * 16
            codes[:, half // 2 : half] = codes[:, : half // 2] ^ 0x88
            scales[:, half // 16 : half // 8] = scales[:, : half // 16]
            order = torch.randperm(k // 16, generator=torch.Generator().manual_seed(7))
            codes = codes.view(rows, -1, 8)[:, order].reshape(rows, -1)
            scales = scales[:, order].contiguous()
        return codes, scales, sk.swizzle_scales(scales)

    return make


@pytest.fixture
def layer() -> Callable[..., tuple[Tensor, ...]]:
    """(experts, h, i, seed) -> the eight weight tensors of `moe`, realistic in scale."""

    def make(experts: int, h: int, inter: int, seed: int = 0) -> tuple[Tensor, ...]:
        g = torch.Generator().manual_seed(seed)

        def quantised(n: int, k: int) -> tuple[Tensor, Tensor]:
            parts = [
                sk.quantise(torch.randn(n, k, generator=g).to(torch.bfloat16), torch.full((1,), 600.0))
                for _ in range(experts)
            ]
            return torch.stack([q for q, _ in parts]), torch.stack([s.view(torch.uint8) for _, s in parts]).view(
                torch.float8_e4m3fn
            )

        w13, s13 = quantised(2 * inter, h)
        w2, s2 = quantised(h, inter)
        a1 = 400.0 + torch.arange(experts) * 13.0
        a2 = 70.0 + torch.arange(experts) * 5.0
        return w13, s13, w2, s2, a1, h**-0.5 / (a1 * 600.0), a2, inter**-0.5 / (a2 * 600.0)

    return make
