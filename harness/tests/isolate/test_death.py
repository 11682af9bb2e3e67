"""A case that takes its process down costs itself and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path

import pytest

from samebits.isolate import death
from samebits.isolate.journal import JournalReader
from samebits.isolate.protocol import CaseDied, CaseStarted, SuiteFailed
from samebits.isolate.supervisor import Supervisor


@pytest.mark.parametrize("start", ["template", "spawn"])
@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("SIGKILL", "signal", "killed by SIGKILL while running case b"),
        ("SIGABRT", "signal", "killed by SIGABRT while running case b"),
        ("segfault", "signal", "killed by SIGSEGV while running case b"),
        ("exit0", "exit", "the process left with exit code 0 while running case b"),
        ("exit7", "exit", "the process left with exit code 7 while running case b"),
        ("memory", "memory", "out of memory while running case b"),
        ("device", "device", "the CUDA context broke while running case b: CUDA error: an illegal memory access"),
    ],
)
def test_the_rest_of_the_suite_continues(play, how, kind, message, start):
    told = play({"b": how}, start=start)
    assert told.words == ["start a", "end a", "start b", "died b", "start c", "end c"]
    assert told.death.kind == kind
    assert told.death.message.startswith(message)
    assert told.death.case == "b"
    assert told.data("b"), "what the dead case had obtained is lost"
    assert len(told.pids) == 2


def test_a_crash_tells_stack_and_last_words(play):
    told = play({"b": "segfault"})
    assert "about to read nothing" in told.death.stderr
    assert "Segmentation fault" in told.death.stack
    assert "in die" in told.death.stack
    assert told.death.signal == "SIGSEGV"


def test_the_last_words_are_those_of_the_case(play):
    told = play({"a": "segfault", "c": "exit7"})
    deaths = [e.death for e in told if isinstance(e, CaseDied)]
    assert [d.stderr for d in deaths] == ["about to read nothing", ""]


def test_exit_codes_are_kept(play):
    assert play({"a": "exit7"}).death.exit_code == 7


@pytest.mark.parametrize("start", ["template", "spawn"])
@pytest.mark.parametrize(("how", "where"), [("native hang", "in die"), ("stubborn hang", "in die")])
def test_a_hang_is_ended_with_its_stacks_and_its_children(play, how, where, start):
    told = play({"b": how}, deadlines={"b": 0.4}, start=start)
    assert told.words == ["start a", "end a", "start b", "died b", "start c", "end c"]
    assert told.death.kind == "hang"
    assert told.death.message == "hung: no end after 0.4 s while running case b"
    assert where in told.death.stack


def test_a_hang_that_a_signal_wakes_does_not_go_on(play, tmp_path):
    play({"b": "native hang"}, deadlines={"b": 0.4})
    records = JournalReader(tmp_path / "run" / "worker-001" / "journal").read()
    assert [(r["type"], r.get("case")) for r in records[-2:]] == [("start", "b"), ("result", "b")]


def test_the_time_of_the_reader_is_not_the_case_s(tmp_path, job):
    with Supervisor(tmp_path / "run", deadline=0.5) as supervisor:
        events = []
        for event in supervisor.run(job({}, "ab")):
            events.append(event)
            if isinstance(event, CaseStarted):
                time.sleep(0.8)
    assert not [e for e in events if isinstance(e, CaseDied)]


def test_a_limit_on_files_reads_as_a_full_disk(play):
    told = play({"b": "disk"})
    assert told.words == ["start a", "end a", "start b", "died b"]
    assert told.death.kind == "disk"
    assert told.death.message == "no room left to write results while running case b"
    assert "File too large" in told.death.stderr
    assert told.failure.lost == ("c",)
    assert told.data("a")
    assert told.data("b")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk_loses_nothing_that_was_obtained(tmp_path, job, told):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    try:
        cases = tuple(f"case {i}" for i in range(3000))
        with Supervisor(small / "run") as supervisor:
            told = told(supervisor.run(job({}, cases)))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    ended = [w for w in told.words if w.startswith("end")]
    assert len(ended) > 100
    assert told.failure.death.kind == "disk"
    assert told.failure.death.message.startswith("no room left to write results")
    # Every case is accounted for, once.
    died = [e.case for e in told if isinstance(e, CaseDied)]
    assert [w.removeprefix("end ") for w in ended] + died + list(told.failure.lost) == list(cases)


def test_no_room_for_even_the_first_file(tmp_path, job, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    supervisor = Supervisor(tmp_path / "run")
    monkeypatch.setattr(Path, "write_text", full)
    (event,) = supervisor.run(job({}, "ab"))
    assert isinstance(event, SuiteFailed)
    assert event.death.kind == "disk"
    assert "No space left on device" in event.death.message
    assert event.lost == ("a", "b")


class TestOutsideAnyCase:
    def test_twice_at_the_start_is_infrastructure(self, play, tmp_path):
        log = tmp_path / "log"
        told = play({"log": str(log)}, entry="outside")
        assert len(log.read_text().split()) == 2
        (failure,) = told
        assert failure.lost == ("a", "b", "c")
        assert failure.death.message == "the process left with exit code 9 before its first case"
        assert failure.death.stderr == "no such card"

    def test_between_cases_the_next_one_gets_a_new_process(self, play, tmp_path):
        told = play({"log": str(tmp_path / "log"), "after": "b"}, entry="outside")
        assert told.words == ["start a", "end a", "start b", "end b", "start c", "end c"]
        assert len((tmp_path / "log").read_text().split()) == 2
        assert not [e for e in told if isinstance(e, SuiteFailed)]

    def test_behind_the_last_case_it_is_told(self, play, tmp_path):
        told = play({"log": str(tmp_path / "log"), "after": "c"}, entry="outside")
        assert told.words[-1] == "end c"
        assert told.failure.lost == ()
        assert told.failure.death.message == "the process left with exit code 9 after case c"

    def test_an_entry_that_forgets_cases(self, play):
        told = play({}, entry="careless", cases="abc")
        assert told.words == ["start a", "end a", "start b", "end b", "start c", "end c"]

    def test_an_entry_that_does_not_exist(self, play):
        told = play({}, entry="nowhere")
        assert "has no attribute 'nowhere'" in told.failure.death.stderr


def test_an_out_of_memory_kill_is_told_from_any_other(tmp_path):
    assert (
        death.describe(9, "a", "here", folder=tmp_path, oom=True).message
        == "out of memory here (killed by SIGKILL)"
    )
    assert death.describe(9, "a", "here", folder=tmp_path, oom=False).kind == "signal"
    assert death.describe(11, "a", "here", folder=tmp_path, oom=True).kind == "signal"


def test_a_device_error_in_the_last_words_of_an_abort(tmp_path):
    (tmp_path / "stderr").write_text("before\nCUDA error: device-side assert triggered\n")
    (tmp_path / "cuda_host.1.2").write_text("")
    found = death.describe(6, "a", "here", folder=tmp_path)
    assert (found.kind, found.device_error) == ("device", "CUDA error: device-side assert triggered")
    assert found.core == str(tmp_path / "cuda_host.1.2")


# As torch 2.11 on an H200 says it when CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1.
ABORTED = """IndexKernel.cu:111: operator(): Assertion `index < sizes[i] && "index out of bounds"` failed.
Starting GPU coredump generation, set the CUDA_COREDUMP_SHOW_PROGRESS environment variable to 1
"""


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (ABORTED, 'the CUDA context broke here: Assertion `index < sizes[i] && "index out of bounds"` failed'),
        ("", "the CUDA context broke here: CUDA wrote a core dump"),
    ],
)
def test_a_cuda_core_dump_explains_an_abort(tmp_path, stderr, message):
    (tmp_path / "stderr").write_text(stderr)
    (tmp_path / "cuda_host.1.2").write_text("")
    found = death.describe(6, "a", "here", folder=tmp_path)
    assert (found.kind, found.message, found.signal) == ("device", message, "SIGABRT")
