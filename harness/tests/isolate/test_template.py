"""Warm processes: one per environment, single-threaded, without CUDA."""

from __future__ import annotations

import subprocess
import sys

import pytest

from samebits.isolate import device, environment, template
from samebits.isolate.journal import JournalReader, JournalWriter
from samebits.isolate.supervisor import TEMPLATES, Supervisor


def facts(told):
    return next(e.data for e in told if type(e).__name__ == "CaseData")


class TestEnvironment:
    def test_is_set_before_the_interpreter_starts(self, play):
        found = facts(play({}, "a", "says", env={"VLLM_BATCH_INVARIANT": "1", "PYTHONHASHSEED": "7"}))
        assert found["env"]["VLLM_BATCH_INVARIANT"] == "1"
        assert found["env"]["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
        assert found["env"]["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
        assert "/worker-001/cuda_" in found["env"]["CUDA_COREDUMP_FILE"]
        assert found["core"] == 0

    def test_one_template_for_each(self, play, tmp_path):
        env = ({"FLAG": "1"}, {"FLAG": "0"}, {"FLAG": "1"})
        found = [facts(play({}, "a", "says", env=e)) for e in env]
        assert [f["env"]["FLAG"] for f in found] == ["1", "0", "1"]
        assert found[0]["parent"] == found[2]["parent"] != found[1]["parent"]
        assert len({f["pid"] for f in found}) == 3

    def test_only_a_few_are_kept_warm(self, play, survivors):
        parents = [facts(play({}, "a", "says", env={"FLAG": str(i % 6)}))["parent"] for i in range(7)]
        assert len(set(parents)) == 7
        assert len(survivors(patience=0)) == TEMPLATES
        again = facts(play({}, "a", "says", env={"FLAG": "5"}))["parent"]
        assert again == parents[5]

    def test_follows_that_of_the_parent(self, play, monkeypatch):
        monkeypatch.setenv("FLAG", "before")
        first = facts(play({}, "a", "says"))
        monkeypatch.setenv("FLAG", "after")
        assert first["env"]["FLAG"] == "before"
        assert facts(play({}, "a", "says"))["env"]["FLAG"] == "after"

    def test_the_running_test_is_not_part_of_it(self, play, monkeypatch):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "one")
        first = facts(play({}, "a", "says"))
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "two")
        assert first["parent"] == facts(play({}, "a", "says"))["parent"]
        assert "PYTEST_CURRENT_TEST" not in first["env"]


def test_workers_do_not_share_random_state(play):
    assert facts(play({}, "a", "says"))["random"] != facts(play({}, "a", "says"))["random"]


def test_spawn_is_a_cold_interpreter(play):
    found = facts(play({}, "a", "says", start="spawn", preload=("torch",)))
    assert "samebits.isolate.worker" in found["argv"]
    assert found["torch"] is False
    assert found["session"] == found["pid"]


def test_output_goes_to_files(play, tmp_path):
    play({}, "a", "says")
    folder = tmp_path / "run" / "worker-001"
    assert (folder / "stdout").read_text() == "to stdout\n"
    assert (folder / "stderr").read_text() == "to stderr\n"


def test_modules_of_the_current_folder_do_not_shadow(play, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise ImportError('the wrong json')")
    monkeypatch.chdir(tmp_path)
    assert facts(play({}, "a", "says"))["cwd"] == str(tmp_path)


class TestPreload:
    def test_torch_is_there_and_forkable(self, play):
        assert facts(play({}, "a", "says", preload=("torch",)))["torch"] is True

    def test_a_module_that_starts_threads_is_refused(self, play, tmp_path):
        (tmp_path / "threads_at_import.py").write_text(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        )
        failure = play({}, preload=("threads_at_import",), env={"PYTHONPATH": str(tmp_path)}).failure
        assert "importing threads_at_import started 1 threads: a fork would lose them" in failure.death.message

    def test_a_module_that_starts_cuda_is_refused(self, monkeypatch):
        monkeypatch.setattr(template, "cuda_started", lambda: True)
        assert "created a CUDA context" in template.preload(["json"])["error"]

    def test_a_module_that_is_missing_is_told(self, play):
        failure = play({}, preload=("no_such_module",)).failure
        assert "No module named 'no_such_module'" in failure.death.message
        assert failure.lost == ("a", "b", "c")


def test_isolation_imports_neither_torch_nor_pytest():
    code = (
        "import sys, samebits.isolate.supervisor, samebits.isolate.template, samebits.isolate.device; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'pytest', '_pytest', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_whether_cuda_has_started(monkeypatch):
    import types

    def torch(started):
        return types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: started))

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert environment.cuda_started() is False
    monkeypatch.setitem(sys.modules, "torch", torch(False))
    assert environment.cuda_started() is False
    monkeypatch.setitem(sys.modules, "torch", torch(True))
    assert environment.cuda_started() is True
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    assert environment.cuda_started() is False


@pytest.mark.parametrize(
    ("environ", "cards", "expected"),
    [
        ({}, 8, {}),
        ({"PYTEST_XDIST_WORKER": "master"}, 8, {}),
        ({"PYTEST_XDIST_WORKER": "gw1"}, 0, {}),
        ({"PYTEST_XDIST_WORKER": "gw1"}, 1, {}),
        ({"PYTEST_XDIST_WORKER": "gw1"}, 4, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"PYTEST_XDIST_WORKER": "gw5"}, 4, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"PYTEST_XDIST_WORKER": "gw1", "CUDA_VISIBLE_DEVICES": "6, 7"}, 8, {"CUDA_VISIBLE_DEVICES": "7"}),
        ({"PYTEST_XDIST_WORKER": "gw1", "CUDA_VISIBLE_DEVICES": "3"}, 8, {}),
        ({"PYTEST_XDIST_WORKER": "gw1", "CUDA_VISIBLE_DEVICES": ""}, 8, {}),
    ],
)
def test_each_xdist_worker_has_a_card(monkeypatch, environ, cards, expected):
    monkeypatch.setattr(device, "card_count", lambda: cards)
    assert device.own_card(environ) == expected


def test_a_torn_record_is_not_a_record(tmp_path):
    path = tmp_path / "journal"
    writer, reader = JournalWriter(path), JournalReader(path)
    assert reader.read() == []
    writer.write({"type": "start", "case": "ä"})
    whole = path.read_bytes()
    writer.write({"type": "end"})
    torn = path.read_bytes()
    path.write_bytes(torn[:-3])
    assert reader.read() == [{"type": "start", "case": "ä"}]
    assert reader.read() == []
    path.write_bytes(torn)
    assert reader.read() == [{"type": "end"}]
    assert len(whole) < len(torn)


def test_workers_are_told_apart_by_folder(tmp_path, job):
    with Supervisor(tmp_path / "run") as supervisor:
        for _ in range(2):
            list(supervisor.run(job({})))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["template.log", "worker-001", "worker-002"]
