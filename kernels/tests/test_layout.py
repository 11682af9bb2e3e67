"""The 128x4 swizzle against its formula, and the packing of codes."""

from __future__ import annotations

import pytest
import torch

import samebits_kernels as sk


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (130, 12), (257, 7), (0, 4), (128, 5)])
def test_swizzle_is_the_formula(rows, columns, same):
    plain = torch.randint(0, 127, (rows, columns), dtype=torch.uint8)
    buffer = sk.swizzle_scales(plain)
    assert tuple(buffer.shape) == sk.padded_shape(rows, columns)
    flat = buffer.view(torch.uint8).flatten()
    assert all(flat[sk.offset(r, c, columns)] == plain[r, c] for r in range(rows) for c in range(columns))
    assert int((flat != 0).sum()) == int((plain != 0).sum())
    assert same(sk.unswizzle_scales(buffer, rows, columns).view(torch.uint8), plain)


def test_experts_are_swizzled_apart(same):
    plain = torch.randint(0, 127, (3, 130, 6), dtype=torch.uint8)
    whole = sk.swizzle_scales(plain)
    assert all(same(whole[e], sk.swizzle_scales(plain[e])) for e in range(3))


def test_unswizzle_refuses_another_shape():
    with pytest.raises(sk.UsageError, match="128 x 4"):
        sk.unswizzle_scales(torch.zeros(128, 8, dtype=torch.uint8), 100, 4)


def test_pack_and_dequantise():
    codes = torch.arange(16, dtype=torch.uint8).repeat(2, 1)
    data = sk.pack(codes)
    assert data[0, 0] == 0x10
    assert torch.equal(sk.unpack(data), codes)
    scales = sk.swizzle_scales(torch.tensor([[0x38], [0x40]], dtype=torch.uint8))
    values = sk.dequantise(data, scales)
    assert values[0].tolist() == list(sk.E2M1)
    assert values[1].tolist() == [2 * v for v in sk.E2M1]
    with pytest.raises(sk.UsageError, match="uint8"):
        sk.pack(codes.int())
