"""The parent's end of one fresh process: asks for items one by one and reads what comes back.

One by one, because only pytest knows what comes next: `-x` stops, xdist hands out items as workers become free,
other plugins reorder. The worker waits at a named pipe (the gate) before each item. What it answers is journalled
by `samebits.isolate`: each report is on disk before the next item starts.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samebits.isolate.protocol import Death, Job
    from samebits.isolate.supervisor import Supervisor


@dataclass
class Answer:
    """Everything that is known of one item once it is over."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    death: Death | None = None
    """How the process ended while the item ran, if it did."""
    lost: Death | None = None
    """Why the item could not run at all: the machine."""
    seconds: float = 0.0

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Messages of one type."""
        return [m for m in self.messages if m["type"] == kind]


class Remote:
    """A process for one group of items, and those that follow it should it die.

    Args:
        supervisor: starts it.
        job: its cases are the node ids that may be asked for.
        gate: where to make the named pipe.
    """

    def __init__(self, supervisor: Supervisor, job: Job, gate: Path) -> None:
        os.mkfifo(gate)
        # For reading, too: then opening does not wait, and a request survives a worker that dies before it.
        self._gate = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
        self._events = supervisor.run(job)
        self._left = set(job.cases)
        self._lost: Death | None = None
        self._waiting = False
        """A worker is alive and waits at the gate."""

    def can_run(self, nodeid: str) -> bool:
        """Whether the item may still be asked for here."""
        return nodeid in self._left

    def run(self, nodeid: str, following: str | None) -> Answer:
        """Run one item; `following` comes next, and decides which fixtures stay."""
        from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, SuiteFailed

        self._left.discard(nodeid)
        if self._lost is not None:
            return Answer(lost=self._lost)
        answer = Answer()
        self._ask({"run": nodeid, "next": following})
        for event in self._events:
            if isinstance(event, CaseData):
                answer.messages.append(dict(event.data))
            elif isinstance(event, CaseEnded):
                answer.seconds, self._waiting = event.seconds, True
                return answer
            elif isinstance(event, CaseDied):
                answer.death, answer.seconds, self._waiting = event.death, event.seconds, False
                return answer
            elif isinstance(event, SuiteFailed):
                answer.lost = self._lost = event.death
                self._waiting = False
                return answer
        raise RuntimeError(f"the process of {nodeid} ended without a word")  # a job has no such end

    def finish(self) -> str:
        """Let the process end properly; returns what went wrong in that, or nothing."""
        from samebits.isolate.protocol import CaseData, CaseDied, SuiteFailed

        problem = ""
        if self._waiting:
            self._ask({"end": True})
            for event in self._events:
                if isinstance(event, CaseData) and event.data["type"] == "finished":
                    problem = str(event.data.get("problem", ""))
                    break
                if isinstance(event, SuiteFailed | CaseDied):
                    problem = event.death.message
                    break
        self.close()
        return problem

    def close(self) -> None:
        """End the process now."""
        self._events.close()
        with contextlib.suppress(OSError):
            os.close(self._gate)
        self._gate = -1

    def _ask(self, request: dict[str, Any]) -> None:
        os.write(self._gate, json.dumps(request).encode() + b"\n")


def plain(value: Any) -> Any:
    """JSON types only; what has none becomes its repr."""
    return json.loads(json.dumps(value, default=repr))


def tuples(pairs: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """JSON has no tuples, and pytest looks for some."""
    return [tuple(p) for p in pairs]
