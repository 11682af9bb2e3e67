from __future__ import annotations

import torch

from samebits.checks.history import CHECK
from samebits.engine.bench import Bench
from samebits.engine.result import Status
from samebits.engine.subject import Subject


def pool(m: int = 8) -> torch.Tensor:
    return torch.randn(m, 24, generator=torch.Generator().manual_seed(1))


def run(fn, rows=None, max_batch=None, **about):
    return CHECK.run(Bench(Subject(fn, rows or (pool(),), derive=False, **about), max_batch=max_batch))


def test_catches_its_control_also_behind_other_launches():
    assert CHECK.run(Bench(CHECK.control())).status is Status.DIVERGED
    bench = Bench(CHECK.control())
    bench.facts()
    assert CHECK.run(bench).status is Status.DIVERGED


def test_a_clean_kernel_passes():
    result = run(lambda x: x * 2)
    assert result.status is Status.PASSED
    assert "257" in result.coverage
    assert "no reset" in result.notes[0]


def test_a_split_chosen_by_the_largest_batch_so_far():
    seen = [0]

    def fn(x):
        seen[0] = max(seen[0], len(x))
        halves = x.float().chunk(4 if seen[0] > 100 else 1, dim=1)
        return sum(h.cumsum(1)[:, -1:] for h in halves)

    result = run(fn, reset=lambda: seen.__setitem__(0, 0))
    assert result.status is Status.DIVERGED
    assert result.findings[0].batch != 257


def test_a_path_taken_once_a_counter_is_full():
    calls = [0]

    def warm(x):
        calls[0] += 1
        return x * 2 if calls[0] < 20 else x * 2 + 1

    assert run(warm).status is Status.DIVERGED


def test_results_in_a_shared_workspace_are_read_in_time():
    workspace = torch.empty(512, 24)

    def reuse(x):
        workspace[: len(x)] = x * 2
        return workspace[: len(x)]

    # Overwriting results is the out contract's finding, not a trace of history.
    assert run(reuse).status is Status.PASSED


def test_history_is_not_taken_for_flakiness():
    last = [0]

    def fn(x):
        y = x + (last[0] > 100 and len(x) < 10)
        last[0] = len(x)
        return y

    assert run(fn).status is Status.DIVERGED


def test_noise_is_flaky():
    generator = torch.Generator().manual_seed(0)
    result = run(lambda x: x + torch.randn(x.shape, generator=generator))
    assert result.status is Status.FLAKY


def test_one_batch_size_does_not_apply():
    bench = Bench(Subject(lambda x: x, (pool(),), derive=False), max_batch=1)
    assert "one batch size" in (CHECK.applies(bench) or "")
    assert CHECK.applies(Bench(Subject(lambda x: x, (pool(),), derive=False))) is None


def test_equal_rows_have_no_power():
    result = run(lambda x: x * 2, rows=(torch.ones(8, 24),))
    assert result.status is Status.NO_POWER


def test_max_batch_bounds_every_launch():
    sizes = set()

    def record(x):
        sizes.add(len(x))
        return x * 2

    run(record, max_batch=20)
    assert max(sizes) == 20


def test_stale_rows_show_only_where_the_larger_batch_held_other_rows():
    workspace = torch.zeros(512, 24)

    def reads_one_row_further(x):
        workspace[: len(x)] = x
        return x + workspace[len(x)]

    bench = Bench(Subject(reads_one_row_further, (pool(),), derive=False))
    bench.run(bench.batch(300)[1])
    result = CHECK.run(bench)
    assert {f.details["ran before"] for f in result.findings} == {"a larger batch of other rows (M=257)"}
