"""The report must state exactly what was covered, so the plan is checked against its own words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samebits.engine.plan import Coverage, covering, filling, ranges


@given(st.integers(1, 5000))
def test_covering_and_filling_partition_all_sizes(bound: int) -> None:
    a, b = covering(bound), filling(bound)
    assert sorted(a + b) == list(range(1, bound + 1))
    assert a == sorted(set(a))


@given(st.integers(1, 5000))
def test_covering_always_has_small_sizes_and_both_sides_of_edges(bound: int) -> None:
    sizes = set(covering(bound))
    assert set(range(1, min(64, bound) + 1)) <= sizes
    edges = {2**i for i in range(13)} | set(range(16, bound + 17, 16))
    assert {m for e in edges for m in (e - 1, e, e + 1) if 1 <= m <= bound} <= sizes
    assert bound in sizes


def test_words_of_a_proof() -> None:
    coverage = Coverage(set(range(1, 257)))
    assert coverage.words() == "all 32,896 (M, position) pairs, M = 1..256"


def test_words_of_a_sample_name_every_size() -> None:
    coverage = Coverage({1, 2, 3, 8, 16, 17})
    assert coverage.words() == "47 (M, position) pairs: every position for M = 1..3 and M in {8, 16..17}"


@given(st.sets(st.integers(1, 300), min_size=1))
def test_ranges_lose_nothing(values: set[int]) -> None:
    back: set[int] = set()
    for part in ranges(sorted(values)).split(", "):
        low, _, high = part.partition("..")
        back |= set(range(int(low), int(high or low) + 1))
    assert back == values
