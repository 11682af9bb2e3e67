"""Circumstances of a launch that must not matter: what memory held before, what runs beside it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

Outputs = tuple["Tensor", ...]
Launch = Callable[[], Outputs]
Way = Callable[[Launch], Outputs]
"""Makes a launch under some circumstance."""

SMALL = tuple(1 << n for n in (9, 12, 15, 18))
"""Bytes of freed blocks besides those of the sizes that the launch itself asks for."""
ELEMENTS = 16_384
"""Of the tensor that a busy thread works on: below the size at which torch starts threads of its own."""


def ways(bench: Bench, rows: tuple[Tensor, ...], outputs: Outputs) -> dict[str, Way]:
    """Name -> way to make the launch on `rows` that gave `outputs`."""
    found: dict[str, Way] = {
        "in a row": lambda launch: launch(),
        "with freed memory full of NaN": _dirty(bench, (*rows, *outputs)),
    }
    if bench.device.type == "cuda":
        found["beside another kernel"] = _beside(bench)
        found["on another stream"] = _elsewhere(bench)
    else:
        found["beside a busy thread"] = _busy()
    return found


def _dirty(bench: Bench, tensors: Outputs) -> Way:
    import torch

    sizes = sorted({*SMALL, *(max(1, t.numel() * t.element_size()) for t in tensors)})

    def way(launch: Launch) -> Outputs:
        blocks = [torch.full((n,), 0xFF, dtype=torch.uint8, device=bench.device) for n in (*sizes, *sizes)]
        del blocks
        return launch()

    return way


def _busy() -> Way:
    """A second thread competes for the cores, for another while each time."""
    import torch

    work = torch.linspace(0, 1, ELEMENTS)
    turns = itertools.cycle((1, 4, 16))

    def spin(times: int) -> None:
        for _ in range(times):
            torch.sin(work)

    def way(launch: Launch) -> Outputs:
        thread = threading.Thread(target=spin, args=(next(turns),), daemon=True)
        thread.start()
        try:
            return launch()
        finally:
            thread.join()

    return way


def _beside(bench: Bench) -> Way:
    """A matrix product on another stream takes a part of the multiprocessors."""
    import torch

    a = torch.ones(1024, 1024, device=bench.device)
    stream = torch.cuda.Stream(bench.device)  # type: ignore[no-untyped-call]
    turns = itertools.cycle((1, 2, 4))

    def way(launch: Launch) -> Outputs:
        stream.wait_stream(torch.cuda.current_stream(bench.device))
        with torch.cuda.stream(stream):
            for _ in range(next(turns)):
                torch.mm(a, a)
        return launch()

    return way


def _elsewhere(bench: Bench) -> Way:
    import torch

    stream = torch.cuda.Stream(bench.device)  # type: ignore[no-untyped-call]

    def way(launch: Launch) -> Outputs:
        here = torch.cuda.current_stream(bench.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            outputs = launch()
        here.wait_stream(stream)
        for y in outputs:
            y.record_stream(here)
        return outputs

    return way
