"""The parent's side: run jobs in fresh processes, over as many workers as their deaths take."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator
from pathlib import Path
from types import TracebackType

from samebits.errors import InfrastructureError
from samebits.isolate.attempt import Attempt
from samebits.isolate.environment import child_environment
from samebits.isolate.process import TemplateProcess, Worker
from samebits.isolate.protocol import CaseDied, Death, Event, Job, SuiteFailed

TEMPLATES = 4
"""Environments kept warm at once: each holds a process with torch in it, some 200 MB."""
TRIES = 2
"""A suite whose worker dies this often outside any case, without progress, is given up."""

Environment = tuple[tuple[str, str], ...]


class Supervisor:
    """Runs jobs one after another, each in fresh processes; jobs with one environment share a template.

    Args:
        directory: journals, output and dumps of the workers go here, one folder per worker.
        start: "template" or "spawn", over the job's own.
        deadline: seconds per case, over the job's own; what the job says of a single case comes first.
    """

    def __init__(self, directory: Path, *, start: str | None = None, deadline: float | None = None) -> None:
        self.directory, self._start, self._deadline = directory, start, deadline
        self._templates: dict[tuple[Environment, tuple[str, ...]], TemplateProcess] = {}
        self._workers = 0
        directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every template, and with it every worker."""
        while self._templates:
            self._templates.popitem()[1].close()

    def run(self, job: Job) -> Generator[Event, None, None]:
        """Run a job to its end. Closing the iterator, or an exception such as Ctrl-C, kills the worker first.

        Never raises for what happens to the processes: a machine that cannot run them is a `SuiteFailed`.
        """
        remaining, failures = job.cases, 0
        while remaining:
            try:
                attempt = Attempt(job, remaining, self._folder(), self._deadline or job.deadline)
                # Closed at once when this generator is, not when the collector comes by.
                with contextlib.closing(
                    attempt.events(lambda spec, notify: self._launch(job, spec, notify))
                ) as all_:
                    yield from all_
            except (OSError, InfrastructureError) as error:
                yield SuiteFailed(job.suite, _machine(job, error), remaining)
                return
            death = attempt.death
            if death is None:
                return
            progress = len(remaining)
            remaining = tuple(c for c in remaining if c not in attempt.ended and c != attempt.died)
            if attempt.died is not None:
                yield CaseDied(job.suite, attempt.died, death, attempt.seconds)
            failures = 0 if len(remaining) < progress else failures + 1
            outside = attempt.died is None
            if death.kind == "disk" or (outside and (not remaining or failures >= TRIES)):
                if remaining or outside:
                    yield SuiteFailed(job.suite, death, remaining)
                return

    def _folder(self) -> Path:
        self._workers += 1
        path = self.directory / f"worker-{self._workers:03d}"
        path.mkdir()
        return path

    def _launch(self, job: Job, spec: Path, notify: int) -> Worker:
        cold = (self._start or job.start) == "spawn"
        env = child_environment(job.env)
        modules = () if cold else job.preload
        # The whole environment, not the job's part alone: this process's may have changed since the last job.
        key = (tuple(sorted(env.items())), modules)
        template = self._templates.get(key)
        if template is None or not template.alive:
            if template is not None:
                template.close()
            self._make_room()
            template = TemplateProcess(env, modules, self.directory / "template.log")
        self._templates.pop(key, None)
        self._templates[key] = template  # the last used comes last
        return template.start(spec, notify, cold=cold)

    def _make_room(self) -> None:
        idle = [key for key, template in self._templates.items() if not template.busy]
        for key in idle[: max(0, len(self._templates) + 1 - TEMPLATES)]:
            self._templates.pop(key).close()


def _machine(job: Job, error: Exception) -> Death:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Death("disk" if full else "exit", f"the process of suite {job.suite} could not run: {error}", None)
