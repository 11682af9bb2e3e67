"""Whatever happens to the parent: what was obtained is on disk, and no process stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from samebits.isolate.journal import JournalReader
from samebits.isolate.supervisor import Supervisor

SCRIPT = """
import json, sys
from pathlib import Path
from samebits.isolate.protocol import Job
from samebits.isolate.supervisor import Supervisor

spec = json.loads(sys.argv[1])
try:
    with Supervisor(Path(spec["directory"]), start=spec["start"]) as supervisor:
        job = Job("mine", spec["entry"], {"b": "native hang"}, ("a", "b", "c"), env=spec["env"], preload=())
        for event in supervisor.run(job):
            print(type(event).__name__, event.case, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


@pytest.mark.parametrize("start", ["template", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_lost_and_nobody_stays(tmp_path, job, survivors, number, start):
    import json

    made = job({})
    spec = {"directory": str(tmp_path / "run"), "entry": made.entry, "env": dict(made.env), "start": start}
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(spec)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=env,
    ) as parent:  # fmt: skip
        lines = []
        while not lines or lines[-1] != "CaseData b":
            lines.append(parent.stdout.readline().strip())
            assert lines[-1], lines
        time.sleep(0.1)  # into the hang, with a grandchild
        parent.send_signal(number)
        rest = parent.stdout.read().split()
        code = parent.wait(10)
    assert lines[:3] == ["CaseStarted a", "CaseData a", "CaseEnded a"]
    assert rest == (["interrupted"] if number == signal.SIGINT else [])
    assert code == -number
    assert survivors() == []
    records = JournalReader(tmp_path / "run" / "worker-001" / "journal").read()
    assert [(r["type"], r["case"]) for r in records] == [
        ("start", "a"), ("result", "a"), ("end", "a"), ("start", "b"), ("result", "b"),
    ]  # fmt: skip


def test_closing_the_iterator_ends_the_worker_at_once(tmp_path, job, survivors):
    with Supervisor(tmp_path / "run") as supervisor:
        events = supervisor.run(job({"a": "native hang"}))
        next(events)
        events.close()
        assert [c for c in survivors(patience=0) if "samebits.isolate.template" not in c] == []


def test_a_supervisor_that_is_closed_ends_a_worker_that_nobody_reads(tmp_path, job, survivors):
    supervisor = Supervisor(tmp_path / "run")
    events = supervisor.run(job({"a": "native hang"}))
    next(events)
    supervisor.close()
    assert survivors() == []
    events.close()


def test_a_template_that_is_killed_takes_its_workers_along_and_is_replaced(tmp_path, job, told):
    with Supervisor(tmp_path / "run") as supervisor:
        events = supervisor.run(job({"a": "native hang"}))
        next(events)
        (template,) = supervisor._templates.values()
        template._popen.kill()
        rest = told(events)
        assert rest.death.message == "killed by SIGKILL while running case a"
        assert rest.words[-1] == "end c"
