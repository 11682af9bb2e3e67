"""Each control of a check, run through all checks, gets the cause it was built with; so do kinds of our own."""

from __future__ import annotations

import pytest
import torch

from samebits import checks, diagnose
from samebits.engine.result import CaseResult, CheckResult, Finding, Status
from samebits.engine.subject import Subject
from samebits.session.case import run_subject

BUILT_WITH = {
    "batch-size": "dispatch-by-M",
    "solo": "dispatch-by-M",
    "replay": "position",
    "prefix": "cross-row",
    "permutation": "position",
    "duplicates": "position",
    "neighbours": "cross-row",
    "repeat": "arrival-order",
    "history": "stale-state",
    "padding": "padding-read",
    "layout": "layout-path",
    "out-contract": "out-contract",
}
"""Check id -> cause of its control, by what the control does (see its docstring)."""


@pytest.mark.parametrize("check_id", BUILT_WITH)
def test_the_control_of_a_check_gets_its_cause(check_id: str) -> None:
    torch.set_num_threads(1)
    subject = checks.get(check_id).control()
    ids = [i for i in checks.IDS if i not in ("processes", "flag")]
    result = run_subject(subject, max_batch=40, budget=0.5, checks=ids)
    own = next(c for c in result.checks if c.check == check_id)
    assert own.findings, "the control was not caught"
    assert own.findings[0].cause.split(":")[0] == BUILT_WITH[check_id]


@pytest.mark.parametrize(("check_id", "cause"), [("processes", "autotune-per-process"), ("flag", "cached-flag")])
def test_the_controls_of_fresh_processes_get_their_cause(
    check_id: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    check = checks.get(check_id)
    ref = getattr(check, "control_ref", None)
    result = run_subject(check.control(), max_batch=4, checks=["batch-size", "duplicates", check_id], ref=ref)
    own = result.checks[-1]
    assert own.findings, own.reason
    assert own.findings[0].cause.split(":")[0] == cause


def test_fresh_memory_that_is_read_is_uninitialised() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        workspace = torch.empty(x.shape[0], x.shape[1])
        workspace[:, 1:] = x[:, 1:]
        return torch.where(torch.isfinite(workspace), workspace, torch.ones_like(x) * 7)

    rows = torch.randn(4, 300, generator=torch.Generator().manual_seed(0))
    result = run_subject(Subject(kernel, (rows,), derive=False), max_batch=4, checks=["padding"])
    assert result.findings[0].cause.startswith("uninitialised: ")


@pytest.mark.parametrize("fill", [lambda x: x.mul_(2), lambda x: x.zero_()], ids=["scaled", "cleared"])
def test_a_kernel_that_writes_to_its_rows_is_put_down_to_that(fill) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        fill(x)
        return y

    rows = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))
    result = run_subject(Subject(kernel, (rows,)), max_batch=9, budget=0.3)
    assert "out-contract" in {f.check for f in result.findings}
    assert len({f.check for f in result.findings}) > 1, "it imitates other faults"
    assert {f.cause.split(":")[0] for f in result.findings} == {"out-contract"}
    assert all("writes to its row inputs" in f.cause for f in result.findings)


def test_every_finding_of_a_racing_kernel_is_put_down_to_arrival() -> None:
    calls = iter(range(10**6))
    subject = Subject(lambda x: x + next(calls) % 5, (torch.randn(4, 300),), derive=False)
    result = run_subject(subject, max_batch=8, checks=["batch-size", "duplicates", "repeat"])
    assert result.status is Status.FLAKY
    assert {f.cause.split(":")[0] for f in result.findings} == {"arrival-order"}


def test_the_edges_of_the_map_are_named() -> None:
    result = run_subject(checks.get("batch-size").control(), max_batch=40, checks=["batch-size"])
    assert "(edges at M = " in result.findings[0].cause


def found(*ids: str, **details: object) -> CaseResult:
    findings = {i: [Finding(i, "value", "m", details=dict(details))] for i in ids}
    return CaseResult("c", checks=[CheckResult(i, Status.DIVERGED, findings=findings[i]) for i in ids])


@pytest.mark.parametrize(
    ("result", "which", "cause"),
    [
        (found("processes"), 0, "autotune-per-process"),
        (found("flag"), 0, "cached-flag"),
        (found("padding", poisoned="fresh torch.empty workspaces holding 0xFF"), 0, "uninitialised"),
        (found("padding", poisoned="scale padding holding 0xFF"), 0, "padding-read"),
        (found("batch-size", "neighbours"), 0, "cross-row"),
        (found("batch-size", "duplicates"), 0, "position"),
        (found("batch-size", "duplicates", edges=[25]), 0, "dispatch-by-M"),
        (found("processes", "layout"), 0, "unknown"),
    ],
)
def test_patterns(result: CaseResult, which: int, cause: str) -> None:
    assert diagnose.cause(result, result.checks[which]).split(":")[0] == cause


def test_causes_are_told_apart_by_id() -> None:
    ids = [c.id for c in diagnose.CAUSES]
    assert len(set(ids)) == len(ids)
    assert all(c.says and c.do for c in diagnose.CAUSES)
