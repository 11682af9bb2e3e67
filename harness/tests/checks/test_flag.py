from __future__ import annotations

import sys
import textwrap

import pytest
import torch

from samebits.checks import flag, fresh
from samebits.checks.flag import CHECK
from samebits.engine.bench import Bench
from samebits.engine.locate import Ref
from samebits.engine.result import Finding, Status
from samebits.engine.subject import Subject

FLAG = "VLLM_BATCH_INVARIANT"


@pytest.fixture(autouse=True)
def under_the_flag(monkeypatch):
    monkeypatch.setenv(FLAG, "1")


def subject(**about):
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    return Subject(lambda x: x * 2, (rows,), derive=False, **about)


def run(probe=None, outcomes=None, monkeypatch=None):
    if outcomes is None:
        return CHECK.run(Bench(subject(probe=probe)))
    calls = []

    def repeat(self, env=None, *, descending=False):
        calls.append(env)
        return outcomes[env[FLAG]]

    monkeypatch.setattr(fresh.Launches, "repeat", repeat)
    result = CHECK.run(Bench(subject(probe=probe), ref=Ref("somewhere", "kernel")))
    assert [c[FLAG] for c in calls] == ["0", "1"], "the control value must run first"
    return result


def other_bits():
    return Finding("flag", "value", "row 0 at position 0 of M=1 has other bits in a fresh process")


def said(value, *, differs=False):
    probe = None if value is None else {FLAG: value}
    return fresh.Outcome(probe=probe, findings=(other_bits(),) if differs else ())


def test_catches_its_control():
    result = CHECK.run(Bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "runs with VLLM_BATCH_INVARIANT=0 although the environment of this process says 1" in (
        result.findings[0].message
    )


def test_an_agreeing_probe_passes_and_says_what_was_not_checked():
    result = run(probe=lambda: {FLAG: 1})
    assert result.status is Status.PASSED
    assert "sticks was not checked" in " ".join(result.notes)


@pytest.mark.parametrize("value", [1, "1", True])
def test_every_spelling_of_on(value):
    assert run(probe=lambda: {FLAG: value}).status is Status.PASSED


@pytest.mark.parametrize("value", [0, "0", False, None, "true", 2])
def test_every_spelling_of_something_else(value):
    assert run(probe=lambda: {FLAG: value}).status is Status.DIVERGED


@pytest.mark.parametrize(
    ("value", "words"), [(None, "is not set"), ("true", "reads another value"), ("", "reads another value")]
)
def test_skipped_where_the_flag_says_nothing(monkeypatch, value, words):
    if value is None:
        monkeypatch.delenv(FLAG)
    else:
        monkeypatch.setenv(FLAG, value)
    assert words in (CHECK.applies(Bench(subject(probe=lambda: {FLAG: 1}))) or "")


def test_skipped_without_probe_and_name():
    assert "no probe" in (CHECK.applies(Bench(subject())) or "")
    assert CHECK.applies(Bench(subject(probe=dict))) is None
    assert CHECK.applies(Bench(subject(), ref=Ref("somewhere", "kernel"))) is None


def test_a_run_under_the_control_value_is_held_to_it(monkeypatch):
    monkeypatch.setenv(FLAG, "0")
    assert run(probe=lambda: {FLAG: 0}).status is Status.PASSED
    assert run(probe=lambda: {FLAG: 1}).status is Status.DIVERGED


def test_control_value_first_leaves_no_trace(monkeypatch):
    result = run(lambda: {FLAG: 1}, {"0": said(0, differs=True), "1": said(1)}, monkeypatch)
    assert result.status is Status.PASSED
    assert "no difference" not in " ".join(result.notes)


def test_control_value_sticks_in_the_probe(monkeypatch):
    result = run(lambda: {FLAG: 1}, {"0": said(0, differs=True), "1": said(0)}, monkeypatch)
    assert result.status is Status.DIVERGED
    assert "follows one with 0 says 1" in result.findings[0].message


def test_control_value_sticks_in_the_bits(monkeypatch):
    result = run(None, {"0": said(None, differs=True), "1": said(None, differs=True)}, monkeypatch)
    assert result.status is Status.DIVERGED
    assert "started after one with 0" in result.findings[0].message
    assert result.notes[0] == "no probe"


def test_the_control_value_does_not_reach_the_library(monkeypatch):
    result = run(lambda: {FLAG: 1}, {"0": said(1), "1": said(1)}, monkeypatch)
    assert result.status is Status.DIVERGED
    assert "a fresh process with 0 says 0" in result.findings[0].message


def test_no_free_mode_is_no_failure(monkeypatch):
    result = run(lambda: {FLAG: 1}, {"0": said(0), "1": said(1)}, monkeypatch)
    assert result.status is Status.PASSED
    assert "free mode shows no difference on these rows" in result.notes


def test_no_free_mode_and_no_probe_is_no_power(monkeypatch):
    result = run(None, {"0": said(None), "1": said(None)}, monkeypatch)
    assert result.status is Status.NO_POWER
    assert "could not show" in result.reason


def test_digests_alone_have_power_where_the_free_mode_differs(monkeypatch):
    result = run(None, {"0": said(None, differs=True), "1": said(None)}, monkeypatch)
    assert result.status is Status.PASSED


def test_a_dead_control_is_a_note_and_a_dead_pinned_run_an_error(monkeypatch):
    dead = fresh.Outcome(died="killed by SIGABRT")
    result = run(lambda: {FLAG: 1}, {"0": dead, "1": said(1)}, monkeypatch)
    assert result.status is Status.PASSED
    assert "SIGABRT" in " ".join(result.notes)
    result = run(lambda: {FLAG: 1}, {"0": said(0), "1": dead}, monkeypatch)
    assert result.status is Status.CRASHED
    assert "SIGABRT" in result.reason


SUBJECTS = """
import os
from pathlib import Path
import torch
from samebits import Subject

BUILT = Path(__file__).with_name("built")

def subject(seed, cached):
    flag = os.environ["VLLM_BATCH_INVARIANT"]
    if cached and BUILT.exists():   # a build cache whose key forgets the flag
        flag = BUILT.read_text()
    if cached and os.environ["SAMEBITS_TEST_PARENT"] != str(os.getpid()):
        BUILT.write_text(flag)
    def fn(x):
        total = torch.zeros(len(x))
        for k in range(x.shape[1]) if flag == "1" else reversed(range(x.shape[1])):
            total = total + x[:, k]
        return total[:, None]
    rows = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed))
    return Subject(fn, (rows,), probe=lambda: {"VLLM_BATCH_INVARIANT": int(flag)}, derive=False)

def clean(seed):
    return subject(seed, False)

def cached(seed):
    return subject(seed, True)
"""


@pytest.mark.parametrize(("name", "status"), [("clean", Status.PASSED), ("cached", Status.DIVERGED)])
def test_really_fresh_processes(tmp_path, monkeypatch, name, status):
    module = f"samebits_test_flag_{name}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(SUBJECTS))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SAMEBITS_TEST_PARENT", str(flag.os.getpid()))
    ref = Ref(module, name)
    result = CHECK.run(Bench(ref.subject(), ref=ref))
    sys.modules.pop(module, None)
    assert result.status is status, (result.reason, result.notes, result.findings)
    assert "free mode shows no difference on these rows" not in result.notes
