from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from samebits.engine.result import CaseResult, CheckResult, Finding, Power
from samebits.engine.suite import Expect
from samebits.engine.verdict import Verdict
from samebits.errors import ExitCode
from samebits.isolate.protocol import Death
from samebits.report.model import CaseRecord, RunRecord, SuiteRecord
from samebits.report.summary import summary
from samebits.report.terminal import render_case, render_findings, render_suite_problem, suite_table

Make = Callable[..., CaseResult]


def test_divergence_in_full(result: Make) -> None:
    text = render_findings(result("diverged", "passed"), "NVIDIA H200 · driver 580.95 · CUDA 13.0")
    assert text == snapshot("""\
linear-dtype=float32 (torch.nn.functional:linear) is not batch invariant

  batch-size: diverged
    row 3 at position 5 of M=17 differs from its bits at M=1
    op          torch.nn.functional:linear · float32 · row shape (4096,)
    inputs      float32[M, 4096]
    row         3, at position 5 of M=17, against M=1
    mismatched  76 of 4,096 elements (1.9 %)
    first       [12] · 1 ULP
                expected 0x3f800001  1.0000001
                found    0x3f800000  1.0
    greatest    [40] · 5 ULP
                expected 0x40490fdb  3.1415927
                found    0x40490fe0  3.141594
    map         3 bit classes. A: M = 1 · B: M = 2..3 · C: M = 4..256
    cause       dispatch-by-M: the configuration changes at M = 2 and 4
    power       98.2 % of 4,096 elements are order-sensitive (accumulation order reversed)
    coverage    all 32,896 (M, position) pairs, M = 1..256
    replay      samebits replay 'torch_ops::linear-dtype=float32::batch-size@0'

  passed      solo
  covered     all 32,896 (M, position) pairs, M = 1..256
  power       98.2 % of 4,096 elements are order-sensitive (accumulation order reversed)

  ran on      NVIDIA H200 · driver 580.95 · CUDA 13.0 · torch 2.13.0 · seed 0\
""")


def test_flaky_comes_with_its_own_headline(result: Make) -> None:
    assert render_findings(result("passed", "flaky")).splitlines()[0] == snapshot(
        "linear-dtype=float32 (torch.nn.functional:linear) is not even deterministic: the same launch gave"
    )


def test_no_power_says_why(check: Callable[..., CheckResult]) -> None:
    blind = check("no power", power=Power(False, 8, 0.0, "two addends"), reason="two addends", pairs=0)
    skipped = check("skipped", "out-contract", reason="no out= form is offered", power=None, coverage="")
    assert render_findings(CaseResult("add", checks=[blind, skipped])) == snapshot("""\
add proves nothing: no check had the power to see a difference

  batch-size: no power
    two addends

  skipped     out-contract (no out= form is offered)

  ran on      seed 0\
""")


def test_kernel_that_raises_shows_where(check: Callable[..., CheckResult]) -> None:
    raised = check(
        "error", power=None, coverage="", reason="RuntimeError: mat1 and mat2", notes=["line 1\n  line 2"]
    )
    assert render_findings(CaseResult("mm", checks=[raised])) == snapshot("""\
mm raised while it was being checked

  batch-size: error
    RuntimeError: mat1 and mat2
    line 1
      line 2

  ran on      seed 0\
""")


def test_never_wider_than_a_hundred_columns(result: Make, finding: Callable[..., Finding]) -> None:
    many = [[m, m, m % 7] for m in range(1, 400)]
    wide = result("diverged", "passed", case="c" * 150)
    message = "a long sentence " * 30
    wide.checks[0].findings = [finding(message=message, cause=message, details={"map": many}, replay="")] * 4
    wide.checks[0].coverage = "M, " * 200
    assert max(len(line) for line in render_findings(wide).splitlines()) <= 100


def test_command_is_never_broken(result: Make, finding: Callable[..., Finding]) -> None:
    command = f"samebits replay '{'x' * 200}::batch-size@0'"
    long = result("diverged")
    long.checks[0].findings = [finding(replay=command)]
    assert command in render_findings(long)
    assert "\x1b" not in render_findings(long)


@pytest.fixture
def suite(result: Make) -> SuiteRecord:
    def record(case: str, expect: str, status: str) -> CaseRecord:
        made = result(status, expect=expect)
        return CaseRecord(case, Expect(expect), state="done", checks=made.checks, facts=made.facts, seconds=1.25)

    cases = [
        record("mm-k=512", "invariant", "passed"),
        record("mm-k=4096", "invariant", "passed"),
        record("mm-free", "divergence", "diverged"),
        record("linear", "observed", "diverged"),
        record("silu", "observed", "passed"),
        CaseRecord("segv", Expect.CRASH, state="died", death=Death("signal", "killed by SIGSEGV", "segv")),
        CaseRecord("sm100", state="skipped", reason="needs compute capability 10.0"),
    ]
    return SuiteRecord("mine", "pkg.mine", "our kernels", {c.id: c for c in cases})


