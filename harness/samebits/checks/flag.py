"""The kernel library runs with the flag that the environment says."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from samebits.checks.fresh import NO_NAME, Launches, Outcome
from samebits.engine.result import CheckResult, Power, Status
from samebits.engine.subject import Subject
from samebits.engine.suite import FLAG

if TYPE_CHECKING:
    from samebits.engine.bench import Bench
    from samebits.engine.record import Record

SIZES = (1, 17, 256)
"""Batch sizes besides the whole pool."""
VALUES = ("0", "1")
"""The only ones that native readers (atoi) and Python readers understand alike."""


class Flag:
    """`VLLM_BATCH_INVARIANT` as the library has read it, and the control value run first does not stick."""

    id = "flag"
    title = "The library has read the flag that the environment holds, and a run without it leaves no trace"

    def applies(self, bench: Bench) -> str | None:
        """Needs the flag in the environment, and a probe or an importable subject."""
        value = os.environ.get(FLAG)
        if value is None:
            return f"{FLAG} is not set in this process: nothing to hold the library to (suites set it)"
        if value not in VALUES:
            return f"{FLAG}={value!r}: native code reads another value than Python does; set 0 or 1"
        if bench.ref is None and bench.subject.probe is None:
            return f"no probe to ask, and {NO_NAME}"
        return None

    def run(self, bench: Bench) -> CheckResult:
        """Ask the probe here; then a fresh process with 0 and, after it, a fresh one with 1."""
        rec = bench.open(self.id)
        value = os.environ[FLAG]
        done: list[str] = []
        asked = _probe(rec, bench.subject.probe() if bench.subject.probe else None, value, "this process")
        if asked:
            done.append(f"probe asked with {FLAG}={value}")
        differs: bool | None = None
        lost: Outcome | None = None
        if value == "0":
            rec.notes.append(f"{FLAG}=0 here: whether the control value sticks is checked where it is 1")
        elif bench.ref is None:
            rec.notes.append(f"whether the control value sticks was not checked: {NO_NAME}")
        else:
            differs, lost = _sequence(rec, bench)
            done.append("a fresh process with 0, then a fresh one with 1, against this one")
        result = rec.close(
            coverage="; ".join(done) or "nothing", power=_power(bench, asked=asked, differs=differs)
        )
        if lost is not None and not rec.findings:
            result.status = Status.CRASHED if lost.died else Status.ERROR
            result.reason = f"the process with {FLAG}=1: {lost.died or lost.error}"
        return result

    def control(self) -> Subject:
        """A library that has cached the environment before the flag was set: it runs with 0.

        Stands for native code that reads the flag once, at its first GEMM or at load. Needs the flag set to 1.
        """
        import torch

        rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
        return Subject(torch.abs, (rows,), name="flag cached too early", probe=lambda: {FLAG: 0}, derive=False)


def _sequence(rec: Record, bench: Bench) -> tuple[bool | None, Outcome | None]:
    """(whether the free mode gives other bits, None if unknown; the process with 1 if it gave no answer)."""
    sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)})
    with Launches(bench, "flag", sizes) as launches:
        free = launches.repeat({FLAG: "0"})
        pinned = launches.repeat({FLAG: "1"})
    differs: bool | None = None
    if free.complete:
        differs = bool(free.findings)
        _probe(rec, free.probe, "0", "a fresh process with 0")
        if not differs:
            rec.notes.append("free mode shows no difference on these rows")
    else:
        rec.notes.append(f"the process with {FLAG}=0 gave no answer: {free.died or free.error}")
    if not pinned.complete:
        return differs, pinned
    _probe(rec, pinned.probe, "1", "a fresh process with 1 that follows one with 0")
    rec.flaky = rec.flaky or pinned.flaky
    rec.findings += [
        dataclasses.replace(f, message=f"{f.message} with {FLAG}=1, started after one with 0")
        for f in pinned.findings
    ]
    return differs, None


def _probe(rec: Record, said: Mapping[str, Any] | None, value: str, where: str) -> bool:
    """Compare what the library has read with the environment; False where there is nothing to compare."""
    if said is None or FLAG not in said:
        known = "no probe" if said is None else f"the probe does not tell {FLAG}"
        if known not in rec.notes:
            rec.notes.append(known)
        return False
    read = said[FLAG]
    try:
        agrees = int(read or 0) == int(value)
    except (TypeError, ValueError):
        agrees = False
    if not agrees:
        rec.contract(
            f"the library runs with {FLAG}={read} although the environment of {where} says {value}: "
            "it read the flag before it was set, or keeps it elsewhere",
            read=str(read), environment=value, where=where,
        )  # fmt: skip
    return True


def _power(bench: Bench, *, asked: bool, differs: bool | None) -> Power:
    if asked:
        return Power(True, bench.elements, None, "the probe tells what the library has read")
    if differs:
        return Power(True, bench.elements, None, "free mode gives other bits on these rows")
    why = "free mode shows no difference on these rows" if differs is False else "free mode was not seen"
    return Power(False, bench.elements, None, f"no probe, and {why}: a flag that sticks could not show")


CHECK = Flag()
