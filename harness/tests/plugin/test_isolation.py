"""Marked tests leave the process, and everything about their reports is as if they had not."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from samebits.plugin import options

pytest_plugins = "pytester"

MIXED = """
    import os, signal, subprocess, sys, time, warnings
    import pytest
    from helping import note

    ours = pytest.mark.samebits

    def test_plain():
        note("plain")

    @ours
    def test_first(record_property, tmp_path):
        note("first")
        assert os.environ["VLLM_BATCH_INVARIANT"] == "1"
        record_property("what", {1, 2})  # not a JSON type
        warnings.warn("a warning from afar", FutureWarning)

    @ours
    def test_fails():
        print("said in Python")
        assert [1, 2] == [1, 3]

    @ours(env={"KNOB": "7", "VLLM_BATCH_INVARIANT": "0"})
    def test_other_environment():
        note("other")
        assert (os.environ["KNOB"], os.environ["VLLM_BATCH_INVARIANT"]) == ("7", "0")

    @ours
    def test_dies():
        note("dies")
        print("said in Python before", file=sys.stderr)
        os.write(2, b"said in C before\\n")
        os.kill(os.getpid(), signal.SIGSEGV)

    @ours(deadline=0.5)
    def test_hangs():
        subprocess.Popen(["sleep", "300"])
        time.sleep(300)

    @ours
    def test_leaves():
        os._exit(0)

    @ours
    def test_skipped():
        pytest.skip("no such card")

    @ours
    @pytest.mark.xfail(strict=True, reason="known")
    def test_xfail():
        assert False

    @pytest.fixture
    def broken():
        yield
        raise ValueError("in teardown")

    @ours
    def test_teardown(broken):
        note("last")
