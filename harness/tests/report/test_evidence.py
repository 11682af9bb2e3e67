from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from samebits.engine.result import CaseResult, CheckResult
from samebits.engine.suite import Expect
from samebits.errors import ExitCode, InfrastructureError
from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, CaseStarted, Death, SuiteFailed
from samebits.report import evidence as module
from samebits.report.environment import environment
from samebits.report.evidence import SCHEMA_FILE, Evidence, new_directory, write_atomically
from samebits.report.model import CaseRecord, RunRecord, SuiteRecord

Make = Callable[..., CaseResult]
SCHEMA = json.loads(SCHEMA_FILE.read_text())


def run_of(**expects: str) -> RunRecord:
    cases = {name: CaseRecord(name, Expect(e), env={"VLLM_BATCH_INVARIANT": "1"}) for name, e in expects.items()}
    return RunRecord({"mine": SuiteRecord("mine", "pkg.mine", "our kernels", cases)})


def play(run: RunRecord, case: str, *messages: dict[str, Any], end: Any = None) -> None:
    run.fold(CaseStarted("mine", case))
    for message in messages:
        run.fold(CaseData("mine", case, message))
    run.fold(end or CaseEnded("mine", case, 1.5))


def case_message(result: CaseResult) -> dict[str, Any]:
    return {"type": "case", "result": result.to_json()}


@pytest.fixture
def full(result: Make, tmp_path: Path) -> Evidence:
    run = run_of(
        good="invariant", free="divergence", theirs="observed", segv="crash", gone="invariant", bad="invariant"
    )  # fmt: skip
    play(run, "good", case_message(result("passed")))
    play(run, "free", case_message(result("diverged", expect="divergence")))
    play(run, "theirs", case_message(result("flaky", expect="observed")))
    died = CaseDied("mine", "segv", Death("signal", "killed by SIGSEGV", "segv", signal="SIGSEGV"), 0.2)
    play(run, "segv", {"type": "check", "result": result("passed").checks[0].to_json()}, end=died)
    play(run, "gone", {"type": "skip", "reason": "needs sm_90"})
    play(run, "bad", {"type": "usage", "message": "row inputs must have the same number of rows"})
    return Evidence(run, tmp_path, environment(), command=["samebits", "run"], options={"seed": 0})


def test_document_fits_its_schema(full: Evidence) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(full.document(), SCHEMA)
    full.finish()
    jsonschema.validate(json.loads(full.path.read_text()), SCHEMA)


def test_schema_refuses_what_it_does_not_know(full: Evidence) -> None:
    document = full.document()
    document["suites"][0]["cases"][0]["expect"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


def test_cases_carry_verdict_state_and_checks(full: Evidence) -> None:
    cases = {c["id"]: c for c in full.document()["suites"][0]["cases"]}
    assert [(c, d["state"], d["verdict"]["label"]) for c, d in cases.items()] == [
        ("good", "done", "invariant"),
        ("free", "done", "caught"),
        ("theirs", "done", "observed: flaky"),
        ("segv", "died", "contained"),
        ("gone", "skipped", "skipped"),
        ("bad", "done", "usage error"),
    ]
    assert cases["segv"]["death"]["signal"] == "SIGSEGV"
    assert [c["check"] for c in cases["segv"]["checks"]] == ["batch-size"]
    assert cases["free"]["checks"][0]["findings"][0]["first"]["expected"] == "0x3f800001"
    assert full.document()["exit_code"] == ExitCode.USAGE


def test_checks_told_before_a_failed_case_are_kept(result: Make) -> None:
    run = run_of(one="invariant")
    told = {"type": "check", "result": result("diverged").checks[0].to_json()}
    failed = CaseResult(
        "", checks=[CheckResult.from_json({**told["result"], "check": "build", "status": "error"})]
    )
    play(run, "one", told, case_message(failed))
    assert [c.check for c in run.cases[0].checks] == ["batch-size", "build"]
    assert run.exit_code is ExitCode.DIVERGENCE


def test_suite_that_could_not_start_is_infrastructure() -> None:
    run = run_of(one="invariant", two="invariant")
    run.fold(SuiteFailed("mine", Death("exit", "the template died", None), ("one", "two")))
    assert run.exit_code is ExitCode.INFRASTRUCTURE
    assert {c.state for c in run.cases} == {"lost"}


def test_nothing_tested_is_never_green() -> None:
    run = run_of(one="invariant")
    play(run, "one", {"type": "skip", "reason": "needs a GPU"})
    assert run.exit_code is ExitCode.NOTHING_TESTED
    assert RunRecord().exit_code is ExitCode.NOTHING_TESTED


def test_not_a_number_is_still_json(full: Evidence) -> None:
    full.run.cases[0].facts["scale"] = float("nan")
    full.finish()
    assert json.loads(full.path.read_text())["suites"][0]["cases"][0]["facts"]["scale"] == "nan"


def test_full_disk_is_one_clear_text(full: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    full.save()
    before = full.path.read_text()
    full.run.suites["mine"].cases.pop("bad")
    assert full.exit_code is ExitCode.INVARIANT
    monkeypatch.setattr(module.os, "fsync", full_disk)
    full.finish()
    assert "No space left on device" in full.problem
    assert "--output" in full.problem
    assert full.exit_code is ExitCode.INFRASTRUCTURE
    assert full.path.read_text() == before, "the last complete document stays"
    assert [p.name for p in full.directory.iterdir()] == ["evidence.json"]


def test_unwritable_evidence_never_hides_a_divergence(full: Evidence, result: Make) -> None:
    full.run.cases[0].checks = result("diverged").checks
    full.problem = "cannot write"
    assert full.exit_code is ExitCode.DIVERGENCE


def test_folders_are_fresh_and_ignored_by_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Evidence
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = new_directory(), new_directory()
    assert first != second
    assert first.parent == tmp_path / ".samebits"
    assert (first.parent / ".gitignore").read_text() == "*\n"
    for full.directory in (first, second):
        full.finish()
    assert (first.parent / "latest").resolve() == second


def test_place_that_cannot_be_made_is_infrastructure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot write"):
        new_directory(tmp_path / "file" / "deep")
    with pytest.raises(InfrastructureError, match="cannot write"):
        write_atomically(tmp_path / "missing" / "x.json", "{}")
