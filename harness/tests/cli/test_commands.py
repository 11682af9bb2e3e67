from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samebits.cli import doctor as doctor_module
from samebits.cli.replay import ReplayId, parse
from samebits.errors import UsageError
from samebits.report import environment

Call = Callable[..., tuple[int, str, str]]


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_imports_neither_torch_nor_pytest() -> None:
    code = (
        "import sys; from samebits.cli.app import _main; _main(['--help']);"
        "print(sorted({'torch', 'pytest', 'numpy', 'rich', 'jinja2'} & set(sys.modules)))"
    )
    assert run_python(code).splitlines()[-1] == "[]"


def test_version(samebits: Call) -> None:
    assert samebits("--version")[1] == "samebits 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--bogus"], ["No such option", "do:      samebits run --help"]),
        (["frobnicate"], ["No such command", "allowed: check, doctor, list, replay, run"]),
        (["run", "--max-batch", "0"], ["--max-batch", "do:"]),
        (
            ["run", "no-such-suite"],
            ["no such suite", "found:   'no-such-suite'", "allowed: mine", "samebits list"],
        ),
        (["check", "nonsense"], ["MODULE:NAME"]),
        (["replay", "nonsense"], ["allowed: SUITE::CASE::CHECK@SEED"]),
    ],
)
def test_usage_errors(fake: Any, samebits: Call, arguments: list[str], said: list[str]) -> None:
    code, out, err = samebits(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    for words in said:
        assert words in err


def test_check_runs_one_subject(fake: Any, samebits: Call) -> None:
    name = "torch.nn.functional:silu"
    fake.plan[name] = "diverged"
    code, out, _ = samebits("check", name, "--rows", "1007:float32", "--seed", "2")
    assert code == 1
    (job,) = fake.jobs
    assert job.entry == "samebits.session.serve:run_reference"
    assert job.cases == (name,)
    assert job.payload["ref"]["rows"] == ("1007:float32",)
    assert job.payload["ref"]["seed"] == 2
    assert job.env["VLLM_BATCH_INVARIANT"] == "1"
    assert "is not batch invariant" in out


def test_check_shows_what_it_proved(fake: Any, samebits: Call) -> None:
    code, out, _ = samebits("check", "pkg:kernel")
    assert code == 0
    assert "is batch invariant" in out
    assert "all 3 (M, position) pairs" in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("moe::fused-k=512::batch-size@0", ReplayId("moe", "fused-k=512", "batch-size", 0)),
        ("pkg.mine::a@b::solo@7:M=17", ReplayId("pkg.mine", "a@b", "solo", 7, 17)),
        ("torch.nn.functional:silu::repeat@3", ReplayId("torch.nn.functional:silu", None, "repeat", 3)),
    ],
)
def test_replay_ids(text: str, expected: ReplayId) -> None:
    assert parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "moe", "moe::x@0", "a::b::c", "a::b::c@x", "a::b::c::d@0", "a::b::c@0:N=3"])
def test_what_is_no_replay_id(text: str) -> None:
    with pytest.raises(UsageError, match="SUITE::CASE::CHECK@SEED"):
        parse(text)


def test_replay_runs_that_case_and_check_only(fake: Any, samebits: Call) -> None:
    fake.plan["mm"] = "diverged"
    code, out, err = samebits("replay", "mine::mm::batch-size@5:M=17")
    assert code == 1
    (job,) = fake.jobs
    assert job.cases == ("mm",)
    assert job.payload["checks"] == ["batch-size"]
    assert (job.payload["seed"], job.payload["max_batch"]) == (5, 17)
    assert "is not batch invariant" in out
    assert "$ samebits replay mine::mm::batch-size@5:M=17" in err


def test_replay_of_a_control_that_diverges_is_1(fake: Any, samebits: Call) -> None:
    assert samebits("replay", "mine::mm-free::batch-size@0")[0] == 1
    fake.plan["mm-free"] = "passed"
    assert samebits("replay", "mine::mm-free::batch-size@0")[0] == 0


def test_list(fake: Any, samebits: Call) -> None:
    assert samebits("list")[1] == "mine                3 cases  our kernels\n"
    _, out, _ = samebits("list", "mine")
    assert [line.split() for line in out.splitlines()[1:]] == [["mm"], ["moe"], ["mm-free", "divergence"]]


def test_list_checks(samebits: Call) -> None:
    code, out, _ = samebits("list", "--checks")
    assert code == 0
    assert "batch-size" in out


def test_unknown_check_is_a_usage_error(fake: Any, samebits: Call) -> None:
    code, _, err = samebits("run", "--check", "sideways")
    assert code == 2
    assert "sideways" in err


def test_doctor(samebits: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path))
    code, out, _ = samebits("doctor")
    assert code == 0
    for name in ("python", "torch", "card", "nvcc", "C++ compiler", "pytest", "evidence"):
        assert any(line.startswith(name) for line in out.splitlines())


def test_doctor_without_torch_is_infrastructure(samebits: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "version", lambda package: None)
    monkeypatch.setattr(doctor_module, "_backends", lambda: iter(()))
    code, out, _ = samebits("doctor", "--json")
    assert code == 3
    assert {"name": "torch", "state": "bad", "text": "not installed: pip install torch"} in json.loads(out)


@pytest.mark.parametrize(
    ("pytest_version", "state"), [("8.4.2", "ok"), ("9.1.1", "missing"), ("9.2.0", "missing")]
)
def test_doctor_refuses_forked_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, pytest_version: str, state: str
) -> None:
    versions = {"pytest": pytest_version, "pytest-forked": "1.7.5"}
    monkeypatch.setattr(environment, "version", versions.get)
    lines = {line.name: line for line in doctor_module._plugins()}
    assert lines["pytest-forked"].state == state
