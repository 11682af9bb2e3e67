from __future__ import annotations

import pytest
import torch

from samebits.checks.layout import CHECK, layouts
from samebits.engine.bench import Bench
from samebits.engine.result import Status
from samebits.engine.subject import Subject


def rows(m: int = 12, n: int = 40, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(m, n, generator=torch.Generator().manual_seed(1)).to(dtype)


def run(fn, *pool, max_batch=None):
    return CHECK.run(Bench(Subject(fn, pool, derive=False), max_batch=max_batch))


def double(x):
    return x + x


def test_catches_its_control():
    result = CHECK.run(Bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert result.findings[0].kind == "value"
    assert "other bits with" in result.findings[0].message


def test_a_clean_kernel_passes():
    result = run(double, rows())
    assert result.status is Status.PASSED
    assert result.power is not None
    assert result.power.sees
    assert "transposed storage" in result.coverage


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool])
def test_every_width(dtype):
    assert run(lambda x: x.clone(), rows(dtype=dtype)).status is Status.PASSED


@pytest.mark.parametrize("shape", [(9,), (9, 1), (9, 3, 5), (1, 7)])
def test_every_rank(shape):
    assert run(double, torch.randn(shape)).status is Status.PASSED


def test_breaks_alignment_one_element_at_a_time():
    seen = set()

    def record(x):
        seen.add(x.data_ptr() % 16)
        return x * 2

    run(record, rows(dtype=torch.bfloat16))
    assert {0, 2, 4, 8} <= seen


def test_strides_really_differ_and_rows_stay_the_same():
    pool = rows()
    seen = set()

    def record(x):
        if len(x) == 12:
            assert torch.equal(x, pool)
            seen.add(x.stride())
        return x * 2

    run(record, pool)
    assert {(40, 1), (41, 1), (44, 1), (80, 1), (80, 2), (1, 12)} <= seen


def test_catches_a_path_for_strided_columns_only():
    def fn(x):
        return x + (x.stride(1) != 1)

    found = run(fn, rows()).findings
    assert found
    assert all(f.details["layout"] in ("every second element of a wider row", "transposed storage") for f in found)


def test_catches_torch_pow_where_this_machine_shows_it():
    x = torch.rand(256, 256) + 0.5
    if torch.equal(x.t().contiguous().t() ** 2.3, x**2.3) and torch.equal(
        torch.stack([x, x], 2)[:, :, 0] ** 2.3, x**2.3
    ):
        pytest.skip("this machine computes x ** 2.3 alike in every layout")
    assert run(lambda t: t**2.3, x).status is Status.DIVERGED


def test_refused_layouts_are_named():
    def strict(x):
        if x.stride(-1) != 1:
            raise ValueError("rows must be unit-stride")
        return x * 2

    result = run(strict, rows())
    assert result.status is Status.PASSED
    assert "transposed storage (rows must be unit-stride)" in result.notes[0]
    assert "transposed storage" not in result.coverage


def test_all_refused_is_skipped():
    def strict(x):
        if not x.is_contiguous() or x.data_ptr() % 64:
            raise RuntimeError("contiguous, aligned rows only")
        return x * 2

    result = run(strict, rows())
    assert result.status is Status.SKIPPED
    assert "refused all" in result.reason


def test_a_device_error_is_no_refusal():
    def misaligned(x):
        if x.data_ptr() % 16:
            raise RuntimeError("CUDA error: misaligned address")
        return x * 2

    with pytest.raises(RuntimeError, match="misaligned"):
        run(misaligned, rows())


def test_a_result_of_another_shape_is_a_finding():
    result = run(lambda x: x * 2 if x.is_contiguous() else x.t() * 2, rows())
    assert result.status is Status.DIVERGED
    assert result.findings[0].kind == "contract"


def test_one_strict_input_does_not_hide_the_other():
    def fn(x, ids):
        if not ids.is_contiguous() or ids.data_ptr() % 64:
            raise ValueError("ids must be contiguous")
        return x * 2 + ids[:, None] + (x.stride(0) == 41)

    result = run(fn, rows(), torch.arange(12))
    assert result.status is Status.DIVERGED
    assert "row input 0 only" in result.findings[0].message


def test_a_kernel_that_writes_its_input_is_not_blamed_on_layout():
    def in_place(x):
        return x.mul_(2).clone()

    assert run(in_place, rows()).status is Status.PASSED


def test_layouts_of_one_dimension():
    assert [name for name, *_ in layouts((4,), 8)][-1].startswith("a gap")
