"""Run suites, each in fresh processes, and fold what they say into evidence.

This process never imports torch: suites are read in a child, and run by `samebits.isolate`.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from samebits.engine import locate
from samebits.engine.locate import Ref
from samebits.engine.suite import FLAG, Expect
from samebits.engine.verdict import Verdict
from samebits.errors import ExitCode, InfrastructureError, UsageError
from samebits.isolate.protocol import Death, Event, Job
from samebits.report.environment import environment
from samebits.report.evidence import Evidence, new_directory
from samebits.report.model import CaseRecord, RunRecord, SuiteRecord

SUITE_ENTRY = "samebits.session.serve:run_suite"
SUBJECT_ENTRY = "samebits.session.serve:run_reference"


@dataclass(frozen=True)
class Options:
    """How to run."""

    seed: int = 0
    max_batch: int | None = None
    budget: float = 5.0
    """Seconds that one check may spend beyond its fixed plan."""
    deadline: float = 300.0
    """Seconds after which a case counts as hung."""
    start: str = "template"
    checks: tuple[str, ...] = ()
    """Check ids; empty: all that apply."""
    cases: tuple[str, ...] = ()
    """Globs over case ids; empty: all."""
    strict: bool = False
    output: Path | None = None
    """Parent folder of this run's; None: .samebits here."""


class Listener:
    """Told of a run as it goes. Does nothing: override what is needed."""

    def reading(self) -> None:
        """Suites are being read, which takes as long as importing torch."""

    def planned(self, evidence: Evidence) -> None:
        """All cases are known; none has run."""

    def event(self, event: Event) -> None:
        """Something happened; already folded into the evidence."""

    def case_ended(self, suite: SuiteRecord, case: CaseRecord) -> None:
        """A case is over, in whatever way."""

    def suite_ended(self, suite: SuiteRecord) -> None:
        """Every case of a suite is over."""


def run_suites(
    names: Sequence[str] = (), options: Options | None = None, listener: Listener | None = None
) -> Evidence:
    """Run suites and write their evidence.

    Args:
        names: installed suites or importable modules; none: every installed suite.
        options: how.
        listener: told as it goes.

    Raises:
        UsageError: no such suite, or one asked for by name that cannot be read as a suite.
        InfrastructureError: suites could not be read at all.
    """
    options, listener = options or Options(), listener or Listener()
    modules = resolve(names)
    listener.reading()
    described = locate.describe(modules)
    run = RunRecord()
    for module in modules:
        suite = _plan(module, described[module], options, named=bool(names))
        if suite.name in run.suites:
            raise UsageError(
                f"two suites are called {suite.name}", found=f"{run.suites[suite.name].module}, {module}"
            )
        run.suites[suite.name] = suite
    if options.cases and not run.cases:
        known = [c["id"] for d in described.values() for c in d.get("cases", ())]
        raise UsageError(
            "no case has such an id",
            found=", ".join(options.cases),
            allowed=", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else ""),
            fix="samebits list SUITE",
        )
    jobs = [job for suite in run.suites.values() for job in _jobs(suite, described[suite.module], options)]
    return _execute(run, jobs, options, listener)


def run_subject(ref: Ref, options: Options | None = None, listener: Listener | None = None) -> Evidence:
    """Check one subject named `MODULE:NAME`, in a fresh process.

    Raises:
        UsageError: as `run_suites`; what the worker refuses is in the evidence instead.
    """
    options = options or Options()
    name = f"{ref.module}:{ref.name}"
    env = {FLAG: os.environ.get(FLAG, "1"), **ref.env}
    case = CaseRecord(name, Expect.INVARIANT, options.seed, env, chosen=bool(options.checks))
    suite = SuiteRecord(ref.module, ref.module, "", {name: case}, whole=False, excuse="one subject has no control")
    payload = {"ref": ref.to_json(), **_payload(options)}
    job = Job(
        suite.name, SUBJECT_ENTRY, payload, (name,), _with_here(env), options.start, options.deadline
    )  # fmt: skip
    return _execute(RunRecord({suite.name: suite}), [job], options, listener or Listener())


def resolve(names: Sequence[str]) -> list[str]:
    """Modules of the named suites, or of all installed ones.

    Raises:
        UsageError: a name that is neither an installed suite nor looks like a module.
    """
    installed = locate.installed_suites()
    if not names:
        if not installed:
            raise UsageError("no suites are installed", fix="pip install a package that offers samebits.suites")
        return list(installed.values())
    modules = [installed.get(name, name) for name in names]
    for name, module in zip(names, modules, strict=True):
        if name not in installed and not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(
                "no such suite", found=repr(name), allowed=", ".join(installed) or "importable modules",
                fix="samebits list",
            )  # fmt: skip
    return list(dict.fromkeys(modules))


