from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from samebits.checks.duplicates import CHECK, layout
from samebits.engine.result import Status


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "than the equal row at position" in result.findings[0].message


def test_a_clean_gemm_passes(case):
    result = CHECK.run(case.bench(case.gemm()))
    assert result.status is Status.PASSED
    assert result.coverage.startswith("12 rows at every residue modulo 64")


def test_the_odd_position_is_reported_not_the_others(case):
    def fn(x):
        y = x.clone()
        y[0] += 1
        return y

    finding = case.run(CHECK, fn).findings[0]
    assert finding.position == 0
    assert finding.details["positions"] == [[0, 0]]


def test_a_period_shows_in_the_positions(case):
    def fn(x):
        y = x.clone()
        y[31::32] += 1
        return y

    details = case.run(CHECK, fn, max_batch=128).findings[0].details
    assert all(a == b and a % 32 == 31 for a, b in details["positions"])


@given(st.integers(1, 64), st.integers(2, 4096))
def test_every_probe_sits_at_every_residue(probes, max_batch):
    count, tile = layout(probes, max_batch)
    assert 1 <= count * tile <= max_batch
    position = torch.arange(count * tile)
    probe = (position % tile + position // tile) % count
    assert len({(int(p), int(r)) for p, r in zip(probe, position % tile, strict=True)}) == count * tile


def test_a_tail_of_a_small_batch(case):
    def fn(x):
        y = x.clone()
        if len(x) == 7:
            y[-1] += 1
        return y

    finding = case.run(CHECK, fn).findings[0]
    assert (finding.batch, finding.position) == (7, 6)


def test_routing_to_another_row_is_seen(case):
    assert case.run(CHECK, lambda x: x.roll(1, 0)).status is Status.DIVERGED


def test_does_not_apply(case):
    assert "position_free" in CHECK.applies(case.bench(case.subject(lambda x: x, position_free=False)))


def test_two_addends_have_no_power(case):
    assert case.run(CHECK, lambda x: x[:, 0] + x[:, 1], addends=2).status is Status.NO_POWER
