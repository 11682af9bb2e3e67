"""How much a run covers: minutes on a laptop in dev and ci, what it takes under `SAMEBITS_PROFILE=nightly`.

Read when a suite is imported, since the grid of cases depends on it.
"""

from __future__ import annotations

import os
from typing import TypeVar

from samebits.checks import IDS
from samebits.errors import UsageError

VARIABLE = "SAMEBITS_PROFILE"
PROFILES = ("dev", "ci", "nightly")
T = TypeVar("T")

ONE_PROCESS = tuple(i for i in IDS if i not in ("processes", "flag"))
"""Checks that start no processes of their own. Ten fresh processes a case are some four seconds, so the default
profile spends them on a few cases of every kernel, and the nightly one on all."""


def profile() -> str:
    """The profile that the environment asks for.

    Raises:
        UsageError: none of "dev", "ci" and "nightly".
    """
    name = os.environ.get(VARIABLE) or PROFILES[0]
    if name not in PROFILES:
        raise UsageError(f"{VARIABLE} names a profile", found=repr(name), allowed=", ".join(PROFILES))
    return name


def by_profile(default: T, nightly: T) -> T:
    """`nightly` in the nightly profile, else `default`."""
    return nightly if profile() == "nightly" else default


def most_checks() -> tuple[str, ...] | None:
    """For `checks=`: `ONE_PROCESS`, or all that apply in the nightly profile."""
    return by_profile(ONE_PROCESS, None)
