"""torch.library: schemas, fakes, tracing. Scales go in as bytes: opcheck cannot compare fp8 tensors."""

from __future__ import annotations

import pytest
import torch
from torch.library import opcheck

import samebits_kernels as sk

U8 = torch.uint8
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


def operands():
    x = torch.randn(5, 64).to(torch.bfloat16)
    a, a_scale = sk.quantise(x, torch.ones(1))
    b, b_scale = sk.quantise(torch.randn(24, 64).to(torch.bfloat16), torch.ones(1))
    return x, a, a_scale.view(U8), b, b_scale.view(U8)


@pytest.mark.parametrize(
    "name", ["scaled_mm", "scaled_mm.out", "prepare", "scaled_mm_prepared", "scaled_mm_prepared.out"]
)
def test_scaled_mm(name):
    _, a, a_scale, b, b_scale = operands()
    one, out, ops = torch.ones(1), torch.empty(5, 24, dtype=torch.bfloat16), torch.ops.samebits
    packed = sk.prepare(b, b_scale).packed
    op, args, kwargs = {
        "scaled_mm": (ops.scaled_mm.default, (a, b, a_scale, b_scale, one, torch.bfloat16), {}),
        "scaled_mm.out": (ops.scaled_mm.out, (a, b, a_scale, b_scale, one), {"out": out}),
        "prepare": (ops.prepare.default, (b, b_scale), {}),
        "scaled_mm_prepared": (ops.scaled_mm_prepared.default, (a, packed, a_scale, one, 24, torch.float16), {}),
        "scaled_mm_prepared.out": (ops.scaled_mm_prepared.out, (a, packed, a_scale, one), {"out": out}),
    }[name]
    opcheck(op, args, kwargs)


def test_quantise():
    x, one, ops = operands()[0], torch.ones(1), torch.ops.samebits
    opcheck(ops.quantise.default, (x, one))
    opcheck(ops.activation_and_mul.default, (x, "silu"))
    opcheck(ops.activation_quantise.default, (x, one, "swiglustep"))


def test_scales():
    plain = torch.randint(0, 127, (5, 7), dtype=U8)
    opcheck(torch.ops.samebits.swizzle_scales.default, (plain,))
    opcheck(torch.ops.samebits.unswizzle_scales.default, (sk.swizzle_scales(plain).view(U8), 5, 7))


def test_experts(layer):
    w13, s13, _, _, a1, alpha1, _, _ = layer(6, 64, 32)
    hidden, logits, ops = torch.randn(7, 64).to(torch.bfloat16), torch.randn(7, 6), torch.ops.samebits
    weights, ids = sk.route(logits, 2)
    a_map, c_map, offsets, scale_offsets = sk.permute(ids, 6)
    q, q_scale = sk.experts_quantise(hidden, a1, offsets, scale_offsets, a_map)
    opcheck(ops.route.default, (logits, 2))
    opcheck(ops.permute.default, (ids, 6))
    opcheck(ops.experts_quantise.default, (hidden, a1, offsets, scale_offsets, a_map))
    args = (q, w13, q_scale.view(U8), s13.view(U8), alpha1, offsets, scale_offsets, torch.bfloat16)
    opcheck(ops.grouped_mm.default, args)
    opcheck(ops.combine.default, (torch.randn(14, 64).to(torch.bfloat16), weights, c_map))


def test_moe(layer):
    w13, s13, w2, s2, *rest = layer(6, 64, 32)
    weights = (w13, s13.view(U8), w2, s2.view(U8), *rest)
    hidden, logits, ops = torch.randn(7, 64).to(torch.bfloat16), torch.randn(7, 6), torch.ops.samebits
    opcheck(ops.moe.default, (hidden, logits, *weights, 2))
    opcheck(ops.moe.out, (hidden, logits, *weights, 2), {"out": torch.empty_like(hidden)})
    batched, counts = torch.randn(6, 3, 64).to(torch.bfloat16), torch.tensor([0, 1, 2, 3, 0, 1], dtype=torch.int32)
    opcheck(ops.batched_moe.default, (batched, counts, *weights))
    opcheck(ops.batched_moe.out, (batched, counts, *weights), {"out": torch.zeros_like(batched)})


def test_meta_tensors_give_shapes():
    a, b = torch.empty(300, 32, dtype=U8, device="meta"), torch.empty(24, 32, dtype=U8, device="meta")
    scales = [torch.empty(r, 4, dtype=torch.float8_e4m3fn, device="meta") for r in (384, 128)]
    d = torch.ops.samebits.scaled_mm(a, b, *scales, torch.empty(1, device="meta"), torch.float16)
    assert d.shape == (300, 24)
    assert d.device.type == "meta"
