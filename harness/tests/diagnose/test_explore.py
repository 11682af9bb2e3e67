"""The smallest failing configuration, the same in every run, and no search beyond the profile."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from samebits.diagnose.explore import PROFILES, Example, explore, profile

SHAPES = {
    "k": st.integers(1, 64).map(lambda b: 16 * b),
    "m": st.integers(1, 300),
    "routing": st.sampled_from(["uniform", "one", "zipf"]),
    "seed": st.integers(0, 9),
}


def guilty(p):
    """Split-K chosen where K is long and the batch is not small."""
    return "diverged" if p["k"] >= 256 and p["m"] >= 25 else None


def test_a_failure_shrinks_to_the_edge_of_every_parameter():
    found = explore(guilty, SHAPES, examples=200)
    assert isinstance(found, Example)
    assert found.parameters == {"k": 256, "m": 25, "routing": "uniform", "seed": 0}
    assert found.outcome == "diverged"


def test_the_same_seed_searches_the_same_way():
    runs = []
    for seed in (1, 1, 2):
        tried = []
        explore(lambda p, tried=tried: tried.append(tuple(p.values())), SHAPES, seed=seed, examples=30)
        runs.append(tried)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_nothing_found_counts_what_was_tried():
    assert explore(lambda p: None, SHAPES, examples=12) == 12


def test_few_configurations_are_each_tried_once():
    assert explore(lambda p: None, {"k": st.sampled_from([16, 32])}, examples=50) == 2


def test_an_exception_of_the_kernel_is_no_failing_example():
    def broken(p):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        explore(broken, SHAPES, examples=5)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "dev"),
        ({"CI": "true"}, "ci"),
        ({"CI": "true", "SAMEBITS_PROFILE": "nightly"}, "nightly"),
        ({"SAMEBITS_PROFILE": "none of these"}, "dev"),
    ],
)
def test_profiles(monkeypatch, env, expected):
    for name in ("CI", "SAMEBITS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert profile() == expected
    assert profile() in PROFILES
