"""The registry, and what holds for every check of the first half: clean subjects of every kind pass."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from samebits import checks
from samebits.engine.bench import Bench
from samebits.engine.result import Status
from samebits.engine.subject import Subject
from samebits.errors import UsageError


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny launches: waiting for a second thread would take most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


FIRST = ("batch-size", "solo", "replay", "permutation", "duplicates", "neighbours", "prefix", "repeat")


def test_every_id_is_the_name_of_its_file():
    for name in checks.IDS:
        check = checks.get(name)
        assert check.id == name
        assert check.title
        assert type(check).__module__.rsplit(".", 1)[1] == name.replace("-", "_")


def test_all_checks_in_order():
    assert tuple(c.id for c in checks.all_checks()) == checks.IDS


def test_an_unknown_id_names_the_known_ones():
    with pytest.raises(UsageError, match="neighbours, prefix") as raised:
        checks.get("batch_sizes")
    assert raised.value.fix == "did you mean batch-size?"


def test_listing_imports_no_check_and_no_torch():
    code = "import sys; from samebits import checks; checks.IDS; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "samebits.checks.solo"} & set(loaded)


def lookup(x):
    return (x.bitwise_left_shift(3) ^ 0x55).clone()


KINDS = {
    "several rows and outputs": (lambda x, i: (x * 2, i + 1, x[:, 0].clone()), ("pool", "ids")),
    "integer outputs": (lambda x: (x > 0).sum(1), ("pool",)),
    "bool outputs": (lambda x: x > 0, ("pool",)),
    "integers": (lookup, ("ids",)),
    "bfloat16": (lambda x: x * 2, (torch.bfloat16,)),
    "complex": (lambda x: x * 2, (torch.complex64,)),
    "fp8 in and out": (lambda x: x.clone(), (torch.float8_e4m3fn,)),
    "float64, exact integer matmul": (
        lambda x: (x * 8).round() @ torch.ones(24, 5, dtype=x.dtype),
        (torch.float64,),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FIRST)
def test_clean_subjects_of_every_kind_pass(case, name, kind):
    fn, wanted = KINDS[kind]
    known = {"pool": case.pool(), "ids": torch.arange(8)}
    rows = tuple(known[w] if isinstance(w, str) else case.pool(dtype=w) for w in wanted)
    result = case.run(checks.get(name), fn, *rows, max_batch=40)
    assert result.status is Status.PASSED, result
    assert result.pairs
    assert result.coverage


@pytest.mark.parametrize("name", FIRST)
def test_an_output_without_a_row_per_row_is_a_usage_error(name):
    bench = Bench(Subject(lambda x: x[:1].sum(0), (torch.randn(4, 3),), derive=False), max_batch=8)
    with pytest.raises(UsageError, match="one row per input row"):
        checks.get(name).run(bench)


CAUGHT = {
    # control -> what else sees it, of the first half; the rest is blind to it by design
    "batch-size": {"batch-size", "prefix", "solo"},
    "solo": {"solo", "batch-size", "prefix"},
    "replay": {"replay", "batch-size", "permutation", "duplicates", "solo"},
    "permutation": {"permutation", "batch-size", "replay", "duplicates", "solo"},
    "duplicates": {"duplicates", "batch-size", "solo", "prefix", "permutation", "replay"},
    "neighbours": {"neighbours", "replay", "batch-size", "prefix", "solo"},
    "prefix": {"prefix"},
    "repeat": set(FIRST) - {"duplicates"},  # which compares nothing across launches
}


@pytest.mark.parametrize("control", FIRST)
def test_a_control_is_caught_by_its_check_and_the_ones_named(case, control):
    subject = checks.get(control).control()
    caught = {
        name
        for name in FIRST
        if checks.get(name).run(case.bench(subject, max_batch=48)).status in (Status.DIVERGED, Status.FLAKY)
    }
    assert CAUGHT[control] <= caught


@pytest.mark.parametrize("name", FIRST)
def test_results_in_a_shared_workspace_are_read_in_time(case, name):
    workspace = torch.empty(512, 24)

    def reuse(x):
        workspace[: len(x)] = x * 2
        return workspace[: len(x)]

    # Overwriting results is the out contract's finding, not a difference of bits.
    result = case.run(checks.get(name), reuse, max_batch=80)
    assert result.status is Status.PASSED, result


# The rest measures its power itself, on the rows that it runs on.


def plain_gemm(x, w):
    total = torch.zeros(x.shape[0], w.shape[1], dtype=x.dtype)
    for k in range(w.shape[0]):
        total = total + x[:, k : k + 1] * w[k]
    return total


@pytest.mark.parametrize("name", FIRST)
def test_a_clean_gemm_passes_on_derived_rows_with_power(name):
    w = torch.randn(32, 48, generator=torch.Generator().manual_seed(2))
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(3))
    bench = Bench(Subject(lambda x: plain_gemm(x, w), (x,), addends=32), max_batch=70)
    assert bench.probes > 8
    result = checks.get(name).run(bench)
    assert result.status is Status.PASSED, result
    assert result.power is not None
    assert result.power.sensitive


@pytest.mark.parametrize("name", FIRST)
def test_exact_sums_have_no_power(name):
    w = torch.randint(-8, 8, (32, 48), generator=torch.Generator().manual_seed(2)).double()
    x = torch.randint(-8, 8, (8, 32), generator=torch.Generator().manual_seed(3)).double()
    twin = (lambda x: plain_gemm(x, w.flip(0)), (x.flip(1),))
    bench = Bench(
        Subject(lambda x: plain_gemm(x, w), (x,), reordered=twin, addends=32, derive=False), max_batch=40
    )
    result = checks.get(name).run(bench)
    assert result.status is Status.NO_POWER
    assert "order-sensitive" in result.reason


@pytest.mark.parametrize("name", FIRST)
def test_every_control_is_caught_as_it_is(name):
    check = checks.get(name)
    assert check.run(Bench(check.control(), budget=1.0)).status in (Status.DIVERGED, Status.FLAKY)
