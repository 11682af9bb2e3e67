"""What can be asked for, and what is refused with a reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from samebits.plugin import options

pytest_plugins = "pytester"

HERE = """
    import os
    import pytest

    parent = os.getppid()

    @pytest.mark.samebits
    def test_one():
        print(f"flag {os.environ.get('VLLM_BATCH_INVARIANT')}")
        assert os.environ.get("VLLM_BATCH_INVARIANT") is None
"""


@pytest.mark.parametrize(
    ("args", "why"),
    [(("--samebits-isolate=off",), "--samebits-isolate=off"), (("--pdb",), "a debugger needs the terminal")],
)
def test_isolation_can_be_off(project, args, why):
    project.write("test_a.py", HERE)
    result = project.run(*args)
    result.assert_outcomes(passed=1)
    assert f"samebits: isolation is off ({why}): tests run in this process" in result.stdout.str()


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        ("samebits_start = forkserver", "samebits_start\n  found:   forkserver\n  allowed: template, spawn"),
        ("samebits_deadline = long", "samebits_deadline\n  found:   long\n  allowed: a number"),
    ],
)
def test_wrong_ini_values(project, ini, said):
    project.write("pytest.ini", f"[pytest]\n{ini}\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_wrong_marks(project):
    project.write("test_a.py", """
        import pytest
        @pytest.mark.samebits("fast", env={"N": 1}, timeout=3)
        def test_one(): pass
    """)  # fmt: skip
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "found:   'fast', timeout, env={'N': 1}" in result.stderr.str()


FAKE_TORCH = """
    class cuda:
        started = {started}
        is_initialized = classmethod(lambda cls: cls.started)
"""


def test_collecting_must_not_start_cuda(project):
    project.write("torch.py", FAKE_TORCH.format(started=True))
    project.write("test_a.py", """
        import pytest, torch
        @pytest.mark.samebits
        def test_one(): pass
    """)  # fmt: skip
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "collecting the tests started CUDA in this process" in result.stderr.str()
    assert "--samebits-isolate=off" in result.stderr.str()


def test_nor_may_anything_else_in_the_parent(project):
    project.write("torch.py", FAKE_TORCH.format(started=False))
    project.write("conftest.py", """
        import os, torch
        def pytest_runtest_logreport():
            torch.cuda.started = "VLLM_BATCH_INVARIANT" not in os.environ
    """)  # fmt: skip
    project.write("test_a.py", """
        import pytest
        @pytest.mark.samebits
        def test_one(): pass
    """)  # fmt: skip
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "this session started CUDA in this process" in result.stdout.str()


class Config:
    def __init__(self, forked: bool) -> None:
        self.forked = forked

    def getoption(self, name: str, default: object = None) -> object:
        return self.forked if name == "forked" else default


@pytest.mark.parametrize("forked_version", ["1.6.0", "1.7.5"])
@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("9.0.2", "failing subtests are reported as passed"),
        ("9.1.1", "failing subtests are reported as passed"),
        ("9.2.0", "every test fails"),
        ("9.3.0.dev1", "every test fails"),
        ("10.0.0", "every test fails"),
    ],
)
def test_forked_is_refused_where_it_lies_or_fails(version, why, forked_version):
    with pytest.raises(pytest.UsageError) as error:
        options.refuse_forked(Config(True), version, forked_version)
    assert f"pytest-forked {forked_version} with pytest {version}, where {why}" in str(error.value)
    assert "leave --forked out" in str(error.value)


@pytest.mark.parametrize(
    ("forked", "version", "plugin"),
    [(True, "8.4.2", "1.7.5"), (False, "9.2.0", "1.7.5"), (True, "9.2.0", "1.8.0")],
)
def test_forked_elsewhere_is_none_of_our_business(forked, version, plugin):
    options.refuse_forked(Config(forked), version, plugin)


@pytest.mark.skipif(options._numbers(pytest.__version__) < (9, 0), reason="--forked works with this pytest")
def test_refusal_is_a_usage_error(project):
    project.write(
        "conftest.py", "def pytest_addoption(parser): parser.addoption('--forked', action='store_true')\n"
    )
    result = project.run("--forked")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--forked cannot be used here" in result.stderr.str()


@pytest.mark.skipif(options._numbers(pytest.__version__) >= (9, 0), reason="--forked is refused with this pytest")
def test_forked_works(project):
    pytest.importorskip("pytest_forked")
    project.write("test_a.py", """
        import os
        import pytest
        from helping import note

        def test_before(): note("before")

        @pytest.mark.samebits
        def test_one(): note("one")

        @pytest.mark.samebits
        @pytest.mark.forked
        def test_two(): note("two"); os.abort()

        @pytest.mark.samebits
        def test_three(): note("three")

        def test_dies(): note("dies"); os.abort()
    """)  # fmt: skip
    result = project.run("-p", "pytest_forked", "--forked")
    result.assert_outcomes(passed=3, failed=2)
    pids = dict(project.notes())
    assert pids["one"] == pids["two"] != pids["three"]
    assert pids["before"] != pids["dies"]
    assert "crashed: killed by SIGABRT while running case test_a.py::test_two" in result.stdout.str()


def test_loading_the_plugin_costs_nothing_heavy():
    code = (
        "import sys, samebits.plugin; "
        "heavy = ('torch', 'numpy', 'hypothesis', 'rich', 'samebits.isolate', 'samebits.engine'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("isolate", ["auto", "off"])
def test_an_xdist_worker_has_a_card_of_its_own(project, monkeypatch, isolate):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    project.write("test_a.py", """
        import os
        import pytest

        @pytest.mark.samebits
        def test_one(): assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    """)  # fmt: skip
    project.run(f"--samebits-isolate={isolate}").assert_outcomes(passed=1)
