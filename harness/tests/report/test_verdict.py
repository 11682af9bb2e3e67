from __future__ import annotations

from collections.abc import Callable

import pytest

from samebits.engine.result import CaseResult
from samebits.engine.suite import Expect
from samebits.engine.verdict import Verdict, exit_code, judge, judge_suite
from samebits.errors import ExitCode
from samebits.isolate.protocol import Death

Make = Callable[..., CaseResult]

TABLE = [
    # expect, status of the case, ok, label, exit code
    ("invariant", "passed", True, "invariant", 0),
    ("invariant", "diverged", False, "diverges", 1),
    ("invariant", "flaky", False, "flaky", 1),
    ("invariant", "no power", False, "no power", 5),
    ("invariant", "skipped", True, "skipped", 0),
    ("invariant", "crashed", False, "crashed", 1),
    ("invariant", "error", False, "error", 1),
    ("divergence", "passed", False, "no power", 5),
    ("divergence", "no power", False, "no power", 5),
    ("divergence", "diverged", True, "caught", 0),
    ("divergence", "flaky", True, "caught", 0),
    ("divergence", "skipped", True, "skipped", 0),
    ("divergence", "crashed", False, "crashed", 1),
    ("divergence", "error", False, "error", 1),
    ("observed", "passed", True, "observed: invariant", 0),
    ("observed", "diverged", True, "observed: diverges", 0),
    ("observed", "flaky", True, "observed: flaky", 0),
    ("observed", "no power", True, "observed: no power", 0),
    ("observed", "crashed", False, "crashed", 1),
    ("observed", "error", False, "error", 1),
    ("crash", "passed", False, "no power", 5),
    ("hang", "passed", False, "no power", 5),
]


@pytest.mark.parametrize("row", TABLE)
def test_every_row_of_the_table(result: Make, row: tuple[str, str, bool, str, int]) -> None:
    expect, status, ok, label, code = row
    verdict = judge(result(status, expect=expect))
    assert (verdict.ok, verdict.label, int(verdict.exit_code)) == (ok, label, code)


DEATHS = [
    ("invariant", "signal", False, "crashed", 1),
    ("invariant", "exit", False, "crashed", 1),
    ("invariant", "device", False, "crashed", 1),
    ("invariant", "hang", False, "hung", 1),
    ("invariant", "memory", False, "out of memory", 3),
    ("invariant", "disk", False, "disk full", 3),
    ("observed", "signal", False, "crashed", 1),
    ("divergence", "signal", False, "crashed", 1),
    ("crash", "signal", True, "contained", 0),
    ("crash", "exit", True, "contained", 0),
    ("crash", "memory", True, "contained", 0),
    ("crash", "hang", False, "hung", 1),
    ("crash", "disk", False, "disk full", 3),
    ("hang", "hang", True, "contained", 0),
    ("hang", "signal", False, "crashed", 1),
]


@pytest.mark.parametrize("row", DEATHS)
def test_every_death(result: Make, row: tuple[str, str, bool, str, int]) -> None:
    expect, kind, ok, label, code = row
    # The checks that ended before it died do not make it green.
    verdict = judge(result("passed", expect=expect), Death(kind, "killed by SIGSEGV", "linear"))
    assert (verdict.ok, verdict.label, int(verdict.exit_code)) == (ok, label, code)
    assert verdict.detail == "killed by SIGSEGV"


def test_strict_holds_observed_kernels_to_invariance(result: Make) -> None:
    assert judge(result("diverged", expect="observed"), strict=True).exit_code is ExitCode.DIVERGENCE
    assert judge(result("passed", expect="observed"), strict=True).label == "invariant"


def test_usage_error_is_its_own_class(result: Make) -> None:
    wrong = result("error")
    wrong.facts["usage"] = "row inputs must have the same number of rows"
    assert judge(wrong).exit_code is ExitCode.USAGE
    assert judge(wrong, Death("signal", "dead", None)).exit_code is ExitCode.USAGE


def test_chosen_checks_need_not_catch_a_control(result: Make) -> None:
    verdict = judge(result("passed", expect="divergence"), chosen=True)
    assert verdict.ok
    assert verdict.label == "not caught"


def test_detail_is_the_first_finding_of_the_worst_check(result: Make) -> None:
    verdict = judge(result("passed", "flaky", "diverged"))
    assert verdict.label == "flaky"
    assert verdict.detail.startswith("solo: row 3 at position 5")


GOOD, CAUGHT = Verdict(True, "invariant"), Verdict(True, "caught")
SKIPPED = Verdict(True, "skipped", "needs sm_90")
I, D, O, C = Expect.INVARIANT, Expect.DIVERGENCE, Expect.OBSERVED, Expect.CRASH  # noqa: E741


def test_suite_is_green_with_a_caught_control() -> None:
    assert judge_suite([(I, GOOD), (D, CAUGHT), (I, SKIPPED)]).ok


def test_suite_without_a_caught_control_has_no_power() -> None:
    for cases in ([(I, GOOD)], [(I, GOOD), (D, SKIPPED)], [(O, Verdict(True, "observed: invariant"))]):
        verdict = judge_suite(cases)
        assert (verdict.ok, verdict.label, verdict.exit_code) == (False, "no power", ExitCode.NOTHING_TESTED)
    assert "@suite.control" in judge_suite([(I, GOOD)]).detail


def test_part_of_a_suite_needs_no_control() -> None:
    assert judge_suite([(I, GOOD)], whole=False).ok


def test_observed_divergence_and_contained_crash_need_no_control() -> None:
    assert judge_suite([(O, Verdict(True, "observed: diverges"))]).ok
    assert judge_suite([(C, Verdict(True, "contained"))]).ok


def test_skipped_suite_says_why() -> None:
    assert judge_suite([(I, SKIPPED), (D, SKIPPED)]) == Verdict(True, "skipped", "needs sm_90")


def test_failed_suite_counts() -> None:
    bad = Verdict(False, "diverges", "", ExitCode.DIVERGENCE)
    verdict = judge_suite([(I, bad), (D, CAUGHT)])
    assert (verdict.ok, verdict.detail, verdict.exit_code) == (False, "1 of 2 cases failed", ExitCode.DIVERGENCE)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0, 5], 5), ([5, 3, 0], 3), ([3, 2], 2), ([5, 3, 2, 1], 1)],
)
def test_precedence_of_exit_codes(codes: list[int], expected: int) -> None:
    assert exit_code(ExitCode(c) for c in codes) == expected
