"""Bad arguments are refused with what was found and what is allowed, before any memory is touched."""

from __future__ import annotations

import pytest
import torch

import samebits_kernels as sk

U8, BF16, E4M3 = torch.uint8, torch.bfloat16, torch.float8_e4m3fn


def mm(**changes):
    base = {
        "a": torch.zeros(4, 32, dtype=U8),
        "b": torch.zeros(24, 32, dtype=U8),
        "block_scale_a": torch.zeros(128, 4, dtype=U8).view(E4M3),
        "block_scale_b": torch.zeros(128, 4, dtype=U8).view(E4M3),
        "alpha": torch.ones(1),
    }
    return {**base, **changes}


BAD_MM = {
    "dtype of a": ({"a": torch.zeros(4, 32)}, "torch.float32"),
    "a is 3-D": ({"a": torch.zeros(1, 4, 32, dtype=U8)}, "2 dimensions"),
    "a is transposed": ({"a": torch.zeros(32, 4, dtype=U8).T}, "contiguous rows"),
    "a overlaps itself": ({"a": torch.zeros(1, 32, dtype=U8).expand(4, 32)}, "contiguous rows"),
    "K not a multiple of 16": ({"a": torch.zeros(4, 12, dtype=U8)}, "K = 24"),
    "K = 0": ({"a": torch.zeros(4, 0, dtype=U8)}, "K = 0"),
    "K of b": ({"b": torch.zeros(24, 40, dtype=U8)}, "K = 80"),
    "plain scales": ({"block_scale_a": torch.zeros(4, 4, dtype=U8).view(E4M3)}, "swizzle_scales"),
    "too few scales": ({"block_scale_b": torch.zeros(128, 8, dtype=U8).view(E4M3)}, r"\[128, 4\]"),
    "scales in fp32": ({"block_scale_b": torch.zeros(128, 4)}, "float8_e4m3fn"),
    "scales not contiguous": ({"block_scale_b": torch.zeros(4, 128, dtype=U8).T.view(E4M3)}, "contiguous"),
    "alpha in fp64": ({"alpha": torch.ones(1, dtype=torch.float64)}, "fp32"),
    "two alphas": ({"alpha": torch.ones(2)}, "fp32"),
    "alpha elsewhere": ({"alpha": torch.ones(1, device="meta")}, "alpha on meta"),
    "b elsewhere": ({"b": torch.zeros(24, 32, dtype=U8, device="meta")}, "b on meta"),
    "out dtype": ({"out_dtype": torch.float32}, "torch.float32"),
    "out shape": ({"out": torch.zeros(4, 23, dtype=BF16)}, r"\[4, 23\]"),
    "out rows": ({"out": torch.zeros(5, 24, dtype=BF16)}, r"\[5, 24\]"),
    "out transposed": ({"out": torch.zeros(24, 4, dtype=BF16).T}, "contiguous rows"),
    "out in fp32": ({"out": torch.zeros(4, 24)}, "torch.float32"),
    "out of another dtype": ({"out": torch.zeros(4, 24, dtype=BF16), "out_dtype": torch.float16}, "float16"),
    "no scales of b": ({"block_scale_b": None}, "prepared"),
    "unknown backend": ({"backend": "gpu"}, "cpu, reference, torch"),
}


@pytest.mark.parametrize("case", BAD_MM)
def test_scaled_mm(case):
    changes, message = BAD_MM[case]
    with pytest.raises(sk.UsageError, match=message):
        sk.scaled_mm(**mm(**changes))


def test_refused_calls_leave_out_alone():
    out = torch.full((4, 24), 5.0, dtype=BF16)
    with pytest.raises(sk.UsageError):
        sk.scaled_mm(**mm(alpha=torch.ones(2)), out=out)
    assert (out == 5.0).all()


@pytest.mark.parametrize("name", ["a", "b", "block_scale_a", "block_scale_b"])
def test_out_may_not_overlap_an_input(name):
    memory = torch.zeros(8192, dtype=U8)
    args = mm()
    shape, dtype = args[name].shape, args[name].dtype
    args[name] = memory[96 : 96 + args[name].numel()].view(dtype).view(shape)
    out = memory[: 4 * 24 * 2].view(BF16).view(4, 24)
    with pytest.raises(sk.UsageError, match=f"it overlaps {name}"):
        sk.scaled_mm(**args, out=out)


def test_prepared_weights_belong_to_a_shape_and_a_backend():
    args = mm()
    prepared = sk.prepare(args["b"], args["block_scale_b"], backend="reference")
    with pytest.raises(sk.UsageError, match="prepared for reference"):
        sk.scaled_mm(args["a"], prepared, args["block_scale_a"], None, args["alpha"], backend="cpu")
    wide = torch.zeros(4, 48, dtype=U8), torch.zeros(128, 8, dtype=U8).view(E4M3)
    with pytest.raises(sk.UsageError, match="K = 96"):
        sk.scaled_mm(wide[0], prepared, wide[1], None, args["alpha"])


