from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from samebits.errors import InfrastructureError
from samebits.report import evidence
from samebits.report.evidence import SCHEMA_FILE

Call = Callable[..., tuple[int, str, str]]


def test_green_run(fake: Any, samebits: Call) -> None:
    code, out, err = samebits("run")
    assert code == 0
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "3 cases in 1 suite"
    assert [line.split()[0] for line in lines[1:4]] == ["invariant", "invariant", "caught"]
    assert "2 cases invariant over 6 (M, position) pairs · 1 control caught" in out
    assert "exit 0: same bits, whatever the batch" in out


def test_one_job_per_environment(fake: Any, samebits: Call) -> None:
    samebits(
        "run", "mine", "--seed", "3", "--max-batch", "17", "--budget", "1", "--deadline", "9", "--start", "spawn"
    )
    first, second = fake.jobs
    assert (first.cases, second.cases) == (("mm", "moe"), ("mm-free",))
    assert (first.env["VLLM_BATCH_INVARIANT"], second.env["VLLM_BATCH_INVARIANT"]) == ("1", "0")
    assert first.payload == {"suite": "pkg.mine", "seed": 3, "max_batch": 17, "budget": 1.0, "checks": None}
    assert first.entry == "samebits.session.serve:run_suite"
    assert (first.start, first.deadline, first.deadlines) == ("spawn", 9.0, {"mm": 7.0, "moe": 7.0})
    assert str(Path.cwd()) in first.env["PYTHONPATH"]


def test_evidence_and_report_are_written(fake: Any, samebits: Call) -> None:
    _, out, _ = samebits("run")
    latest = Path(".samebits/latest")
    document = json.loads((latest / "evidence.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
    assert document["finished"]
    assert "<h1>Same bits, whatever the batch</h1>" in (latest / "report.html").read_text()
    assert f"evidence: .samebits/{latest.readlink()}/evidence.json" in out


def test_evidence_is_on_disk_after_each_case(fake: Any, samebits: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    save = evidence.Evidence.save

    def spy(self: evidence.Evidence, indent: int | None = None) -> None:
        save(self, indent)
        states.append([c["state"] for c in json.loads(self.path.read_text())["suites"][0]["cases"]])

    monkeypatch.setattr(evidence.Evidence, "save", spy)
    samebits("run")
    assert states[:3] == [["planned"] * 3, ["done", "planned", "planned"], ["done", "done", "planned"]]


def test_divergence_is_1_and_shown_in_full(fake: Any, samebits: Call) -> None:
    fake.plan["mm"] = "diverged"
    code, out, _ = samebits("run", "-q")
    assert code == 1
    assert "kernel) is not batch invariant" in out
    assert "samebits replay 'mm'" in out
    assert "3 cases in" not in out
    assert "moe" not in out


def test_quiet_green_run_is_short(fake: Any, samebits: Call) -> None:
    code, out, _ = samebits("run", "-q")
    assert code == 0
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("plan", "code", "said"),
    [
        ({"mm": "signal"}, 1, "last words"),
        ({"mm": "hang"}, 1, "hang in mm"),
        ({"mm": "usage"}, 2, "row inputs must be on one device"),
        ({"mm": "lost"}, 3, "the worker could not start"),
        ({"mm": InfrastructureError("no space left on device")}, 3, "no space left on device"),
        ({"mm": "no power"}, 5, "no power"),
        ({"mm-free": "passed"}, 5, "a control that must be caught was not"),
        ({"mm": "skip", "moe": "skip", "mm-free": "skip"}, 5, "3 skipped"),
        ({"mm": "lost", "mm-free": "passed"}, 3, "control"),
        ({"moe": "diverged", "mm-free": "lost"}, 1, "could not start"),
    ],
)
def test_exit_codes(fake: Any, samebits: Call, plan: dict[str, Any], code: int, said: str) -> None:
    fake.plan.update(plan)
    found, out, _ = samebits("run", "-q")
    assert found == code
    assert said in out


def test_rest_of_the_run_goes_on_after_a_death(fake: Any, samebits: Call) -> None:
    fake.plan["mm"] = "signal"
    _, out, _ = samebits("run")
    assert "1 case crashed · 1 case invariant" in out
    assert "1 control caught" in out


def test_interrupt_keeps_what_was_obtained(fake: Any, samebits: Call) -> None:
    fake.plan["moe"] = KeyboardInterrupt()
    code, out, _ = samebits("run")
    assert code == 3
    assert fake.closed == 1
    document = json.loads(Path(".samebits/latest/evidence.json").read_text())
    assert document["interrupted"]
    assert [c["state"] for c in document["suites"][0]["cases"]] == ["done", "running", "planned"]
    assert "exit 3: interrupted" in out


def test_json_is_alone_on_standard_output(fake: Any, samebits: Call) -> None:
    code, out, err = samebits("run", "--json")
    assert code == 0
    jsonschema.validate(json.loads(out), json.loads(SCHEMA_FILE.read_text()))
    assert "2 cases invariant" in err


def test_case_glob_needs_no_control(fake: Any, samebits: Call) -> None:
    code, _, _ = samebits("run", "mine", "--case", "mm*e", "--case", "mm")
    assert code == 0
    assert [j.cases for j in fake.jobs] == [("mm",), ("mm-free",)]
    assert samebits("run", "mine", "--case", "moe")[0] == 0


def test_glob_that_matches_nothing_is_a_usage_error(fake: Any, samebits: Call) -> None:
    code, _, err = samebits("run", "--case", "zzz")
    assert code == 2
    assert "allowed: mm, moe, mm-free" in err


def test_unreadable_suites(fake: Any, samebits: Call) -> None:
    code, out, _ = samebits("run", "mine", "pkg.broken", "-q")
    assert code == 3
    assert "ImportError: no libcuda" in out
    assert "2 cases invariant" in out
    code, _, err = samebits("run", "pkg.wrong")
    assert code == 2
    assert "cannot import pkg.wrong" in err


def test_output_elsewhere_and_no_html(fake: Any, samebits: Call, tmp_path: Path) -> None:
    samebits("run", "--output", str(tmp_path / "here"), "--no-html")
    assert (tmp_path / "here" / "latest" / "evidence.json").exists()
    assert not (tmp_path / "here" / "latest" / "report.html").exists()
    assert not (tmp_path / ".samebits").exists()


def test_full_disk_still_shows_results(fake: Any, samebits: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise InfrastructureError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(evidence, "write_atomically", full)
    code, out, err = samebits("run", "-q")
    assert code == 3
    assert "2 cases invariant" in out
    assert "error: cannot write" in out
    assert "Traceback" not in out + err


def test_no_colour_codes_off_a_terminal(fake: Any, samebits: Call) -> None:
    fake.plan["mm"] = "diverged"
    _, out, err = samebits("run")
    assert "\x1b" not in out + err


def test_strict(fake: Any, samebits: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from samebits.engine import locate

    described = locate.describe(["pkg.mine"])
    described["pkg.mine"]["cases"][0]["expect"] = "observed"
    fake.plan["mm"] = "diverged"
    assert samebits("run", "-q")[0] == 0
    assert samebits("run", "-q", "--strict")[0] == 1


def test_lost_cases_are_counted_not_listed(fake: Any, samebits: Call) -> None:
    fake.plan["mm"] = "lost"
    _, out, _ = samebits("run", "-q")
    assert out.count("the worker could not start") == 1
    assert "2 cases not run · 1 control caught" in out
