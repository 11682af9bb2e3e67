"""Which card a process gets, asked of NVML: the CUDA runtime would create a context and poison later forks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache

VISIBLE = "CUDA_VISIBLE_DEVICES"
XDIST_WORKER = "PYTEST_XDIST_WORKER"


@cache
def card_count() -> int:
    """Cards that the driver shows; 0 without a driver or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()


def own_card(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that give the children of an xdist worker one card: its number modulo the cards there are.

    Empty where there is nothing to choose: not an xdist worker, or fewer than two cards to choose from.
    """
    environ = os.environ if environ is None else environ
    number = re.fullmatch(r"gw(\d+)", environ.get(XDIST_WORKER, ""))
    if number is None:
        return {}
    listed = environ.get(VISIBLE)
    cards = [c.strip() for c in listed.split(",") if c.strip()] if listed else []
    if listed is None:
        cards = [str(i) for i in range(card_count())]
    return {VISIBLE: cards[int(number[1]) % len(cards)]} if len(cards) > 1 else {}
