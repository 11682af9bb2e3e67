"""The same bits in every process."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from samebits.checks.fresh import NO_NAME, Launches, Outcome
from samebits.engine.locate import Ref
from samebits.engine.record import MAX_FINDINGS
from samebits.engine.result import CheckResult, Status
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

PROCESSES = 8
"""Fresh processes besides this one: a choice made once a process with a fair coin is missed with 2**-8."""
SIZES = (1, 17, 256)
"""Batch sizes besides the whole pool."""


class Processes:
    """Choices made once a process (autotuning, caches, first-use order) cannot be seen inside one."""

    id = "processes"
    title = "A batch has the same bits in every fresh process, whatever it launched first"

    def applies(self, bench: Bench) -> str | None:
        """Needs a name by which a fresh process finds the subject again."""
        return NO_NAME if bench.ref is None else None

    def run(self, bench: Bench) -> CheckResult:
        """A few launches here, then in fresh processes; every other one starts with the largest."""
        rec = bench.open(self.id)
        sizes = sorted({min(m, bench.max_batch) for m in (*SIZES, bench.probes)})
        orders = [("smallest batch first", False), ("largest batch first", True)]
        outcomes: list[tuple[str, Outcome]] = []
        with Launches(bench, self.id, sizes) as launches:
            for i in range(PROCESSES):
                order, descending = orders[i % 2]
                outcomes.append(
                    (f"process {i + 1} of {PROCESSES}, {order}", launches.repeat(descending=descending))
                )
                if outcomes[-1][1].died:
                    break  # seven more deaths would say nothing new
        complete = [(name, o) for name, o in outcomes if o.complete]
        differ = [(name, o) for name, o in complete if o.findings]
        for name, outcome in differ:
            rec.flaky = rec.flaky or outcome.flaky
            for f in outcome.findings[:1]:
                if len(rec.findings) < MAX_FINDINGS:
                    details = {**f.details, "processes": len(complete), "processes that differ": len(differ)}
                    rec.findings.append(
                        dataclasses.replace(f, message=f"{f.message} than in this one ({name})", details=details)
                    )
        lost = [f"{name}: {o.died or o.error}" for name, o in outcomes if not o.complete]
        listed = ", ".join(map(str, sizes))
        result = rec.close(
            coverage=f"M in {{{listed}}} in {len(complete)} fresh processes and this one; a choice made by a fair "
            f"coin once a process is missed with probability 2**-{len(complete)}",
            pairs=len(complete) * sum(sizes),
            power=None if rec.findings or lost else rec.order_power(),
        )
        if lost and not rec.findings:
            died = any(o.died for _, o in outcomes)
            result.status = Status.CRASHED if died else Status.ERROR
            result.reason = lost[0]
        elif lost:
            result.notes.extend(lost[:1])
        return result

    def control(self) -> Subject:
        """An autotuner that settles on one of several splits of K once a process; see `per_process`."""
        return per_process()

    control_ref = Ref("samebits.checks.processes", "per_process")
    """By which fresh processes find the control: without it the check cannot be made."""


def per_process(seed: int = 0) -> Subject:
    """Row sums split into a number of chains that depends on the process.

    Stands for autotuners that time candidates of different accumulation order and keep the fastest.
    """
    import torch

    chains = 1 + os.getpid() % 7

    def row_sum(x: Tensor) -> Tensor:
        parts = [torch.zeros(x.shape[0]) for _ in range(chains)]
        for k in range(x.shape[1]):
            parts[k % chains] = parts[k % chains] + x[:, k]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total[:, None]

    rows = torch.randn(32, 96, generator=torch.Generator().manual_seed(seed))
    return Subject(row_sum, (rows,), name="split settled once a process", addends=96, derive=False)


CHECK = Processes()
