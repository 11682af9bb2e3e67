"""Packed operands and a bf16 output are enough to find the order of blocks, on models of three units."""

from __future__ import annotations

import pytest
import torch

from samebits.diagnose.tree import NoTreeError, Tree, nvfp4_tree
from samebits.diagnose.tree.structure import chain
from samebits.inputs.adders import BLACKWELL_NVFP4, FMA, HOPPER
from samebits.inputs.nvfp4 import dequantise


def kernel(adder, splits=1, pairwise=False, dtype=torch.bfloat16):
    def fn(x, x_scale, w, w_scale, alpha):
        a, b = dequantise(x, x_scale), dequantise(w, w_scale)
        products = (a[:, None] * b[None]).numpy()
        parts = adder.chain(products.reshape(*products.shape[:2], splits, -1))
        parts = [torch.from_numpy(parts[..., i].copy()) for i in range(splits)]
        while pairwise and len(parts) > 1:
            parts = [p + q for p, q in zip(parts[::2], parts[1::2], strict=True)]
        total = parts[0]
        for p in parts[1:]:
            total = total + p
        return (total * alpha).to(dtype)

    return fn


def truth(blocks, width, splits=1, pairwise=False):
    parts = []
    for part in range(splits):
        mine = list(range(blocks * part // splits, blocks * (part + 1) // splits))
        total = tuple(mine[:width]) if width > 1 else mine[0]
        for start in range(width, len(mine), width):
            total = (total, *mine[start : start + width])
        parts.append(total)
    while pairwise and len(parts) > 1:
        parts = [(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
    return Tree.nested(chain(parts))


@pytest.mark.parametrize(("splits", "pairwise"), [(1, False), (2, False), (4, False), (4, True)])
@pytest.mark.parametrize(("adder", "width"), [(BLACKWELL_NVFP4, 4), (HOPPER, 1), (FMA, 1)], ids=["b", "h", "f"])
def test_trees_on_models(adder, width, splits, pairwise):
    found = nvfp4_tree(kernel(adder, splits, pairwise), 256, 128)
    assert found.same_as(truth(16, width, splits, pairwise)), found.words()


def test_fp16_outputs_and_words():
    found = nvfp4_tree(kernel(BLACKWELL_NVFP4, 2, dtype=torch.float16), 512, 256)
    assert found.same_as(truth(32, 4, 2))
    assert found.words() == "split-K 2 at 256, 4 at a time (leaves are blocks of 16)"
    assert found.launches < 40


def test_a_kernel_without_block_scales_is_no_nvfp4_product():
    def fn(x, x_scale, w, w_scale, alpha):
        return dequantise(x, x_scale).float() @ dequantise(w, torch.full_like(w_scale, 0x38)).float().T * alpha

    with pytest.raises(NoTreeError, match="no plain NVFP4 product"):
        nvfp4_tree(fn, 128, 64)
