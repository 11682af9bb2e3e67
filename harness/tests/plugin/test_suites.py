"""Suites and the fixture, with real kernels: verdicts become reports."""

from __future__ import annotations

pytest_plugins = "pytester"

KERNELS = """
    import os, signal
    import torch
    import samebits
    from helping import note

    def rows(seed):
        note("rows")
        return (torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)),)

    def by_batch(x):
        if len(x) == 1:
            return x.sum(1, keepdim=True)
        return x[:, :32].sum(1, keepdim=True) + x[:, 32:].sum(1, keepdim=True)

    def steady(x):
        return (x * 0.1).cumsum(1)

    FEW = {"checks": ["batch-size", "repeat"], "max_batch": 8}
"""
SUITE = (
    KERNELS
    + """
    suite = samebits.Suite("theirs", env={"KNOB": "1"})

    @suite.case(k=[1, 2], **FEW)
    def fine(seed, k):
        assert os.environ["KNOB"] == "1"
        return samebits.Subject(steady, rows(seed), addends=64)

    @suite.control(env={"VLLM_BATCH_INVARIANT": "0"}, **FEW)
    def free(seed):
        assert os.environ["VLLM_BATCH_INVARIANT"] == "0"
        return samebits.Subject(by_batch, rows(seed), addends=64)

    @suite.case(expect="crash", **FEW)
    def dies(seed):
        return samebits.Subject(lambda x: os.kill(os.getpid(), signal.SIGSEGV), rows(seed))

    @suite.case(expect="hang", deadline=0.4, **FEW)
    def hangs(seed):
        return samebits.Subject(lambda x: signal.pause(), rows(seed))

    @suite.case(needs=lambda: "needs a card", **FEW)
    def elsewhere(seed):
        raise AssertionError("never built")
"""
)


def test_a_suite_of_a_test_module(project):
    project.write("test_theirs.py", SUITE)
    result = project.run("-v", "-rs", "--junitxml=junit.xml")
    result.assert_outcomes(passed=6, skipped=1)
    out = result.stdout.str()
    result.stdout.fnmatch_lines(
        ["*test_theirs.py::suite::fine-k=1 PASSED*", "*test_theirs.py::suite::power PASSED*"]
    )
    assert "needs a card" in out
    assert "test_theirs.py::suite: 2 invariant, 2 contained, 1 skipped, 1 caught over " in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("  contained")] == [
        ["contained", "dies"], ["contained", "hangs"],
    ]  # fmt: skip
    properties = {p.attrib["name"]: p.attrib["value"] for p in project.junit()["fine-k=1"].iter("property")}
    assert properties["samebits.verdict"] == "invariant"
    assert properties["samebits.coverage.batch-size"] == "all 36 (M, position) pairs, M = 1..8"


BAD = (
    KERNELS
    + """
    suite = samebits.Suite("theirs")

    @suite.case(**FEW)
    def split(seed):
        return samebits.Subject(by_batch, rows(seed), addends=64)

    @suite.case(**FEW)
    def dies_later(seed):
        def kernel(x):
            if len(x) > 3:
                os.write(2, b"CUDA error: an illegal memory access was encountered\\\\n")
                os.abort()
            return x
        return samebits.Subject(kernel, rows(seed))

    @suite.case(**FEW)
    def refused(seed):
        return samebits.Subject(steady, ())

    @suite.control(**FEW)
    def not_caught(seed):
        return samebits.Subject(steady, rows(seed), addends=64)

    powerless = samebits.Suite("powerless")

    @powerless.case(**FEW)
    def fine(seed):
        return samebits.Subject(steady, rows(seed), addends=64)
"""
)


def test_a_suite_that_fails(project):
    project.write("test_theirs.py", BAD)
    result = project.run("--junitxml=junit.xml", "--samebits-seed=3")
    result.assert_outcomes(failed=5, passed=1, skipped=1)
    out = result.stdout.str()
    assert (
        "theirs::split (by_batch) is not batch invariant" in out
        or "split (by_batch) is not batch invariant" in out
    )
    assert "samebits replay test_theirs::split::batch-size@3" in out.replace("'", "")
    assert "theirs::dies_later: crashed" in out
    assert "CUDA error: an illegal memory access was encountered" in out
    assert "theirs::refused: usage error" in out
    assert "theirs::not_caught: no power" in out
    assert "suite powerless: no power\n  no control was caught: it declares none (@suite.control)" in out
    assert project.junit()["split"].find("failure") is not None


def test_part_of_a_suite_is_not_judged(project):
    project.write("test_theirs.py", SUITE)
    result = project.run("-rs", "-k", "fine or power")
    result.assert_outcomes(passed=2, skipped=1, deselected=4)
    assert "judged where the whole suite runs: 4 of 6 cases did not" in result.stdout.str()


def test_an_installed_suite_whatever_its_file_is_called(project):
    project.pytester.mkpydir("theirs_suites")
    project.write("theirs_suites/sums.py", SUITE)
    project.write("test_uses_it.py", """
        from theirs_suites.sums import suite

        def test_has_cases(): assert len(suite) == 6
    """)  # fmt: skip
    dist = project.path / "theirs_suites-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs_suites\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[samebits.suites]\nsums = theirs_suites.sums\n")
    everything = project.run("--collect-only", "-q", "--import-mode=importlib").stdout.str()
    assert "theirs_suites/sums.py::suite::fine-k=1" in everything
    assert "8 tests collected" in everything  # where it is only imported, it is not collected again
    project.run("--pyargs", "theirs_suites", "-k", "fine").assert_outcomes(passed=2, deselected=5)


def test_the_fixture(project):
    project.write("test_mine.py", KERNELS + """
    import pytest

    def test_steady(batch_invariant):
        result = batch_invariant(steady, *rows(0), checks=["batch-size"])
        assert result.seed == 5

    def test_by_batch(batch_invariant):
        batch_invariant(steady, *rows(0), checks=["batch-size"])
        batch_invariant(by_batch, *rows(0), checks=["batch-size"])

    def test_blind(batch_invariant):
        batch_invariant(steady, *rows(0), checks=[])

    def test_expected(batch_invariant):
        with pytest.raises(samebits.DivergenceError, match="not batch invariant"):
            batch_invariant(by_batch, *rows(0), checks=["batch-size"])
    """)  # fmt: skip
    result = project.run("--samebits-seed=5", "--samebits-max-batch=6", "--junitxml=junit.xml")
    result.assert_outcomes(passed=2, failed=2)
    out = result.stdout.str()
    assert "all 21 (M, position) pairs, M = 1..6" in out
    assert "replay      pytest test_mine.py::test_by_batch --samebits-seed=5" in out
    assert "samebits/session" not in out  # nobody wants a traceback through the harness
    assert "NothingTestedError" in out
    names = [p.attrib["name"] for p in project.junit()["test_by_batch"].iter("property")]
    assert names.count("samebits.status") == 2
    assert len({pid for _, pid in project.notes()}) == 1


def test_collecting_need_not_import_torch_and_processes_have_it(project):
    project.write("conftest.py", """
        import sys
        from helping import note
        note("torch" if "torch" in sys.modules else "light")
    """)  # fmt: skip
    project.write("test_late.py", """
        import samebits

        suite = samebits.Suite("late")

        @suite.case(checks=["repeat"], max_batch=4)
        def fine(seed):
            import torch
            return samebits.Subject(torch.relu, (torch.ones(4, 4),))
    """)  # fmt: skip
    project.run("-k", "fine", "--samebits-budget=0.1").assert_outcomes(passed=1, deselected=1)
    assert project.words() == ["light", "torch"]