def test_table(suite: SuiteRecord) -> None:
    screen = Console(file=io.StringIO(), width=100, color_system=None)
    screen.print(suite_table(suite))
    assert isinstance(screen.file, io.StringIO)
    assert "\n".join(line.rstrip() for line in screen.file.getvalue().splitlines()) == snapshot("""\
mine  our kernels
case                                                  verdict               pairs  launches  seconds
mm-k=512                                              invariant            32,896       256      1.2
mm-k=4096                                             invariant            32,896       256      1.2
mm-free                                               caught               32,896       256      1.2
linear                                                observed: diverges   32,896       256      1.2
  batch-size: row 3 at position 5 of M=17 differs
  from its bits at M=1
silu                                                  observed: invariant  32,896       256      1.2
segv                                                  contained
sm100                                                 skipped
  needs compute capability 10.0\
""")


def test_summary_of_a_green_run(suite: SuiteRecord) -> None:
    assert summary(RunRecord({"mine": suite})).split(" · ") == snapshot(
        [
            "2 cases invariant over 65,792 (M, position) pairs",
            "1 control caught",
            "1 of 2 public kernels diverges (observed)",
            "1 crash contained",
            "1 skipped",
        ]
    )


def test_summary_starts_with_failures(suite: SuiteRecord, result: Make) -> None:
    for name in ("mm-k=512", "mm-k=4096"):
        suite.cases[name].checks = result("diverged").checks
    suite.cases["silu"].death = Death("hang", "no answer for 300 s", "silu")
    assert summary(RunRecord({"mine": suite})).split(" · ") == snapshot(
        [
            "2 cases diverge",
            "1 case hung",
            "1 control caught",
            "1 of 1 public kernel diverges (observed)",
            "1 crash contained",
            "1 skipped",
        ]
    )


def test_summary_names_a_suite_without_power(suite: SuiteRecord) -> None:
    del suite.cases["mm-free"]
    run = RunRecord({"mine": suite})
    assert run.exit_code is ExitCode.NOTHING_TESTED
    assert summary(run).startswith("suite mine: no power")
    assert render_suite_problem(suite) == snapshot("""\
suite mine: no power
  no control was caught: it declares none (@suite.control)\
""")


def test_summary_of_nothing() -> None:
    assert summary(RunRecord()) == "nothing was tested"


def test_unreadable_suite() -> None:
    broken = SuiteRecord("b", "pkg.b", problem=Verdict(False, "cannot be read", "ImportError: x", ExitCode.USAGE))
    assert render_suite_problem(broken) == "suite b: cannot be read\n  ImportError: x"


def test_death_in_full(suite: SuiteRecord, result: Make) -> None:
    death = Death(
        "device", "died of a sticky CUDA error while running case mm", "mm", core="/tmp/core.1",
        device_error="an illegal memory access was encountered", stderr="Fatal Python error: Aborted",
    )  # fmt: skip
    died = CaseRecord("mm", state="died", checks=result("passed").checks, facts=result().facts, death=death)
    assert render_case(suite, died) == snapshot("""\
mine::mm: crashed
  died of a sticky CUDA error while running case mm
    device      an illegal memory access was encountered
    core dump   /tmp/core.1
    stderr
      Fatal Python error: Aborted
    passed      batch-size, before it died\
""")


def test_usage_error_of_a_worker(suite: SuiteRecord) -> None:
    wrong = CaseRecord("mm")
    wrong.take({"type": "usage", "message": "row inputs must be on one device\n  found:   cpu, cuda:0"})
    assert render_case(suite, wrong) == snapshot("""\
mine::mm: usage error
  row inputs must be on one device
    found:   cpu, cuda:0\
""")


def test_further_checks_are_short(result: Make) -> None:
    text = render_findings(result("diverged", "diverged", "no power"))
    assert text.count("cause") == 1, "the same cause is said once"
    assert text.count("mismatched") == 1
    assert text.count("replay  ") == 2
    assert text.split("solo: diverged\n")[1].splitlines()[:2] == snapshot(
        [
            "    row 3 at position 5 of M=17 differs from its bits at M=1",
            "    first       [12] expected 0x3f800001, found 0x3f800000 · 1 ULP",
        ]
    )
    assert "  no power    permutation" in text