"""


def test_everything_at_once(project):
    project.write("test_mixed.py", MIXED)
    result = project.run("-ra", "--junitxml=junit.xml", "--durations=1")
    result.assert_outcomes(passed=4, failed=4, skipped=1, xfailed=1, errors=1, warnings=1)
    out = result.stdout.str()
    assert "samebits: each suite in a fresh process (start: template), seed 0" in out
    assert "FutureWarning: a warning from afar" in out
    assert "SKIPPED [1] test_mixed.py:" in out
    assert "no such card" in out
    assert "XFAIL test_mixed.py::test_xfail - known" in out
    assert "assert [1, 2] == [1, 3]" in out
    assert "said in Python\n" in out
    assert "crashed: killed by SIGSEGV while running case test_mixed.py::test_dies" in out
    assert "said in Python before\n    said in C before" in out
    assert " in test_dies" in out
    assert "hung: no end after 0.5 s while running case test_mixed.py::test_hangs" in out
    assert " in test_hangs" in out
    assert "the process left with exit code 0 while running case test_mixed.py::test_leaves" in out
    assert "ValueError: in teardown" in out

    pids = dict(project.notes())
    assert len(set(pids.values())) == 4  # this process, then ours up to the crash, behind the exit, other
    assert pids["first"] == pids["dies"]
    junit = project.junit()
    assert {name for name, case in junit.items() if case.find("failure") is not None} == {
        "test_fails", "test_dies", "test_hangs", "test_leaves",
    }  # fmt: skip
    assert junit["test_first"].find("properties/property").attrib == {"name": "what", "value": "{1, 2}"}
    assert junit["test_teardown"].find("error") is not None


def test_one_item_at_a_time(project):
    """-x stops before the next item starts; --lf runs what failed, and only that."""
    project.write("test_it.py", """
        import pytest
        from pathlib import Path
        from helping import note
        pytestmark = pytest.mark.samebits

        def test_a(): note("a")
        def test_b(): note("b"); assert Path("mended").exists()
        def test_c(): note("c")
    """)  # fmt: skip
    result = project.run("-x")
    result.assert_outcomes(passed=1, failed=1)
    time.sleep(0.2)
    assert project.words() == ["a", "b"]
    project.write("mended", "")
    project.run("--lf").assert_outcomes(passed=1)
    assert project.words() == ["a", "b", "b"]
    project.run("--deselect", "test_it.py::test_c", "-k", "not test_a and test_").assert_outcomes(
        passed=1, deselected=2
    )


def test_fixtures_live_as_long_as_their_scope(project):
    project.write("conftest.py", """
        import pytest
        from helping import note

        @pytest.fixture(scope="module")
        def module_wide():
            note("module up")
            yield
            note("module down")

        @pytest.fixture(scope="session")
        def session_wide():
            note("session up")
            yield
            note("session down")
    """)  # fmt: skip
    text = """
        import pytest
        from helping import note

        @pytest.mark.samebits(suite="both")
        def test_one(module_wide, session_wide): note("one")

        def test_here(module_wide): note("here")

        @pytest.mark.samebits(suite="both")
        def test_two(module_wide): note("two")
    """
    project.write("test_a.py", text)
    project.write("test_b.py", text)
    project.run().assert_outcomes(passed=6)
    notes = project.notes()
    (suite,) = {pid for word, pid in notes if word in ("one", "two")}
    assert [word for word, pid in notes if pid == suite] == [
        "session up", "module up", "one", "two", "module down", "module up", "one", "two", "module down",
        "session down",
    ]  # fmt: skip
    assert [word for word, pid in notes if pid != suite] == ["module up", "here", "module down"] * 2


def test_a_machine_that_cannot_run_them(project):
    """Errors that say why, for each test, and plain tests still run."""
    project.write("conftest.py", """
        import os, sys
        if "VLLM_BATCH_INVARIANT" in os.environ:
            sys.stderr.write("no libcuda\\n")
            os._exit(3)
    """)  # fmt: skip
    project.write("test_a.py", """
        import pytest

        @pytest.mark.samebits
        def test_one(): pass

        @pytest.mark.samebits
        def test_two(): pass

        def test_plain(): pass
    """)  # fmt: skip
    result = project.run()
    result.assert_outcomes(passed=1, errors=2)
    out = result.stdout.str()
    assert "infrastructure: the process left with exit code 3 before its first case: the test did not run" in out
    assert "no libcuda" in out


def test_a_module_that_is_another_one_there(project):
    project.write("test_a.py", """
        import os
        import pytest
        if "VLLM_BATCH_INVARIANT" in os.environ:
            raise ImportError("not with the flag")

        @pytest.mark.samebits
        def test_one(): pass
    """)  # fmt: skip
    result = project.run()
    result.assert_outcomes(errors=1)
    assert "not found in its fresh process" in result.stdout.str()
    assert "ImportError: not with the flag" in result.stdout.str()


def test_what_was_shipped_before_a_death_is_shown(project):
    """A test that fails, and in whose teardown the process dies, as with a sticky device error."""
    project.write("test_a.py", """
        import os
        import pytest

        @pytest.fixture
        def device():
            yield
            os.abort()

        @pytest.mark.samebits
        def test_one(device): assert "misaligned address" == ""

        @pytest.mark.samebits
        def test_two(device): pass
    """)  # fmt: skip
    result = project.run()
    result.assert_outcomes(failed=2)
    out = result.stdout.str()
    assert "crashed: killed by SIGABRT while running case test_a.py::test_one" in out
    assert "AssertionError: assert 'misaligned address' == ''" in out


def test_a_test_that_ends_the_session(project):
    project.write("test_a.py", """
        import pytest
        pytestmark = pytest.mark.samebits

        def test_one(): pytest.exit("enough", 7)
        def test_two(): pass
    """)  # fmt: skip
    result = project.run()
    assert result.ret == 7
    assert "enough" in result.stdout.str()
    result.assert_outcomes()


def test_a_death_while_it_finishes_fails_the_session(project):
    project.write("conftest.py", """
        import os
        def pytest_sessionfinish():
            if "VLLM_BATCH_INVARIANT" in os.environ:
                os._exit(9)
    """)  # fmt: skip
    project.write("test_a.py", """
        import pytest
        @pytest.mark.samebits
        def test_one(): pass
    """)  # fmt: skip
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    assert "the process left with exit code 9 after case test_a.py::test_one" in result.stdout.str()


class TestXdist:
    @pytest.fixture(autouse=True)
    def needed(self):
        pytest.importorskip("xdist")

    def suites(self, project):
        for name in "ab":
            project.write(f"test_{name}.py", f"""
                import pytest
                from helping import note

                @pytest.mark.samebits
                @pytest.mark.parametrize("i", range(4))
                def test_{name}(i, worker_id): note("{name} " + worker_id)
            """)  # fmt: skip

    @pytest.mark.parametrize("dist", ["loadfile", *(["loadgroup"] if options.GROUPS_WORK else [])])
    def test_a_suite_stays_together(self, project, dist):
        self.suites(project)
        result = project.run("-p", "xdist", "-n", "2", "--dist", dist, "--junitxml=junit.xml")
        result.assert_outcomes(passed=8)
        assert "may split" not in result.stdout.str()
        notes = project.notes()
        assert len({pid for _, pid in notes}) == 2
        assert {word for word, _ in notes} in ({"a gw0", "b gw1"}, {"a gw1", "b gw0"}, {"a gw0", "b gw0"})
        assert len(project.junit()) == 8

    def test_split_over_workers_it_still_runs(self, project):
        self.suites(project)
        result = project.run("-p", "xdist", "-n", "2")
        result.assert_outcomes(passed=8)
        assert len(project.notes()) == 8
        assert "--dist load may split a suite over workers; --dist loadfile does not" in result.stdout.str()


def test_ctrl_c_ends_everything(project, tmp_path: Path):
    project.write("test_a.py", """
        import ctypes, subprocess
        import pytest
        from helping import note
        pytestmark = pytest.mark.samebits

        def test_one(): pass

        def test_two():
            note("two")
            child = subprocess.Popen(["sleep", "300"])
            note(f"child-{child.pid}")
            ctypes.PyDLL(None).pause()

        def test_three(): pass
    """)  # fmt: skip
    process = project.pytester.popen([sys.executable, "-m", "pytest", *project.arguments("-v")], stdin=None)
    until = time.monotonic() + 30
    while len(project.notes()) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=20)[0].decode()
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "test_a.py::test_one PASSED" in out
    assert "KeyboardInterrupt" in out
    (_, pid), (child, _) = project.notes()
    for number in (pid, int(child.removeprefix("child-"))):
        until = time.monotonic() + 3
        while Path(f"/proc/{number}").exists() and time.monotonic() < until:
            time.sleep(0.02)
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_limits_of_pytest_timeout_are_deadlines(project):
    """Its alarm in the parent would end the session. This stands for it, from its hook's documentation."""
    project.write("conftest.py", """
        import types
        import pytest

        class Hooks:
            @pytest.hookspec(firstresult=True)
            def pytest_timeout_set_timer(item, settings): pass

        def pytest_addhooks(pluginmanager):
            pluginmanager.add_hookspecs(Hooks)

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(item):
            settings = types.SimpleNamespace(timeout=0.5 if "b" in item.name else 60, func_only=False)
            taken = item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)
            assert bool(taken) == ("here" not in item.name)
            return (yield)
    """)  # fmt: skip
    project.write("test_it.py", """
        import time
        import pytest

        def test_here(): pass

        @pytest.mark.samebits
        def test_a(): time.sleep(0.6)

        @pytest.mark.samebits(deadline=60)
        def test_b(): time.sleep(60)

        @pytest.mark.samebits
        def test_c(): pass
    """)  # fmt: skip
    result = project.run()
    result.assert_outcomes(passed=3, failed=1)
    assert "hung: no end after 0.5 s while running case test_it.py::test_b" in result.stdout.str()


