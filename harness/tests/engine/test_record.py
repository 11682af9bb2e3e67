"""The verdict of a check: findings decide, flaky outranks, and silence without power is not a pass."""

from __future__ import annotations

import torch

from samebits.engine.bench import Bench
from samebits.engine.result import CaseResult, CheckResult, Finding, Power, Status
from samebits.engine.subject import Subject


def record(rows: torch.Tensor | None = None) -> tuple[Bench, torch.Tensor]:
    x = torch.randn(4, 300) if rows is None else rows
    bench = Bench(Subject(lambda t: t * 2, (x,), derive=False), max_batch=8)
    return bench, bench.full[0]


def test_agreement_passes_and_difference_is_a_finding() -> None:
    bench, y = record()
    rec = bench.open("solo")
    assert rec.compare((y,), (y.clone(),), "never")
    assert rec.close(coverage="c", power=Power(True, 300)).status is Status.PASSED

    other = y.clone()
    other[2, 7] = torch.nextafter(other[2, 7], torch.tensor(torch.inf))
    rec = bench.open("solo")
    assert not rec.compare((other,), (y,), lambda p: f"row at {p}", rows=[3, 2, 1, 0], batch=4, against=1)
    result = rec.close(coverage="c")
    assert result.status is Status.DIVERGED
    (finding,) = result.findings
    assert (finding.row, finding.position, finding.mismatched, finding.total) == (1, 2, 1, 300)
    assert finding.first is not None
    assert finding.first.index == (7,)
    assert finding.first.ulp == 1
    assert finding.message == "row at 2"


def test_a_launch_that_disagrees_with_itself_is_flaky() -> None:
    bench, y = record()
    rec = bench.open("solo")
    wrong = y + 1
    rec.compare((wrong,), (y,), "differs", again=lambda: (y,))
    assert rec.close(coverage="c").status is Status.FLAKY

    rec = bench.open("solo")
    rec.compare((wrong,), (y,), "differs", again=lambda: (wrong.clone(),))
    assert rec.close(coverage="c").status is Status.DIVERGED


def test_another_shape_or_dtype_is_a_finding_of_its_own_kind() -> None:
    bench, y = record()
    rec = bench.open("solo")
    rec.compare((y[:, :5],), (y,), "differs")
    rec.compare((y.double(),), (y,), "differs")
    assert [f.kind for f in rec.findings] == ["shape", "dtype"]


def test_no_finding_without_power_is_no_power() -> None:
    bench, _ = record()
    rec = bench.open("solo")
    result = rec.close(coverage="c", power=Power(False, 300, how="nothing could differ"))
    assert (result.status, result.reason) == (Status.NO_POWER, "nothing could differ")


def test_few_elements_are_said() -> None:
    bench, _ = record(torch.randn(4, 3))
    result = bench.open("solo").close(coverage="c", power=Power(True, 3))
    assert result.notes == ["only 3 output elements per row"]


def test_results_survive_json() -> None:
    bench, y = record()
    rec = bench.open("solo")
    rec.compare((y + 1,), (y,), "differs", rows=range(4))
    case = CaseResult("c", checks=[rec.close(coverage="x", power=Power(True, 300, 0.5, "h"))], facts={"a": [1]})
    assert CaseResult.from_json(case.to_json()) == case


def test_a_case_is_as_bad_as_its_worst_check() -> None:
    def case(*statuses: Status) -> Status:
        return CaseResult("c", checks=[CheckResult("x", s) for s in statuses]).status

    assert case() is Status.SKIPPED
    assert case(Status.SKIPPED, Status.SKIPPED) is Status.SKIPPED
    assert case(Status.NO_POWER, Status.SKIPPED) is Status.NO_POWER
    assert case(Status.PASSED, Status.NO_POWER) is Status.PASSED
    blind = CheckResult("batch-size", Status.NO_POWER)
    assert CaseResult("c", checks=[blind, CheckResult("solo", Status.PASSED)]).status is Status.NO_POWER
    assert case(Status.PASSED, Status.CRASHED) is Status.CRASHED
    assert case(Status.PASSED, Status.DIVERGED, Status.FLAKY) is Status.FLAKY


def test_a_finding_is_hashable_plain_data() -> None:
    assert Finding("solo", "value", "m") == Finding("solo", "value", "m")