def _plan(module: str, described: Mapping[str, Any], options: Options, named: bool) -> SuiteRecord:
    if "error" in described:
        usage = described.get("class") == "usage"
        if usage and named:
            raise UsageError(str(described["error"]))
        code = ExitCode.USAGE if usage else ExitCode.INFRASTRUCTURE
        name = module.rpartition(".")[2]
        return SuiteRecord(name, module, problem=Verdict(False, "cannot be read", str(described["error"]), code))
    suite = SuiteRecord(described["suite"], module, described.get("summary", ""))
    suite.whole = not (options.cases or options.checks)
    for case in [*described["cases"], *_configurations(described["cases"], options.cases)]:
        if options.cases and not any(fnmatch.fnmatchcase(case["id"], glob) for glob in options.cases):
            continue
        suite.cases[case["id"]] = CaseRecord(
            case["id"], Expect(case["expect"]), options.seed, case["env"],
            strict=options.strict, chosen=bool(options.checks),
        )  # fmt: skip
    return suite


def _configurations(cases: Sequence[Mapping[str, Any]], globs: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Single configurations of a search that are asked for by name: "dense[k=64]" where "dense" is a search."""
    searches = {c["id"]: c for c in cases if c.get("search")}
    for glob in globs:
        literal = re.sub(r"\[([*?\[])\]", r"\1", glob)
        base = literal.partition("[")[0]
        if base in searches and literal != base:
            yield {**searches[base], "id": literal}


def _jobs(suite: SuiteRecord, described: Mapping[str, Any], options: Options) -> Iterator[Job]:
    """One per environment, in the order in which the suite first mentions it."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for case in suite.cases.values():
        groups.setdefault(tuple(sorted(case.env.items())), []).append(case.id)
    deadlines = {c["id"]: float(c["deadline"]) for c in described.get("cases", ()) if c.get("deadline")}
    for env, cases in groups.items():
        yield Job(
            suite=suite.name,
            entry=SUITE_ENTRY,
            payload={"suite": suite.module, **_payload(options)},
            cases=tuple(cases),
            env=_with_here(dict(env)),
            start=options.start,
            deadline=options.deadline,
            deadlines={c: deadlines[c] for c in cases if c in deadlines},
        )


def _payload(options: Options) -> dict[str, Any]:
    return {
        "seed": options.seed,
        "max_batch": options.max_batch,
        "budget": options.budget,
        "checks": list(options.checks) or None,
    }


def _with_here(env: Mapping[str, str]) -> dict[str, str]:
    """The current folder is importable, as it is for `python -m`."""
    path = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), **env}


def _execute(run: RunRecord, jobs: Sequence[Job], options: Options, listener: Listener) -> Evidence:
    from samebits.isolate.supervisor import Supervisor

    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    kept = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(options).items()}
    evidence = Evidence(run, new_directory(options.output), environment(), command, kept)
    evidence.save()
    listener.planned(evidence)
    started = time.perf_counter()
    told: set[str] = set()

    def tell_ended() -> None:
        for suite in run.suites.values():
            if suite.name not in told and suite.ended:
                told.add(suite.name)
                listener.suite_ended(suite)

    tell_ended()
    try:
        with Supervisor(
            evidence.directory / "journal", start=options.start, deadline=options.deadline
        ) as supervisor:
            for job in jobs:
                try:
                    for event in supervisor.run(job):
                        case = run.fold(event)
                        run.seconds = time.perf_counter() - started
                        listener.event(event)
                        if case is not None:
                            evidence.end(case)
                            listener.case_ended(run.suites[event.suite], case)
                except (InfrastructureError, OSError) as error:
                    _lose(run.suites[job.suite], job, str(error))
                tell_ended()
    except KeyboardInterrupt:
        run.interrupted = True
    except (InfrastructureError, OSError) as error:
        for job in jobs:
            _lose(run.suites[job.suite], job, str(error))
        tell_ended()
    run.seconds = time.perf_counter() - started
    evidence.finish()
    return evidence


def _lose(suite: SuiteRecord, job: Job, message: str) -> None:
    """The machine failed under this job: what had ended stands, the rest is lost."""
    suite.death = suite.death or Death("disk" if "space" in message else "exit", message, None)
    for case_id in job.cases:
        case = suite.cases[case_id]
        if case.state in ("planned", "running"):
            case.state, case.reason = "lost", message