def test_nobody_runs_a_test_again_until_it_passes(project):
    project.write("conftest.py", """
        from _pytest.runner import runtestprotocol

        class Retry:
            def pytest_runtest_protocol(self, item, nextitem):
                item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                runtestprotocol(item, nextitem=item, log=False)
                runtestprotocol(item, nextitem=nextitem, log=True)
                return True

        def pytest_configure(config):
            config.pluginmanager.register(Retry(), "rerunfailures")
    """)  # fmt: skip
    project.write("test_it.py", """
        import pytest
        from helping import note

        @pytest.mark.samebits
        def test_theirs(): note("ours")

        def test_here(): note("here")
    """)  # fmt: skip
    project.run().assert_outcomes(passed=2)
    assert project.words() == ["ours", "here", "here"]


def test_what_others_have_measured_stays(project):
    """pytest-cov deletes earlier data when it starts, unless told not to. This stands for it."""
    project.write("conftest.py", """
        def pytest_addoption(parser):
            parser.addoption("--cov", dest="cov_source")
            parser.addoption("--cov-append", action="store_true")
    """)  # fmt: skip
    project.write("test_it.py", """
        import pytest
        @pytest.mark.samebits
        def test_there(request): assert request.config.getoption("cov_append")
        def test_here(request): assert not request.config.getoption("cov_append")
    """)  # fmt: skip
    project.run("--cov=it").assert_outcomes(passed=2)


def test_start_spawn(project):
    project.write("pytest.ini", "[pytest]\nsamebits_start = spawn\nsamebits_deadline = 20\n")
    project.write("test_a.py", """
        import sys
        import pytest
        @pytest.mark.samebits
        def test_one(): assert "samebits.isolate.worker" in sys.orig_argv
    """)  # fmt: skip
    project.run().assert_outcomes(passed=1)
