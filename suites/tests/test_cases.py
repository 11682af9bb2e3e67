"""A fast part of every suite, run as a session runs it: controls are caught, clean kernels stay clean."""

from __future__ import annotations

import importlib

import pytest
import torch

from samebits import Expect
from samebits.engine import bits
from samebits.engine.result import Status
from samebits.engine.suite import FLAG
from samebits.engine.verdict import judge
from samebits.session.case import run_case
from samebits_suites import kernels
from samebits_suites.constructed import chained_mm, chained_sum

SWEEP = ("batch-size", "solo", "neighbours", "layout")


def suite_of(name):
    return importlib.import_module(f"samebits_suites.{name}").suite


@pytest.fixture(autouse=True)
def flag(monkeypatch):
    monkeypatch.setenv(FLAG, "1")


def cases(name, *, expect, without=()):
    return [c for c in suite_of(name) if c.expect is expect and c.needs is None and c.id not in without]


CONTROLS = [
    pytest.param(name, case.id, id=f"{name}-{case.id}")
    for name in ("controls", "moe", "quantise", "scaled_mm")
    for case in cases(name, expect=Expect.DIVERGENCE)
]
CLEAN = [
    ("controls", "p15_clean_kind"),
    ("controls", "after_the_crashes"),
    ("quantise", "quantise-k=48-dtype=float16-backend=reference"),
    ("quantise", "activation_quantise-i=48-activation=swiglustep-dtype=bfloat16-backend=reference"),
    ("scaled_mm", "edge-n=24-k=48-dtype=bfloat16-backend=reference"),
    ("scaled_mm", "quantised-n=32-k=256-dtype=bfloat16-backend=reference"),
]


def run(name, case_id, **options):
    suite = suite_of(name)
    return run_case(suite[case_id], module=f"samebits_suites.{name}", **options)


@pytest.mark.parametrize(("name", "case_id"), CONTROLS)
def test_control_is_caught(name, case_id):
    result = run(name, case_id, checks=SWEEP)
    verdict = judge(result)
    assert verdict.label == "caught", verdict
    assert Status.FLAKY not in {c.status for c in result.checks}, "these controls repeat themselves exactly"


@pytest.mark.parametrize(("name", "case_id"), CLEAN)
def test_clean_is_clean(name, case_id):
    verdict = judge(run(name, case_id, max_batch=12, checks=SWEEP))
    assert verdict.label == "invariant", verdict


@pytest.mark.parametrize(("name", "case_id"), [(n, c) for n, c in CLEAN if n != "controls"])
def test_rows_and_results_follow_from_the_seed(name, case_id):
    case = suite_of(name)[case_id]
    first, again, other = case.build(3), case.build(3), case.build(4)
    for a, b in zip(first.rows, again.rows, strict=True):
        assert bits.same(a, b)
    assert not all(bits.same(a, b) for a, b in zip(first.rows, other.rows, strict=True))
    assert all(bits.same(a, b) for a, b in zip(_outputs(first), _outputs(again), strict=True))


def test_free_mode_is_a_case_of_the_flag_only():
    for name in ("moe", "scaled_mm"):
        free = [c for c in suite_of(name) if c.env[FLAG] == "0"]
        assert [c.expect for c in free] == [Expect.DIVERGENCE]


def test_moe_rows_that_cancel_reach_the_output():
    from samebits_suites.moe import moe

    subject = moe(seed=0, h=64, i=32, e=8, k=4, backend="reference")
    kernel, rows = subject.reordered
    plain, moved = subject.fn(*subject.rows), kernel(*rows)
    assert plain.isfinite().all()
    share = (plain.view(torch.int16) != moved.view(torch.int16)).float()
    assert share[0::2].mean() > 0.2
    assert share[1::2].mean() == 0, "ordinary rows are there for what an ordinary batch shows"


def test_batched_moe_equals_one_expert_a_row():
    from samebits_suites.moe import batched_moe

    subject = batched_moe(seed=0, h=64, i=32, e=8, backend="reference")
    whole = subject.fn(*subject.rows)
    poisoned = subject.poisons["unused slots"](0xFF)(*subject.rows)
    assert bits.same(whole, poisoned)
    assert len(subject.rows[1].unique()) > 2


def test_scale_padding_is_filled_and_nothing_else():
    import samebits_kernels

    plain = torch.randint(0, 120, (5, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    buffer = samebits_kernels.swizzle_scales(plain)
    filled = kernels.fill_scale_padding(buffer, 5, 3, 0xFF)
    assert bits.same(samebits_kernels.unswizzle_scales(filled, 5, 3).view(torch.uint8), plain)
    assert int((filled.view(torch.uint8) == 0xFF).sum()) == 128 * 4 - 15


def test_chains_add_in_the_order_they_say():
    x = torch.tensor([[2.0**24, 1.0, 1.0, -(2.0**24)]])
    ones = torch.ones(1, 4)
    assert chained_mm(x, ones).item() == 0.0, "both ones are lost"
    assert chained_mm(x, ones, 2).item() == 1.0, "the second chain keeps its own"
    assert chained_sum(x).item() == 0.0
    assert chained_sum(x, 2).item() == 1.0
    assert chained_mm(torch.ones(0, 4), ones).shape == (0, 1)


def _outputs(subject):
    y = subject.fn(*subject.rows)
    return (y,) if isinstance(y, torch.Tensor) else tuple(y)
