"""One worker over the cases that remain, from its start to its end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from samebits.isolate.death import describe, oom_kills
from samebits.isolate.journal import JournalReader
from samebits.isolate.process import STARTUP, Worker
from samebits.isolate.protocol import CaseData, CaseEnded, CaseStarted, Death, Event, Job
from samebits.isolate.worker import CONDEMNED

GRACE = 0.3
"""Seconds between asking a hung worker for its stacks, asking it to end, and ending it."""
LAST = 10.0
"""Seconds after SIGKILL before a process stuck in the kernel is left to it."""
GLANCE = 0.5
"""Seconds between looks at a worker that says nothing: wake-ups through the pipe come at once."""

Launch = Callable[[Path, int], Worker]
"""(spec, write end of the wake-up pipe) -> the started worker."""


class Attempt:
    """Follows one worker's journal. `death` tells how it ended, if it should not have.

    Args:
        job: whose cases.
        cases: those that remain.
        folder: for the worker's files; new and empty.
        deadline: seconds that a case may take; the job's own for a case comes first.
    """

    def __init__(self, job: Job, cases: Sequence[str], folder: Path, deadline: float) -> None:
        self._job, self._cases, self._folder, self._deadline = job, tuple(cases), folder, deadline
        self.ended: list[str] = []
        self.death: Death | None = None
        self.died: str | None = None
        """The case that was running when it died."""
        self.seconds = 0.0
        """How long that case had run."""
        self._worker: Worker | None = None
        self._case: str | None = None
        self._since = time.monotonic()
        self._stderr = 0
        self._device: str | None = None
        self._done = False

    def events(self, launch: Launch) -> Generator[Event, None, None]:
        """Everything the worker says, until it has ended."""
        names = ("journal", "stdout", "stderr", "stacks")
        spec = {
            "folder": str(self._folder),
            **{name: str(self._folder / name) for name in names},
            "entry": self._job.entry,
            "payload": dict(self._job.payload),
            "cases": list(self._cases),
            "path": [p for p in sys.path if p],
        }
        file = self._folder / "spec.json"
        file.write_text(json.dumps(spec))
        kills = oom_kills()
        read, write = os.pipe()
        try:
            try:
                self._worker = launch(file, write)
            finally:
                os.close(write)
            self._since = time.monotonic()
            yield from self._follow(JournalReader(self._folder / "journal"), read, self._worker, kills)
        finally:
            os.close(read)
            self.kill()

    def _follow(self, journal: JournalReader, read: int, worker: Worker, kills: int) -> Iterator[Event]:
        watched = [read, worker.fd]
        while True:
            ready = select.select(watched, [], [], max(0.0, min(self._left(), GLANCE)))[0]
            if read in ready and not os.read(read, 4096):
                watched.remove(read)
            status = worker.poll()
            yield from self._fold(journal)
            if status is not None:
                yield from self._fold(journal)
                self._conclude(status, oom=oom_kills() > kills)
                return
            if self._left() <= 0:
                self._end_hung(worker)
                # What it said before the deadline counts; not what it said after it was woken by a signal.
                what = f"no end after {self._limit():g} s {self._where()}"
                self._die(self._describe(signal.SIGKILL, hang=f"hung: {what}"))
                return

    def _conclude(self, status: int, *, oom: bool) -> None:
        left_out = [c for c in self._cases if c not in self.ended]
        if not (self._done and status == 0):
            self._die(self._describe(status, oom=oom))
        elif left_out:
            listed = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else "")
            self._die(Death("exit", f"suite {self._job.suite} ended without running {listed}", None))

    def _fold(self, journal: JournalReader) -> Iterator[Event]:
        suite = self._job.suite
        for record in journal.read():
            kind, case = record["type"], record.get("case", "")
            event: Event
            if kind == "start":
                self._case, self._since, self._stderr = case, time.monotonic(), record["stderr"]
                event = CaseStarted(suite, case)
            elif kind == "result":
                event = CaseData(suite, case, record["data"])
            elif kind == "end":
                self.ended.append(case)
                event = CaseEnded(suite, case, time.monotonic() - self._since)
                self._case, self._since = None, time.monotonic()
            else:
                self._device = record.get("error", self._device)
                self._done = self._done or kind == "done"
                continue
            asked = time.monotonic()
            yield event
            self._since += time.monotonic() - asked  # the reader's own time is not the case's

    def _limit(self) -> float:
        return STARTUP if self._case is None else self._job.deadlines.get(self._case, self._deadline)

    def _left(self) -> float:
        return self._since + self._limit() - time.monotonic()

    def _where(self) -> str:
        if self._case is not None:
            return f"while running case {self._case}"
        return f"after case {self.ended[-1]}" if self.ended else "before its first case"

    def _describe(self, status: int, *, oom: bool = False, hang: str = "") -> Death:
        return describe(
            status, self._case, self._where(), folder=self._folder, stderr_from=self._stderr,
            device=self._device, oom=oom, hang=hang,
        )  # fmt: skip

    def _die(self, death: Death) -> None:
        self.death, self.died = death, self._case
        self.seconds = time.monotonic() - self._since

    def _end_hung(self, worker: Worker) -> None:
        # The signal may wake it: then it must not go on to its next case, which is another worker's.
        with contextlib.suppress(OSError):
            (self._folder / CONDEMNED).touch()
        # faulthandler writes the stacks of all threads at C level, even where native code holds the GIL.
        for number in (signal.SIGUSR1, signal.SIGTERM):
            worker.signal(number)
            worker.poll(GRACE)
        self.kill()

    def kill(self) -> None:
        """End the worker and everything that it started."""
        if self._worker is not None and self._worker.poll() is None:
            with contextlib.suppress(OSError):
                self._worker.signal(signal.SIGKILL, group=True)
                self._worker.poll(LAST)
