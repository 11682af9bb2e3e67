"""The launches of a check, made again in processes that have run nothing before."""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samebits.engine import bits
from samebits.engine.locate import Ref
from samebits.engine.result import CheckResult, Finding
from samebits.isolate.protocol import CaseData, CaseDied, Channel, Event, Job, SuiteFailed

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

ENTRY = "samebits.checks.fresh:worker"
DEADLINE = 180.0
"""Seconds one process may take, first-use compilation and the start of a device included."""
TEMPLATES = 3
"""Environments kept warm at once: each holds a process with torch in it."""
PASSING = ("PYTEST_CURRENT_TEST",)
"""Variables that change by themselves and must not cost a new template each time."""
NO_NAME = "a closure has no importable name: use samebits check MODULE:NAME or a suite"

_jobs = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """What one fresh process said."""

    findings: tuple[Finding, ...] = ()
    """Where its bits differ from those of this process."""
    flaky: bool = False
    probe: Mapping[str, Any] | None = None
    launches: int = 0
    died: str = ""
    """How it died or why it could not start; empty where it did not."""
    error: str = ""
    """What it raised."""

    @property
    def complete(self) -> bool:
        """Whether every launch was made."""
        return not (self.died or self.error)


class Launches:
    """A few launches of this process, kept with their inputs so that fresh processes can repeat them.

    Used as a context manager; what it wrote to disk goes at the end.
    """

    def __init__(self, bench: Bench, check: str, sizes: Sequence[int]) -> None:
        assert bench.ref is not None
        self.bench, self.check, self.sizes, self.ref = bench, check, tuple(sizes), bench.ref
        self.expected = {m: tuple(y.clone() for y in bench.run(bench.batch(m)[1])) for m in self.sizes}

    def __enter__(self) -> Launches:
        import torch

        self._folder = Path(tempfile.mkdtemp(prefix="samebits-launches-", dir=os.environ.get("SAMEBITS_WORKER")))
        kept = {
            # The pool itself travels: derived rows are made through the kernel, whose bits are in question.
            "pool": [t.cpu() for t in self.bench.pool],
            "rows": [bits.digest_rows(t).cpu() for t in self.bench.subject.rows],
            "expected": {m: [y.cpu() for y in ys] for m, ys in self.expected.items()},
        }
        torch.save(kept, self._folder / "launches.pt")
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def repeat(self, env: Mapping[str, str] | None = None, *, descending: bool = False) -> Outcome:
        """Make the launches in one fresh process, with the environment of this one and `env` over it."""
        import torch

        case = f"{self.check}-{next(_jobs)}"
        job = Job(
            suite=case,
            entry=ENTRY,
            payload={
                "ref": self.ref.to_json(),
                "seed": self.bench.seed,
                "max_batch": self.bench.max_batch,
                "sizes": sorted(self.sizes, reverse=descending),
                "path": [p or str(Path.cwd()) for p in sys.path],
                "threads": torch.get_num_threads(),
                "launches": str(self._folder / "launches.pt"),
                "check": self.check,
            },
            cases=(case,),
            env={**{k: v for k, v in os.environ.items() if k not in PASSING}, **(env or {})},
            deadline=DEADLINE,
        )
        outcome = _outcome(_supervisor(os.getpid()).run(job))
        self.bench.launches += outcome.launches
        return outcome


def _outcome(events: Iterable[object]) -> Outcome:
    said: Mapping[str, Any] | None = None
    died = ""
    for event in events:
        if isinstance(event, CaseData):
            said = event.data
        elif isinstance(event, CaseDied | SuiteFailed):
            died = died or event.death.message
    if died or said is None:
        return Outcome(died=died or "it ended without a word")
    if said["type"] == "error":
        return Outcome(error=said["message"])
    result = CheckResult.from_json(said["result"])
    return Outcome(
        tuple(result.findings), said["flaky"], said["probe"], result.launches,
        error="the factory is not deterministic: in a fresh process the same seed gives other rows"
        if said["other rows"] else "",
    )  # fmt: skip


class _Supervisor:
    """One a process, with a warm template for each of the last few environments."""

    def __init__(self, pid: int) -> None:
        from samebits.isolate.supervisor import Supervisor

        self._pid, self._environments = pid, set[frozenset[tuple[str, str]]]()
        self._folder = Path(tempfile.mkdtemp(prefix="samebits-fresh-", dir=os.environ.get("SAMEBITS_WORKER")))
        self._supervisor = Supervisor(self._folder)
        atexit.register(self._close)

    def run(self, job: Job) -> Iterable[Event]:
        environment = frozenset(job.env.items())
        if environment not in self._environments and len(self._environments) >= TEMPLATES:
            self._supervisor.close()
            self._environments.clear()
        self._environments.add(environment)
        return self._supervisor.run(job)

    def _close(self) -> None:
        if os.getpid() == self._pid:  # a fork inherits this, and must not end its parent's templates
            self._supervisor.close()
            shutil.rmtree(self._folder, ignore_errors=True)


_supervisor = cache(_Supervisor)


def worker(payload: Mapping[str, Any], channel: Channel) -> None:
    """Entry of a fresh process: the launches of `payload`, compared with those of the process that asks."""
    for case in channel.remaining:
        channel.start(case)
        try:
            said = _repeat(payload)
        except Exception as error:  # the subject may raise anything: the asking process reports it
            where = "".join(traceback.format_exception(error)[-2:]).rstrip()
            said = {"type": "error", "message": f"{type(error).__name__}: {error}", "where": where}
        channel.result(case, said)
        channel.end(case)


def _repeat(payload: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from samebits.engine.bench import Bench

    # What this process could import, the fresh one can: test runners and command lines add folders of their own.
    sys.path.extend(p for p in payload["path"] if p not in sys.path)
    if torch.get_num_threads() != payload["threads"]:  # a choice of the asking process, not of the kernel
        torch.set_num_threads(payload["threads"])
    subject = Ref.from_json(payload["ref"]).subject()
    kept = torch.load(payload["launches"], weights_only=True)
    device = subject.rows[0].device
    rows = [bits.digest_rows(t).cpu() for t in subject.rows]
    same = len(rows) == len(kept["rows"]) and all(map(torch.equal, rows, kept["rows"]))
    pool = tuple(t.to(device) for t in kept["pool"])
    bench = Bench(
        dataclasses.replace(subject, rows=pool, derive=False),
        seed=payload["seed"],
        max_batch=payload["max_batch"],
    )
    rec = bench.open(payload["check"])
    for m in payload["sizes"]:
        index, inputs = bench.batch(m)
        found = bench.run(inputs)
        _compare(bench, rec, index, found, [y.to(device) for y in kept["expected"][m]])
    return {
        "type": "launches",
        "other rows": not same,
        "flaky": rec.flaky,
        "probe": dict(subject.probe()) if subject.probe is not None else None,
        "result": rec.close(coverage="").to_json(),
    }


def _compare(bench: Bench, rec: Any, index: Tensor, found: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    m = len(index)

    def sentence(p: int) -> str:
        return f"row {int(index[p])} at position {p} of M={m} has other bits in a fresh process"

    def again() -> tuple[Tensor, ...]:
        return bench.run(bench.batch(m)[1])

    rec.compare(found, kept, sentence, rows=index, batch=m, against=m, again=again)
