"""scaled_mm against the float64 oracle, and its bits against themselves."""

from __future__ import annotations

import os

import pytest
import torch

import samebits_kernels as sk
from samebits_kernels.reference import oracle

SMALL = [
    *[(m, 40, 64) for m in (0, 1, 2, 3, 5, 31, 33, 127, 128, 129)],
    *[(5, 33, k) for k in (16, 32, 48, 64, 80, 144, 2016)],
    *[(9, n, 96) for n in (0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 47, 127, 129)],
    (3, 17, 4112),
    (1, 64, 8192),
    (19, 5, 32784),
]
PUBLIC = [
    (256, 128, 8192), (512, 256, 8192), (256, 256, 4096), (241, 160, 4096), (401, 352, 3968), (333, 320, 2016),
    (287, 96, 8192),
]  # fmt: skip
LARGE = [(1024, 128, 1024), (4096, 64, 512), (33, 4096, 4096), (5, 14336, 4096), (5, 4096, 14336), (2, 2048, 7168)]
slow = pytest.mark.skipif(os.environ.get("SAMEBITS_SLOW") != "1", reason="SAMEBITS_SLOW=1 runs it")


def check(backend, operand, m, n, k, dtype, alpha=1e-3):
    a, a_plain, a_scale = operand(m, k, 1)
    b, b_plain, b_scale = operand(n, k, 2)
    d = sk.scaled_mm(a, b, a_scale, b_scale, torch.tensor([alpha]), dtype, backend=backend)
    assert d.shape == (m, n)
    assert d.dtype == dtype
    expected = oracle.scaled_mm(a, a_plain.numpy(), b, b_plain.numpy(), alpha, dtype)
    assert expected.violations(d) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "n", "k"), SMALL)
def test_small_shapes(backend, operand, m, n, k, dtype):
    check(backend, operand, m, n, k, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "n", "k"), PUBLIC)
def test_public_grid(operand, m, n, k, dtype):
    check("cpu", operand, m, n, k, dtype)


@slow
@pytest.mark.parametrize(("m", "n", "k"), PUBLIC + LARGE)
def test_slow_shapes(backend, operand, m, n, k):
    check(backend, operand, m, n, k, torch.bfloat16)


def test_the_bound_can_fail(operand):
    a, a_plain, a_scale = operand(5, 256, 1)
    b, b_plain, b_scale = operand(33, 256, 2)
    d = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), torch.bfloat16)
    expected = oracle.scaled_mm(a, a_plain.numpy(), b, b_plain.numpy(), 1.0, torch.bfloat16)
    nudged = (d.view(torch.int16) + 2).view(torch.bfloat16)
    assert expected.violations(d) == 0
    assert expected.violations(nudged) > 0.9 * d.numel()


@pytest.mark.parametrize("isa", ["avx512", "avx2", "generic"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 33, 2016), (129, 47, 528), (9, 64, 4112), (19, 40, 32784)])
def test_every_instruction_set_has_the_bits_of_the_reference(cpu, operand, same, isa, m, n, k):
    if isa not in cpu.isas():
        pytest.skip(f"this machine has {cpu.isas()}")
    a, _, a_scale = operand(m, k, 3, cancel=True)
    b, _, b_scale = operand(n, k, 4)
    b = b.contiguous()
    expected = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend="reference")
    cpu.force_isa(isa)
    assert same(sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend="cpu"), expected)
    prepared = sk.prepare(b, b_scale, backend="cpu")
    assert same(sk.scaled_mm(a, prepared, a_scale, None, torch.ones(1)), expected)


