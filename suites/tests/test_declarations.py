"""What a reader of a suite may rely on before anything runs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from samebits import Expect, UsageError
from samebits.checks import IDS
from samebits_suites.profile import VARIABLE

SUITES = ("controls", "moe", "quantise", "scaled_mm", "torch_ops")


def suite_of(name):
    return importlib.import_module(f"samebits_suites.{name}").suite


def fresh(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SUITES)
def test_importing_a_suite_loads_neither_torch_nor_kernels(name):
    heavy = ("torch", "samebits_kernels")
    assert fresh(f"import sys, samebits_suites.{name}; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_named_as_its_module_and_has_a_control(name):
    suite = suite_of(name)
    assert suite.name == name
    assert suite.summary
    assert any(case.expect is Expect.DIVERGENCE for case in suite)


@pytest.mark.parametrize("name", SUITES)
def test_ids_can_be_replayed(name):
    ids = [case.id for case in suite_of(name)]
    assert len(set(ids)) == len(ids)
    assert not [i for i in ids if set(i) & set(" '@:")]


@pytest.mark.parametrize("name", SUITES)
def test_only_checks_that_exist_are_asked_for(name):
    for case in suite_of(name):
        assert set(case.checks or ()) <= set(IDS), case.id


def test_every_public_fault_has_a_case():
    ids = {case.id[:3] for case in suite_of("controls")}
    assert {f"p{n:02}" for n in range(1, 16)} <= ids


def test_every_kind_of_fault_must_be_caught():
    caught = {case.id[:3] for case in suite_of("controls") if case.expect is Expect.DIVERGENCE}
    assert caught == {f"p{n:02}" for n in range(1, 15)}, "P15 must stay clean, all others must be caught"


def test_controls_of_our_kernels_run_where_no_compiler_is():
    for name in ("moe", "quantise", "scaled_mm"):
        controls = [case for case in suite_of(name) if case.expect is Expect.DIVERGENCE]
        assert any(case.needs is None for case in controls), name


@pytest.mark.parametrize("name", ["moe", "quantise", "scaled_mm"])
def test_nightly_covers_more(name):
    code = (
        f"import json, samebits_suites.{name} as m;"
        "print(json.dumps([len(m.suite), sum(c.max_batch for c in m.suite), sum(not c.checks for c in m.suite)]))"
    )
    default, nightly = (json.loads(fresh(code, **{VARIABLE: p})) for p in ("dev", "nightly"))
    assert all(more > less for less, more in zip(default, nightly, strict=True)), (default, nightly)


def test_an_unknown_profile_is_refused(monkeypatch):
    from samebits_suites import profile

    monkeypatch.setenv(VARIABLE, "weekly")
    with pytest.raises(UsageError, match="weekly"):
        profile.profile()
