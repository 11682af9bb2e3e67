"""The checks, one a file, in the order in which they run.

Listing ids is cheap: a check's module is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from samebits.errors import UsageError

if TYPE_CHECKING:
    from samebits.checks.protocol import Check

IDS = (
    "batch-size",
    "solo",
    "replay",
    "permutation",
    "duplicates",
    "neighbours",
    "prefix",
    "repeat",
    "history",
    "padding",
    "layout",
    "out-contract",
    "flag",
    "processes",
)
"""Every check: the sweep over the batch sizes first, those that start processes last."""


def all_checks() -> tuple[Check, ...]:
    """Every check, in order."""
    return tuple(get(name) for name in IDS)


def get(name: str) -> Check:
    """The check with the id `name`.

    Raises:
        UsageError: no such check; names those that exist.
    """
    if name not in IDS:
        raise UsageError("no such check", found=repr(name), allowed=", ".join(IDS), fix=_nearest(name))
    return cast("Check", import_module(f"{__name__}.{name.replace('-', '_')}").CHECK)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.replace("_", "-"), IDS, n=1)
    return f"did you mean {near[0]}?" if near else "`samebits list --checks` says what each does"
