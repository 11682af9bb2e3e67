"""Hypothesis finds a failing configuration, shrinks it to the smallest, and its id runs again."""

from __future__ import annotations

import pytest
import torch

import samebits
from samebits import Suite, UsageError
from samebits.engine.result import Status
from samebits.session.case import run_case

K, N, M = 96, 20, 6
"""The fault needs at least these: the smallest configuration is known."""


def strategies():
    from hypothesis import strategies as st

    return {"k": st.integers(1, 20).map(lambda blocks: 16 * blocks), "n": st.integers(8, 64)}


def chained(x: torch.Tensor, w: torch.Tensor, splits: int) -> torch.Tensor:
    k = x.shape[1]
    parts = []
    for p in range(splits):
        part = torch.zeros(x.shape[0], w.shape[0])
        for i in range(k * p // splits, k * (p + 1) // splits):
            part = part + x[:, i, None] * w[None, :, i]
        parts.append(part)
    return sum(parts[1:], parts[0])


@pytest.fixture
def suite() -> Suite:
    suite = Suite("searched")

    @suite.explore(strategies, max_batch=8)
    def faulty(seed: int, k: int, n: int) -> samebits.Subject:
        o = samebits.inputs.gemm(8, n, k, dtype="float32", seed=seed)

        def kernel(x: torch.Tensor) -> torch.Tensor:
            return chained(x, o.w, 2 if x.shape[0] >= M and k >= K and n >= N else 1)

        return samebits.Subject(kernel, (o.x,), addends=k, derive=False)

    @suite.explore(strategies, max_batch=4, name="clean")
    def doubled(seed: int, k: int, n: int) -> samebits.Subject:
        return samebits.Subject(lambda x: x * 2, (torch.randn(4, k),), derive=False)

    return suite


def test_a_failure_shrinks_to_the_smallest_shape_and_batch(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_PROFILE", "ci")
    result = run_case(suite["faulty"], module="m")
    assert result.status is Status.DIVERGED
    first = result.findings[0]
    assert (first.batch, first.against) == (M, 1)
    assert first.replay == f"samebits replay 'm::faulty[k={K},n={N}]::batch-size@0'"
    again = run_case(suite[f"faulty[k={K},n={N}]"], module="m")
    assert again.findings[0].first == first.first
    one_less = run_case(suite[f"faulty[k={K - 16},n={N}]"], module="m")
    assert one_less.status is not Status.DIVERGED


def test_a_search_is_the_same_every_time(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_PROFILE", "ci")
    once, twice = (run_case(suite["faulty"], module="m") for _ in range(2))
    assert [f.first for f in once.findings] == [f.first for f in twice.findings]
    assert once.checks[0].notes == twice.checks[0].notes


def test_what_passes_says_how_many_configurations(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_PROFILE", "ci")
    result = run_case(suite["clean"], module="m")
    assert result.status is Status.PASSED
    assert result.checks[0].coverage.startswith("25 configurations; ")


@pytest.mark.parametrize("case_id", ["faulty[k=]", "faulty[k=open('x')]", "clean2[k=1]", "faulty[k=16"])
def test_a_bad_configuration_is_a_usage_error(suite: Suite, case_id: str) -> None:
    with pytest.raises(UsageError):
        suite[case_id]
