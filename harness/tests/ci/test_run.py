""".ci/run fails when any step does, runs the others all the same, and ends with the line of the tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import samebits

ROOT = Path(samebits.__file__).parents[2]
STEPS = (".venv", "lint", "docs", "run", "test")


@pytest.fixture
def ci_run(tmp_path):
    """Runs a copy over a Makefile whose targets only say their names, those in `broken` failing."""

    def run(*broken):
        (tmp_path / ".ci").mkdir(exist_ok=True)
        shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
        lines = [f".PHONY: {' '.join(STEPS)}"]
        for step in STEPS:
            lines += [
                f"{step}:",
                f"\t@echo did {step} $$VLLM_BATCH_INVARIANT",
                f"\t@{'false' if step in broken else 'true'}",
            ]
        (tmp_path / "Makefile").write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [tmp_path / ".ci" / "run"], check=False, capture_output=True, text=True, cwd="/",
            env={"PATH": "/usr/bin:/bin", "VLLM_BATCH_INVARIANT": "0"},
        )  # fmt: skip
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("did ")], done.stderr

    return run


def test_all_steps_and_nothing_of_the_environment(ci_run):
    assert ci_run()[:2] == (0, [f"did {step}" for step in STEPS])


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_step_that_fails_stops_no_other_and_fails_the_whole(ci_run, step):
    code, did, told = ci_run(step)
    assert code == 1
    assert len(did) == len(STEPS)
    assert f"FAILED make {step}" in told


def test_nothing_runs_without_an_installation(ci_run):
    code, did, _ = ci_run(".venv")
    assert code
    assert did == ["did .venv"]