def sensitive(operand, m=96, n=96, k=1024):
    """Operands whose products cancel, so that every order of the sum has its own bits."""
    a, _, a_scale = operand(m, k, 5, cancel=True)
    b, _, _ = operand(n, k, 6)
    plain = torch.full((n, k // 16), 0x38, dtype=torch.uint8)
    half = k // 32
    order = torch.randperm(k // 16, generator=torch.Generator().manual_seed(7))
    blocks = b.view(n, -1, 8).clone()
    blocks[:, half : 2 * half] = blocks[:, :half]
    return a, blocks[:, order].reshape(n, -1).contiguous(), a_scale, sk.swizzle_scales(plain)


def changed_batches(backend, a, b, a_scale, b_scale):
    plain = sk.unswizzle_scales(a_scale, a.shape[0], a.shape[1] // 8)
    full = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend=backend)
    return [
        m
        for m in range(1, a.shape[0])
        if not torch.equal(
            sk.scaled_mm(a[:m], b, sk.swizzle_scales(plain[:m]), b_scale, torch.ones(1), backend=backend).view(
                torch.int16
            ),
            full[:m].view(torch.int16),
        )
    ]


def test_rows_do_not_depend_on_their_batch(backend, operand):
    assert changed_batches(backend, *sensitive(operand)) == []


def test_the_free_schedule_changes_bits(cpu, operand):
    operands = sensitive(operand)
    cpu.force_schedule("free")
    assert cpu.splits(1, 96, 1024) > cpu.splits(96, 96, 1024)
    assert changed_batches("cpu", *operands)
    assert not sk.contract("scaled_mm", "cpu")["batch_invariant"]


def test_threads_do_not_matter(operand, same):
    a, b, a_scale, b_scale = sensitive(operand)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend="cpu"))
    finally:
        torch.set_num_threads(before)
    assert all(same(r, results[0]) for r in results)


@pytest.mark.parametrize("prepared", [False, True])
def test_out_receives_the_result_and_nothing_around_it(backend, operand, same, prepared):
    a, _, a_scale = operand(5, 64, 1)
    b, _, b_scale = operand(24, 64, 2)
    expected = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend=backend)
    around = torch.full((7, 40), 3.0, dtype=torch.bfloat16)
    out = around[1:6, 8:32]
    weights = sk.prepare(b, b_scale, backend=backend) if prepared else b
    returned = sk.scaled_mm(
        a, weights, a_scale, None if prepared else b_scale, torch.ones(1), out=out, backend=backend
    )
    assert returned is out
    assert same(out, expected)
    around[1:6, 8:32] = 3.0
    assert (around == 3.0).all()


def test_strided_rows_and_offsets(backend, operand, same):
    a, _, a_scale = operand(5, 64, 1)
    b, _, b_scale = operand(24, 64, 2)
    wide_a, wide_b = torch.full((5, 45), 0xFF, dtype=torch.uint8), torch.full((24, 61), 0xFF, dtype=torch.uint8)
    wide_a[:, 3:35], wide_b[:, 7:39] = a, b
    got = sk.scaled_mm(wide_a[:, 3:35], wide_b[:, 7:39], a_scale, b_scale, torch.ones(1), backend=backend)
    assert same(got, sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend=backend))


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])
def test_scale_padding_does_not_matter(backend, operand, same, byte):
    a, a_plain, a_scale = operand(5, 48, 1)
    b, b_plain, b_scale = operand(24, 48, 2)
    expected = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend=backend)

    def padded(plain):
        rows, columns = sk.padded_shape(*plain.shape)
        whole = torch.full((rows, columns), byte, dtype=torch.uint8)
        whole[: plain.shape[0], : plain.shape[1]] = plain
        return sk.swizzle_scales(whole)

    assert same(sk.scaled_mm(a, b, padded(a_plain), padded(b_plain), torch.ones(1), backend=backend), expected)


def test_largest_and_smallest(backend):
    codes = torch.full((2, 32), 0x77, dtype=torch.uint8)
    scales = torch.tensor([[0x7E] * 4, [0x01] * 4], dtype=torch.uint8)
    swizzled = sk.swizzle_scales(scales)
    d = sk.scaled_mm(codes, codes, swizzled, swizzled, torch.ones(1), backend=backend)
    expected = oracle.scaled_mm(codes, scales.numpy(), codes, scales.numpy(), 1.0, torch.bfloat16)
    assert expected.violations(d) == 0
    half = sk.scaled_mm(codes, codes, swizzled, swizzled, torch.ones(1), torch.float16, backend=backend)
    assert half[0, 0].isinf()
    assert half[1, 1] == 64 * 36 * 2.0**-18


def test_nan_scale_stays_in_its_row_and_column(backend, operand, same):
    a, a_plain, a_scale = operand(5, 64, 1)
    b, b_plain, b_scale = operand(24, 64, 2)
    clean = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend=backend)
    a_plain[2, 1] = b_plain[7, 3] = 0x7F
    got = sk.scaled_mm(
        a, b, sk.swizzle_scales(a_plain), sk.swizzle_scales(b_plain), torch.ones(1), backend=backend
    )
    touched = torch.zeros(5, 24, dtype=torch.bool)
    touched[2], touched[:, 7] = True, True
    assert (got[touched].view(torch.int16) == 0x7FC0).all()
    assert same(got[~touched], clean[~touched])