BAD_QUANTISE = {
    "dtype": ((torch.zeros(2, 32), torch.ones(1)), "torch.float32"),
    "K": ((torch.zeros(2, 40, dtype=BF16), torch.ones(1)), "40 columns"),
    "K = 0": ((torch.zeros(2, 0, dtype=BF16), torch.ones(1)), "0 columns"),
    "stride": ((torch.zeros(32, 2, dtype=BF16).T, torch.ones(1)), "contiguous rows"),
    "1-D": ((torch.zeros(32, dtype=BF16), torch.ones(1)), "2 dimensions"),
    "scale zero": ((torch.zeros(2, 32, dtype=BF16), torch.zeros(1)), "0.0 at 0"),
    "scale nan": ((torch.zeros(2, 32, dtype=BF16), torch.tensor([float("nan")])), "nan at 0"),
    "scale of each row": ((torch.zeros(2, 32, dtype=BF16), torch.ones(2)), "fp32"),
    "device": ((torch.zeros(2, 32, dtype=BF16), torch.ones(1, device="meta")), "on meta"),
}


@pytest.mark.parametrize("case", BAD_QUANTISE)
def test_quantise(case):
    args, message = BAD_QUANTISE[case]
    with pytest.raises(sk.UsageError, match=message):
        sk.quantise(*args)


def test_activation():
    with pytest.raises(sk.UsageError, match="'gelu'"):
        sk.activation_and_mul(torch.zeros(2, 64, dtype=BF16), "gelu")
    with pytest.raises(sk.UsageError, match="48 columns for 2 halves"):
        sk.activation_quantise(torch.zeros(2, 48, dtype=BF16), torch.ones(1))


@pytest.mark.parametrize("bad", [-1, 8])
def test_expert_ids(bad):
    ids = torch.zeros(3, 2, dtype=torch.int32)
    ids[1, 1] = bad
    with pytest.raises(sk.UsageError, match=rf"{bad} at \[1, 1\]"):
        sk.permute(ids, 8)


def test_offsets_are_checked():
    x, scale = torch.zeros(4, 32, dtype=BF16), torch.ones(2)
    good = torch.tensor([0, 1, 4], dtype=torch.int32)
    rows = torch.tensor([0, 128, 256], dtype=torch.int32)
    sk.experts_quantise(x, scale, good, rows)
    for offsets, scale_offsets, message in (
        ([0, 5, 4], rows, "ascending"),
        ([1, 2, 4], rows, "0 first"),
        ([0, 1, 3], rows, "4 last"),
        (good, [0, 64, 256], "multiples of 128"),
        (good, [0, 128, 128], "room"),
        (good, [0, 128, 128 * 99], "at most"),
    ):
        pair = [torch.as_tensor(t, dtype=torch.int32) for t in (offsets, scale_offsets)]
        with pytest.raises(sk.UsageError, match=message):
            sk.experts_quantise(x, scale, *pair)
    with pytest.raises(sk.UsageError, match="0 to 3"):
        sk.experts_quantise(x, scale, good, rows, torch.tensor([0, 1, 2, 4], dtype=torch.int32))


def test_combine_rows():
    with pytest.raises(sk.UsageError, match="0 to 3"):
        sk.combine(
            torch.zeros(4, 8, dtype=BF16), torch.ones(2, 2), torch.tensor([[0, 1], [2, 4]], dtype=torch.int32)
        )


def test_moe(layer):
    weights = layer(8, 64, 32)
    hidden, logits = torch.zeros(3, 64, dtype=BF16), torch.zeros(3, 8)
    with pytest.raises(sk.UsageError, match="topk = 1"):
        sk.moe(hidden, logits, *weights, 2, apply_router_weight_on_input=True)
    with pytest.raises(sk.UsageError, match="1 to 8"):
        sk.moe(hidden, logits, *weights, 9)
    with pytest.raises(sk.UsageError, match="2 rows"):
        sk.moe(hidden, logits[:2], *weights, 2)
    with pytest.raises(sk.UsageError, match=r"\[rows, 8\]"):
        sk.moe(hidden, logits[:, :7], *weights, 2)
    with pytest.raises(sk.UsageError, match="w13"):
        sk.moe(hidden[:, :48], logits, *weights, 2)
    with pytest.raises(sk.UsageError, match="w2_alphas"):
        sk.moe(hidden, logits, *weights[:7], torch.ones(7), 2)
    with pytest.raises(sk.UsageError, match="a2_gscale is a global scale"):
        sk.moe(hidden, logits, *weights[:6], torch.zeros(8), weights[7], 2)
    with pytest.raises(sk.UsageError, match="overlaps hidden"):
        sk.moe(hidden, logits, *weights, 2, out=hidden)


def test_batched_moe(layer):
    weights = layer(3, 64, 32)
    hidden = torch.zeros(3, 4, 64, dtype=BF16)
    with pytest.raises(sk.UsageError, match="0 to 4"):
        sk.batched_moe(hidden, torch.tensor([0, 5, 1], dtype=torch.int32), *weights)
    with pytest.raises(sk.UsageError, match="contiguous"):
        sk.batched_moe(hidden.transpose(0, 1), torch.zeros(3, dtype=torch.int32), *weights)
