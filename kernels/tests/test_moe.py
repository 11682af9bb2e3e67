"""The MoE layer: its parts against the oracle, the layer against its parts, and its rows against themselves."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch

import samebits_kernels as sk
from samebits_kernels.reference import oracle

H, INTER = 64, 32
slow = pytest.mark.skipif(os.environ.get("SAMEBITS_SLOW") != "1", reason="SAMEBITS_SLOW=1 runs it")


def tokens(m, experts, dtype=torch.bfloat16, h=H, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(m, h, generator=g).to(dtype), torch.randn(m, experts, generator=g)


def by_parts(hidden, logits, weights, topk, kind, backend, renormalize=False):
    w13, s13, w2, s2, a1, alpha1, a2, alpha2 = weights
    topk_weights, ids = sk.route(logits, topk, renormalize=renormalize, backend=backend)
    a_map, c_map, offsets, scale_offsets = sk.permute(ids, w13.shape[0], backend=backend)
    q, q_scale = sk.experts_quantise(hidden, a1, offsets, scale_offsets, a_map, backend=backend)
    gate_up = sk.grouped_mm(q, w13, q_scale, s13, alpha1, offsets, scale_offsets, hidden.dtype, backend=backend)
    act = sk.activation_and_mul(gate_up, kind, backend=backend)
    q, q_scale = sk.experts_quantise(act, a2, offsets, scale_offsets, backend=backend)
    y = sk.grouped_mm(q, w2, q_scale, s2, alpha2, offsets, scale_offsets, hidden.dtype, backend=backend)
    return sk.combine(y, topk_weights, c_map, backend=backend)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["silu", "swiglustep"])
@pytest.mark.parametrize(
    ("m", "experts", "topk"),
    [(0, 8, 2), (1, 8, 1), (2, 36, 4), (3, 40, 8), (5, 60, 3), (33, 64, 2), (129, 5, 5), (31, 40, 1)],
)
def test_layer_equals_its_parts_and_the_oracle(backend, layer, same, m, experts, topk, kind, dtype):
    weights = layer(experts, H, INTER)
    hidden, logits = tokens(m, experts, dtype)
    out = sk.moe(hidden, logits, *weights, topk, activation=kind, backend=backend)
    assert same(out, by_parts(hidden, logits, weights, topk, kind, backend))
    expected = oracle.moe(hidden, logits, weights, topk, activation_kind=kind)
    # A boundary case may move one code; the wiring may not be wrong anywhere.
    off = np.abs(out.double().numpy() - expected) > np.abs(expected) * 2.0**-6 + 2.0**-6 * (
        np.abs(expected).mean() if m else 0
    )
    assert off.mean() < 0.02 if m else off.size == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("topk", [1, 2, 8])
def test_both_backends_have_the_same_bits(same, cpu, layer, topk, dtype):
    weights = layer(40, H, INTER)
    hidden, logits = tokens(47, 40, dtype)
    for kind in ("silu", "swiglustep"):
        for renormalize in (False, True):
            options = {"activation": kind, "renormalize": renormalize}
            assert same(
                sk.moe(hidden, logits, *weights, topk, backend="cpu", **options),
                sk.moe(hidden, logits, *weights, topk, backend="reference", **options),
            )


def test_every_row_alone_and_in_every_prefix(backend, layer, same):
    weights = layer(8, H, INTER)
    hidden, logits = tokens(37, 8)
    full = sk.moe(hidden, logits, *weights, 2, backend=backend)
    for m in range(1, 38):
        assert same(sk.moe(hidden[m - 1 : m], logits[m - 1 : m], *weights, 2, backend=backend), full[m - 1 : m])
        assert same(sk.moe(hidden[:m], logits[:m], *weights, 2, backend=backend), full[:m])
    order = torch.randperm(37, generator=torch.Generator().manual_seed(3))
    assert same(sk.moe(hidden[order], logits[order], *weights, 2, backend=backend), full[order])


def test_all_tokens_on_one_expert(backend, layer, same):
    weights = layer(8, H, INTER)
    hidden, logits = tokens(129, 8)
    logits[:, 3] += 100
    out = sk.moe(hidden, logits, *weights, 1, backend=backend)
    assert same(out, by_parts(hidden, logits, weights, 1, "silu", backend))
    assert same(sk.moe(hidden[:1], logits[:1], *weights, 1, backend=backend), out[:1])


def test_router_weight_on_input(backend, layer, same):
    weights = layer(8, H, INTER)
    hidden, logits = tokens(9, 8)
    before = hidden.clone()
    out = sk.moe(hidden, logits, *weights, 1, apply_router_weight_on_input=True, backend=backend)
    assert same(hidden, before)
    topk_weights, ids = sk.route(logits, 1, backend=backend)
    scaled = (hidden.float() * topk_weights).to(hidden.dtype)
    sure = torch.full_like(logits, -math.inf).scatter(1, ids.long(), 0.0)
    assert same(out, sk.moe(scaled, sure, *weights, 1, backend=backend))


def test_out_is_in_the_callers_order(backend, layer, same):
    weights = layer(8, H, INTER)
    hidden, logits = tokens(9, 8)
    around = torch.full((11, 80), 3.0, dtype=torch.bfloat16)
    out = around[1:10, 8 : 8 + H]
    assert sk.moe(hidden, logits, *weights, 2, out=out, backend=backend) is out
    assert same(out, sk.moe(hidden, logits, *weights, 2, backend=backend))
    around[1:10, 8 : 8 + H] = 3.0
    assert (around == 3.0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_inf_stay_in_their_row(backend, layer, same, bad):
    weights = layer(8, H, INTER)
    hidden, logits = tokens(9, 8)
    clean = sk.moe(hidden, logits, *weights, 2, backend=backend)
    hidden[4, 7] = bad
    logits[6, 2] = bad
    out = sk.moe(hidden, logits, *weights, 2, backend=backend)
    rest = [0, 1, 2, 3, 5, 7, 8]
    assert same(out[rest], clean[rest])
    assert (out[6].view(torch.int16) == 0x7FC0).all()
    assert out[4].isnan().all() if math.isnan(bad) else out[4].isfinite().all()


@pytest.mark.parametrize("experts", [36, 40, 60])
def test_nothing_is_read_behind_the_offsets(backend, layer, same, experts):
    """The public e = 40 bug: vector loads of the offsets read past the end."""
    weights = layer(experts, H, INTER)
    hidden, logits = tokens(17, experts)
    _, ids = sk.route(logits, 2, backend=backend)
    a_map, _, offsets, scale_offsets = sk.permute(ids, experts, backend=backend)

    def guarded(t):
        whole = torch.full((t.numel() + 64,), -(2**31), dtype=torch.int32)
        whole[32 : 32 + t.numel()] = t
        return whole[32 : 32 + t.numel()]

    plain = sk.experts_quantise(hidden, weights[4], offsets, scale_offsets, a_map, backend=backend)
    args = guarded(offsets), guarded(scale_offsets)
    q, q_scale = sk.experts_quantise(hidden, weights[4], *args, guarded(a_map), backend=backend)
    assert same(q, plain[0])
    assert same(q_scale, plain[1])
    expected = sk.grouped_mm(
        q, weights[0], q_scale, weights[1], weights[5], offsets, scale_offsets, backend=backend
    )
    assert same(sk.grouped_mm(q, weights[0], q_scale, weights[1], weights[5], *args, backend=backend), expected)


@pytest.mark.parametrize("experts", [1, 5, 40])
def test_grouped_equals_scaled_mm_of_each_expert(backend, layer, same, experts):
    weights = layer(experts, H, INTER)
    hidden, logits = tokens(70, experts)
    _, ids = sk.route(logits, 1, backend=backend)
    a_map, _, offsets, scale_offsets = sk.permute(ids, experts, backend=backend)
    q, q_scale = sk.experts_quantise(hidden, weights[4], offsets, scale_offsets, a_map, backend=backend)
    d = sk.grouped_mm(q, weights[0], q_scale, weights[1], weights[5], offsets, scale_offsets, backend=backend)
    for e in range(experts):
        at = slice(int(offsets[e]), int(offsets[e + 1]))
        rows = hidden[a_map[at].long()]
        a, a_scale = sk.quantise(rows, weights[4][e : e + 1], backend=backend)
        alone = sk.scaled_mm(a, weights[0][e], a_scale, weights[1][e], weights[5][e : e + 1], backend=backend)
        assert same(d[at], alone)


@pytest.mark.parametrize(("m", "experts", "topk"), [(1, 1, 1), (33, 8, 8), (129, 40, 3), (5, 256, 8)])
@pytest.mark.parametrize("renormalize", [False, True])
def test_route(backend, m, experts, topk, renormalize):
    _, logits = tokens(m, experts)
    weights, ids = sk.route(logits, topk, renormalize=renormalize, backend=backend)
    expected, expected_ids = oracle.route(logits, topk, renormalize)
    assert np.array_equal(ids.numpy(), expected_ids)
    # exp within 2 ulp in numerator and denominator, E-1 sums, a division; again for the renormalisation
    bound = np.abs(expected) * (2 * experts + 20) * 2.0**-24 + 2.0**-126
    assert (np.abs(weights.double().numpy() - expected) <= bound).all()


def test_route_ties_go_to_the_lower_expert(backend):
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [0.0] * 5, [math.nan, 1.0, 2.0, 3.0, 4.0]])
    weights, ids = sk.route(logits, 3, backend=backend)
    assert ids.tolist() == [[1, 2, 3], [0, 1, 2], [0, 1, 2]]
    assert (weights[2].view(torch.int32) == 0x7FC00000).all()


@pytest.mark.parametrize(("m", "experts", "topk"), [(0, 8, 2), (1, 8, 8), (129, 40, 3)])
def test_permute_is_a_stable_sort(backend, m, experts, topk):
    ids = torch.randint(0, experts, (m, topk), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    a_map, c_map, offsets, scale_offsets = (t.tolist() for t in sk.permute(ids, experts, backend=backend))
    flat = ids.flatten().tolist()
    order = sorted(range(m * topk), key=lambda i: flat[i])
    assert a_map == [i // topk for i in order]
    assert [slot for row in c_map for slot in row] == [order.index(i) for i in range(m * topk)]
    counts = [flat.count(e) for e in range(experts)]
    assert offsets == [sum(counts[:e]) for e in range(experts + 1)]
    assert scale_offsets == [sum(-(-c // 128) * 128 for c in counts[:e]) for e in range(experts + 1)]


@pytest.mark.parametrize("topk", range(1, 9))
def test_combine(backend, topk):
    g = torch.Generator().manual_seed(topk)
    y = torch.randn(20 * topk, 48, generator=g).to(torch.bfloat16)
    weights = torch.rand(20, topk, generator=g)
    c_map = torch.randperm(20 * topk, generator=g).view(20, topk).to(torch.int32)
    out = sk.combine(y, weights, c_map, backend=backend)
    assert oracle.combine(y, weights, c_map).violations(out) == 0


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_batched_format(backend, layer, same, byte):
    weights = layer(6, H, INTER)
    counts = torch.tensor([0, 1, 5, 3, 0, 2], dtype=torch.int32)
    hidden = torch.randn(6, 5, H, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    beyond = torch.arange(5).unsqueeze(0) >= counts.unsqueeze(1)
    hidden.view(torch.uint8)[beyond] = byte
    out = torch.full_like(hidden, 3.0)
    sk.batched_moe(hidden, counts, *weights, out=out, backend=backend)
    assert (out[beyond] == 3.0).all()
    fresh = sk.batched_moe(hidden, counts, *weights, backend=backend)
    assert same(fresh[~beyond], out[~beyond])
    for e in range(6):
        sure = torch.full((int(counts[e]), 6), -math.inf)
        sure[:, e] = 0.0
        alone = sk.moe(hidden[e, : counts[e]], sure, *weights, 1, backend=backend)
        assert same(out[e, : counts[e]], alone)


@slow
@pytest.mark.parametrize(("m", "inter", "h"), [(12, 1024, 1024), (129, 1024, 1024), (73, 1472, 1536)])
@pytest.mark.parametrize("experts", [40, 64])
@pytest.mark.parametrize("topk", [1, 4])
@pytest.mark.parametrize("kind", ["silu", "swiglustep"])
def test_public_grid(layer, same, m, inter, h, experts, topk, kind):
    weights = layer(experts, h, inter)
    hidden, logits = tokens(m, experts, h=h)
    out = sk.moe(hidden, logits, *weights, topk, activation=kind, backend="cpu")
    assert same(out, by_parts(hidden, logits, weights, topk, kind, "cpu"))
    assert same(out, sk.moe(hidden, logits, *weights, topk, activation=kind, backend="reference"))
