from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import pytest

from samebits.cli.app import _main
from samebits.engine import locate
from samebits.engine.result import CaseResult, CheckResult, Finding, Power, Status
from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, CaseStarted, Death, Event, Job, SuiteFailed

FLAG = {"VLLM_BATCH_INVARIANT": "1"}
FREE = {"VLLM_BATCH_INVARIANT": "0"}


def described(case: str, expect: str = "invariant", env: dict[str, str] = FLAG) -> dict[str, Any]:
    return {
        "module": "pkg.mine", "suite": "mine", "id": case, "expect": expect, "env": env, "deadline": 7.0,
        "checks": None, "max_batch": None, "parameters": {},
    }  # fmt: skip


def case_result(case: str, status: str) -> CaseResult:
    found = [
        Finding("batch-size", "value", "row 3 differs", mismatched=1, total=8, replay=f"samebits replay '{case}'")
    ]
    check = CheckResult(
        "batch-size", Status(status), coverage="all 3 (M, position) pairs, M = 1..2", power=Power(True, 8, 0.5),
        launches=2, pairs=3, findings=found if status in ("diverged", "flaky") else [],
    )  # fmt: skip
    return CaseResult(case, "invariant", 0, [check], {"subject": "kernel"})


class FakeSupervisor:
    """Plays what a test has planned: case id -> a status, signal, hang, lost, skip, usage or an exception."""

    plan: dict[str, Any] = {}  # noqa: RUF012
    jobs: list[Job] = []  # noqa: RUF012
    closed = 0

    def __init__(self, directory: Path, *, start: str = "template", deadline: float = 300.0) -> None:
        self.directory, self.start, self.deadline = directory, start, deadline

    def __enter__(self) -> FakeSupervisor:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        type(self).closed += 1

    def run(self, job: Job) -> Iterator[Event]:
        self.jobs.append(job)
        for i, case in enumerate(job.cases):
            play = self.plan.get(case, "passed")
            if play == "lost":
                yield SuiteFailed(job.suite, Death("exit", "the worker could not start", None), job.cases[i:])
                return
            yield CaseStarted(job.suite, case)
            if isinstance(play, BaseException):
                raise play
            if play in ("signal", "hang"):
                yield CaseDied(job.suite, case, Death(play, f"{play} in {case}", case, stderr="last words"), 0.5)
                continue
            if play == "skip":
                data: dict[str, Any] = {"type": "skip", "reason": "needs a GPU"}
            elif play == "usage":
                data = {"type": "usage", "message": "row inputs must be on one device"}
            else:
                data = {"type": "case", "result": case_result(case, play).to_json()}
            yield CaseData(job.suite, case, data)
            yield CaseEnded(job.suite, case, 0.5)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeSupervisor]:
    """Two installed suites, `mine` and `empty`, and a supervisor that plays `fake.plan`."""
    module = ModuleType("samebits.isolate.supervisor")
    module.Supervisor = FakeSupervisor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "samebits.isolate.supervisor", module)
    monkeypatch.setattr(FakeSupervisor, "plan", {})
    monkeypatch.setattr(FakeSupervisor, "jobs", [])
    monkeypatch.setattr(FakeSupervisor, "closed", 0)
    monkeypatch.chdir(tmp_path)
    suites = {
        "pkg.mine": {
            "suite": "mine",
            "summary": "our kernels",
            "cases": [described("mm"), described("moe"), described("mm-free", "divergence", FREE)],
        },
        "pkg.broken": {"error": "ImportError: no libcuda", "class": "infrastructure"},
        "pkg.wrong": {"error": "cannot import pkg.wrong", "class": "usage"},
    }
    monkeypatch.setattr(locate, "installed_suites", lambda: {"mine": "pkg.mine"})
    monkeypatch.setattr(locate, "describe", lambda modules, env=None: {m: suites[m] for m in modules})
    FakeSupervisor.plan["mm-free"] = "diverged"
    return FakeSupervisor


@pytest.fixture
def samebits(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`samebits("run", "-q")` -> (exit code, standard output, standard error), in this process."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = _main(arguments)
        out, err = capsys.readouterr()
        return int(code), out, err

    return call
