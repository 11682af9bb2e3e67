from __future__ import annotations

from collections.abc import Callable

from samebits.engine.result import CaseResult
from samebits.report.junit import properties


def test_properties_are_strings_and_say_what_matters(result: Callable[..., CaseResult]) -> None:
    case = result("diverged", "passed", "skipped")
    case.facts["contract"] = {"backend": "cpu", "batch_invariant": True}
    found = properties(case)
    assert all(isinstance(k, str) and isinstance(v, str) and v for k, v in found)
    named = dict(found)
    assert len(named) == len(found), "no name twice"
    assert named["samebits.status"] == "diverged"
    assert named["samebits.checks"] == "batch-size, solo"
    assert named["samebits.pairs"] == "65792"
    assert named["samebits.contract.backend"] == "cpu"
    assert named["samebits.replay"].startswith("samebits replay")


def test_empty_case_has_no_empty_properties() -> None:
    assert dict(properties(CaseResult("x"))) == {
        "samebits.status": "skipped",
        "samebits.expect": "invariant",
        "samebits.seed": "0",
        "samebits.pairs": "0",
        "samebits.launches": "0",
    }
