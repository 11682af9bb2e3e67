"""The real thing: a suite of somebody else, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from samebits.report.evidence import SCHEMA_FILE

SUITE = """
import os, signal
import torch
import samebits

suite = samebits.Suite("theirs", summary="a suite of somebody else")


def rows(seed, k=64):
    return (torch.randn(8, k, generator=torch.Generator().manual_seed(seed)),)


@suite.case(k=[64])
def doubled(seed, k):
    return samebits.Subject(lambda x: (x * 0.1).cumsum(1), rows(seed, k), addends=k)


@suite.control()
def split_by_batch(seed):
    def kernel(x):
        parts = x.split(x.shape[1] if len(x) == 1 else x.shape[1] // 2, dim=1)
        return sum(part.sum(1, keepdim=True) for part in parts)
    return samebits.Subject(kernel, rows(seed), addends=64)


@suite.case(expect="crash")
def segfault(seed):
    os.kill(os.getpid(), signal.SIGSEGV)


@suite.case(env={"VLLM_BATCH_INVARIANT": "0"})
def sees_its_environment(seed):
    assert os.environ["VLLM_BATCH_INVARIANT"] == "0"
    return samebits.Subject(lambda x: (x * 0.1).cumsum(1), rows(seed), addends=64)
"""


def samebits(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from samebits.cli import main; main()", *arguments]
    env = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120, check=False, env=env)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "theirs.py").write_text(SUITE)
    return tmp_path


def test_run(here: Path) -> None:
    done = samebits(
        here, "run", "theirs", "--max-batch", "24", "--check", "batch-size", "--check", "repeat", "--json"
    )
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
    (suite,) = document["suites"]
    labels = {c["id"]: c["verdict"]["label"] for c in suite["cases"]}
    assert labels == {
        "doubled-k=64": "invariant",
        "split_by_batch": "caught",
        "segfault": "contained",
        "sees_its_environment": "invariant",
    }, done.stderr
    assert done.returncode == document["exit_code"] == 0
    assert "1 crash contained" in done.stderr
    finding = suite["cases"][1]["checks"][0]["findings"][0]
    assert finding["replay"] == "samebits replay 'theirs::split_by_batch::batch-size@0:M=24'"
    assert (here / ".samebits/latest/report.html").exists()


def test_replay_of_its_finding(here: Path) -> None:
    done = samebits(here, "replay", "theirs::split_by_batch::batch-size@0:M=8")
    assert done.returncode == 1, done.stderr
    assert "split_by_batch" in done.stdout
    assert "expected 0x" in done.stdout


def test_check_of_a_torch_function(here: Path) -> None:
    arguments = [
        "check",
        "torch.nn.functional:relu",
        "--rows",
        "17:float32",
        "--max-batch",
        "8",
        "--check",
        "solo",
    ]
    done = samebits(here, *arguments)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    assert "torch.nn.functional:relu" in done.stdout


def test_bad_subject_is_a_usage_error(here: Path) -> None:
    done = samebits(here, "check", "torch.nn.functional:no_such", "--rows", "17:float32")
    assert done.returncode == 2
    assert "no_such" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
