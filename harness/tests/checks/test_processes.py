from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from samebits.checks import fresh
from samebits.checks.processes import CHECK, PROCESSES, per_process
from samebits.engine.bench import Bench
from samebits.engine.locate import Ref
from samebits.engine.result import Status
from samebits.engine.subject import Subject
from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, CaseStarted, Death, Job, SuiteFailed

SUBJECTS = """
import os, signal, sys
import torch
from samebits import Subject

def rows(seed):
    return torch.randn(8, 48, generator=torch.Generator().manual_seed(seed))

def row_sum(x):
    total = torch.zeros(len(x))
    for k in range(x.shape[1]):
        total = total + x[:, k]
    return total[:, None]

def clean(seed):
    return Subject(row_sum, (rows(seed),), derive=False, addends=48)

def by_first_launch(seed):
    first = []
    def fn(x):
        first.append(len(x))
        return row_sum(x) if first[0] < 100 else row_sum(x.flip(1))
    return Subject(fn, (rows(seed),), derive=False, addends=48)

def other_rows(seed):
    return Subject(row_sum, (torch.randn(8, 48, generator=torch.Generator().manual_seed(os.getpid())),),
                   derive=False, addends=48)

def dies(seed):
    def fn(x):
        if os.environ.get("SAMEBITS_TEST_PARENT") != str(os.getpid()):
            os.kill(os.getpid(), signal.SIGKILL)
        return row_sum(x)
    return Subject(fn, (rows(seed),), derive=False, addends=48)

def raises(seed):
    if os.environ.get("SAMEBITS_TEST_PARENT") != str(os.getpid()):
        raise RuntimeError("no such card")
    return clean(seed)
"""


class Channel:
    def __init__(self, job):
        self.remaining, self.events, self.suite = job.cases, [], job.suite

    def start(self, case):
        self.events.append(CaseStarted(self.suite, case))

    def result(self, case, data):
        self.events.append(CaseData(self.suite, case, data))

    def end(self, case):
        self.events.append(CaseEnded(self.suite, case, 0.0))


class InProcess:
    """A supervisor whose fresh process is this one: quick, and enough for everything but freshness."""

    def __init__(self, last=None):
        self.jobs, self.last = [], last

    def run(self, job):
        self.jobs.append(job)
        channel = Channel(job)
        fresh.worker(job.payload, channel)
        yield from channel.events[:1] if self.last else channel.events
        if self.last:
            yield self.last(job)


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"samebits_test_subjects_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(SUBJECTS))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SAMEBITS_TEST_PARENT", str(os.getpid()))
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def in_process(monkeypatch):
    supervisor = InProcess()
    monkeypatch.setattr(fresh, "_supervisor", lambda pid: supervisor)
    return supervisor


@pytest.fixture
def bench(case, module):
    def make(name):
        ref = Ref(module, name)
        return case.bench(ref.subject(), ref=ref, share=0.5)

    return make


def test_a_closure_is_skipped_with_what_to_do():
    reason = CHECK.applies(Bench(Subject(lambda x: x, (torch.randn(4, 4),), derive=False)))
    assert reason is not None
    assert "samebits check MODULE:NAME" in reason


def test_fresh_processes_catch_the_control():
    result = CHECK.run(Bench(CHECK.control(), ref=CHECK.control_ref))
    assert result.status is Status.DIVERGED
    finding = result.findings[0]
    assert "in a fresh process than in this one (process" in finding.message
    assert finding.first is not None
    assert finding.details["processes"] == PROCESSES


def test_fresh_processes_agree_on_a_clean_kernel(bench):
    result = CHECK.run(bench("clean"))
    assert result.status is Status.PASSED, result.reason
    assert f"{PROCESSES} fresh processes and this one" in result.coverage
    assert "2**-8" in result.coverage
    assert result.launches >= 4 * (PROCESSES + 1)


def test_a_death_is_reported(bench):
    result = CHECK.run(bench("dies"))
    assert result.status is Status.CRASHED
    assert "SIGKILL" in result.reason


def test_half_of_the_processes_start_with_the_largest_batch(bench, in_process):
    result = CHECK.run(bench("by_first_launch"))
    assert result.status is Status.DIVERGED
    assert all("largest batch first" in f.message for f in result.findings)
    assert result.findings[0].details["processes that differ"] == PROCESSES // 2
    sizes = [job.payload["sizes"] for job in in_process.jobs]
    assert sizes[0] == [1, 8, 17, 256]
    assert sizes[1] == [256, 17, 8, 1]


def test_the_flag_of_this_process_is_that_of_the_children(bench, in_process, monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    CHECK.run(bench("clean"))
    assert {job.env["VLLM_BATCH_INVARIANT"] for job in in_process.jobs} == {"1"}
    assert {job.start for job in in_process.jobs} == {"template"}


def test_a_factory_that_ignores_its_seed_is_an_error_not_a_divergence(bench, monkeypatch):
    supervisor = InProcess()
    monkeypatch.setattr(fresh, "_supervisor", lambda pid: supervisor)
    subject = bench("other_rows")
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    result = CHECK.run(subject)
    assert result.status is Status.ERROR
    assert "factory is not deterministic" in result.reason


def test_an_exception_in_the_child_is_an_error_with_its_text(bench, in_process, monkeypatch):
    subject = bench("raises")
    monkeypatch.setenv("SAMEBITS_TEST_PARENT", "0")
    result = CHECK.run(subject)
    assert result.status is Status.ERROR
    assert "no such card" in result.reason


@pytest.mark.parametrize("kind", ["died", "failed", "silent"])
def test_every_way_to_end_early(bench, monkeypatch, kind):
    death = Death("signal", "killed by SIGSEGV while running case x", "x")
    last = {
        "died": lambda job: CaseDied(job.suite, job.cases[0], death, 0.1),
        "failed": lambda job: SuiteFailed(job.suite, death, job.cases),
        "silent": lambda job: CaseEnded(job.suite, job.cases[0], 0.1),
    }[kind]
    supervisor = InProcess(last)
    monkeypatch.setattr(fresh, "_supervisor", lambda pid: supervisor)
    result = CHECK.run(bench("clean"))
    assert result.status is Status.CRASHED
    assert ("SIGSEGV" if kind != "silent" else "without a word") in result.reason
    assert len(supervisor.jobs) == 1


def test_nothing_stays_on_disk(bench, in_process):
    CHECK.run(bench("clean"))
    assert not Path(in_process.jobs[0].payload["launches"]).parent.exists()


def test_the_split_of_the_control_changes_bits(monkeypatch):
    seen = set()
    for pid in range(7):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        subject = per_process()
        seen.add(subject.fn(*subject.rows).numpy().tobytes())
    assert len(seen) == 7


def test_only_a_few_environments_stay_warm(monkeypatch):
    closed = []

    class Warm:
        def __init__(self, folder):
            self.folder = folder

        def run(self, job):
            return []

        def close(self):
            closed.append(self.folder)

    monkeypatch.setattr("samebits.isolate.supervisor.Supervisor", Warm)
    supervisor = fresh._Supervisor(os.getpid())
    for value in "012":
        supervisor.run(Job("s", fresh.ENTRY, {}, ("c",), env={"VLLM_BATCH_INVARIANT": value}))
    assert not closed
    supervisor.run(Job("s", fresh.ENTRY, {}, ("c",), env={"VLLM_BATCH_INVARIANT": "0"}))
    assert not closed
    supervisor.run(Job("s", fresh.ENTRY, {}, ("c",), env={"VLLM_BATCH_INVARIANT": "3"}))
    assert len(closed) == 1
