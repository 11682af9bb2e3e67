"""The YAML over the scripts: it parses, calls what exists, retries nothing but infrastructure, and triggers."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import samebits

ROOT = Path(samebits.__file__).parents[2]
GITHUB = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BUILDKITE = sorted((ROOT / ".buildkite").glob("*.yml"))
SCRIPTS = sorted((ROOT / "ci").glob("*.sh"))
PYTESTS = {"8.4", "9.2"}


def load(path):
    found = yaml.safe_load(path.read_text())
    if True in found:  # YAML 1.1 reads `on` as a truth value
        found["on"] = found.pop(True)
    return found


def commands(path):
    found = load(path)
    for job in found.get("jobs", {}).values():
        yield from (step["run"] for step in job["steps"] if "run" in step)
    yield from (step["command"] for step in found.get("steps", ()))


def patterns():
    yield "github", load(ROOT / ".github/workflows/determinism.yml")["on"]["pull_request"]["paths"]
    for step in load(ROOT / ".buildkite/determinism.yml")["steps"]:
        yield "buildkite", step["if_changed"]


def triggers(globs, name):
    """fnmatch's `*` crosses folders, as `**` does; a leading `**/` may be nothing."""
    return any(fnmatch.fnmatchcase(name, g) or fnmatch.fnmatchcase(f"./{name}", g) for g in globs)


def test_both_systems_are_there():
    assert {p.stem for p in GITHUB} == {p.stem for p in BUILDKITE} == {"pull_request", "determinism"}


@pytest.mark.parametrize("path", [*GITHUB, *BUILDKITE], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_step_calls_an_executable_script_and_no_more(path):
    found = list(commands(path))
    assert found
    for command in found:
        assert re.fullmatch(r"ci/[\w.]+\.sh", command), f"logic belongs in ci/: {command!r}"
        assert os.access(ROOT / command, os.X_OK), command


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / ".ci" / "run"], ids=lambda p: p.name)
def test_scripts_are_strict_executable_and_parse(script):
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert re.search(r"^set -e?uo pipefail$", text, re.MULTILINE)
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_scripts_call_what_exists():
    makefile = (ROOT / "Makefile").read_text()
    for script in (*SCRIPTS, ROOT / ".ci" / "run"):
        text = re.sub(r"^\s*#.*$", "", script.read_text(), flags=re.MULTILINE)
        for target in re.findall(r"\bmake ([.\w]+)", text):
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), f"{script.name}: make {target}"
        for other in re.findall(r"\bci/\w+\.sh", text):
            assert os.access(ROOT / other, os.X_OK), f"{script.name}: {other}"


def test_ci_run_calls_the_test_command_of_the_readme_last():
    steps = re.findall(r"^step (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps[-1] == "make test"
    assert "make test" in (ROOT / "README.md").read_text()


def test_both_ends_of_pytest_are_tested():
    job = load(ROOT / ".github/workflows/pull_request.yml")["jobs"]["cpu"]
    assert set(job["strategy"]["matrix"]["pytest"]) == PYTESTS
    assert job["env"]["PYTEST"] == "${{ matrix.pytest }}"
    (step,) = load(ROOT / ".buildkite/pull_request.yml")["steps"]
    assert set(step["matrix"]) == PYTESTS
    assert step["env"]["PYTEST"] == "{{matrix}}"


@pytest.mark.parametrize("path", BUILDKITE, ids=lambda p: p.name)
def test_nothing_but_infrastructure_is_retried(path):
    for step in load(path)["steps"]:
        rules = step.get("retry", {}).get("automatic", [])
        assert rules is not True
        assert {rule["exit_status"] for rule in rules} <= {3}
        assert not step.get("soft_fail")


@pytest.mark.parametrize("path", GITHUB, ids=lambda p: p.name)
def test_no_failure_is_waved_through(path):
    for job in load(path)["jobs"].values():
        assert not job.get("continue-on-error")
        assert not any(step.get("continue-on-error") for step in job["steps"])
        kept = [s for s in job["steps"] if str(s.get("uses", "")).startswith("actions/upload-artifact")]
        assert [s["if"] for s in kept] == ["always()"], "evidence is kept of failures above all"


@pytest.mark.parametrize(("system", "globs"), list(patterns()), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize(
    "name",
    [
        "anywhere/new_kernel.cu", "anywhere/shared.cuh", "anywhere/layout.h", "anywhere/bind.cpp",
        "kernels/samebits_kernels/jit/toolchain.py", "ci/constraints.txt", "pyproject.toml", "Makefile",
        "harness/samebits/checks/batch_size.py", "suites/samebits_suites/moe.py",
    ],
)  # fmt: skip
def test_what_can_change_bits_triggers_the_determinism_job(system, globs, name):
    assert triggers(globs, name)


@pytest.mark.parametrize(("system", "globs"), list(patterns()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_native_source_of_the_repository_triggers_it(system, globs):
    sources = [p for s in (".cu", ".cuh", ".h", ".cpp") for p in (ROOT / "kernels").rglob(f"*{s}")]
    assert sources
    assert all(triggers(globs, str(p.relative_to(ROOT))) for p in sources)


def test_prose_does_not_trigger_it():
    assert not any(triggers(globs, "docs/tutorial.md") for _, globs in patterns())


def test_everything_ci_installs_is_pinned():
    lines = (ROOT / "ci" / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", pin) for pin in pins), (
        "one version each, no build tag, no path"
    )
    assert "torch==2.13.0" in pins
    names = {re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins}
    project = (ROOT / "pyproject.toml").read_text()
    section = project.partition("\ndependencies = [")[2].partition("[project.scripts]")[0]
    wanted = {re.sub(r"[-_.]+", "-", n).lower() for n in re.findall(r'"([A-Za-z][\w-]*)(?:[<>=~]|")', section)}
    assert wanted - {"samebits"} <= names
