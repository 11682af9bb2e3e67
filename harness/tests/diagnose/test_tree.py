"""Known orders are found as they are; trees of real kernels are proven by replay, not compared with a list."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

from samebits.diagnose.tree import NoTreeError, Proof, Tree, accumulation_tree, sum_tree
from samebits.diagnose.tree.fprev import reconstruct
from samebits.diagnose.tree.structure import chain
from samebits.errors import UsageError


def sequential(k):
    return chain(range(k))


def pairwise(leaves):
    parts = list(leaves)
    while len(parts) > 1:
        parts = [(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
    return parts[0]


def split(k, parts):
    return chain([chain(range(k * p // parts, k * (p + 1) // parts)) for p in range(parts)])


def lanes(k, width):
    return pairwise([chain(range(lane, k - k % width, width)) for lane in range(width)])


def tail(tree, *leaves):
    return chain([tree, *leaves])


def steps(k, width):
    """Tensor cores: the accumulator and `width` addends at once."""
    total = tuple(range(width))
    for start in range(width, k, width):
        total = (total, *range(start, start + width))
    return total


def anything(k, seed):
    dice = random.Random(seed)
    parts = list(range(k))
    while len(parts) > 1:
        count = min(len(parts), dice.choice([2, 2, 2, 3, 5]))
        taken = [parts.pop(dice.randrange(len(parts))) for _ in range(count)]
        parts.append(tuple(taken))
    return parts[0]


KNOWN = {
    "sequential": (sequential(40), "sequential"),
    "reversed": (chain(range(39, -1, -1)), "sequential, last first"),
    "pairwise": (pairwise(range(64)), "pairwise"),
    "split 2": (split(1024, 2), "split-K 2 at 512"),
    "split 4": (split(64, 4), "split-K 4 at 16, added one after another"),
    "blocks": (
        chain([chain(range(192)), chain(range(192, 384)), chain(range(384, 512))]),
        "K blocks 192, 192, 128, added one after another",
    ),
    "lanes": (lanes(64, 8), "8 lanes of stride 8, added pairwise"),
    "tail": (tail(lanes(64, 4), 64, 65, 66), "4 lanes of stride 4, added pairwise + tail of 3"),
    "two": ((0, 1), "sequential"),
    "steps": (steps(64, 4), "sequential, 4 at a time"),
}


def oracle(tree):
    """What the true tree answers: the leaves under the node where i and j meet."""
    held = [{leaf} for leaf in range(tree.leaves)]
    for children in tree.nodes:
        held.append(set().union(*(held[c] for c in children)))
    inner = held[tree.leaves :]
    return lambda pairs: [min(len(s) for s in inner if i in s and j in s) for i, j in pairs]


@pytest.mark.parametrize("name", KNOWN)
def test_known_orders_and_their_words(name):
    nested, said = KNOWN[name]
    truth = Tree.nested(nested)
    found = reconstruct(truth.leaves, oracle(truth))
    assert found.same_as(truth)
    assert truth.words() == found.words() == said


@pytest.mark.parametrize("seed", range(40))
def test_any_tree_is_found(seed):
    truth = Tree.nested(anything(2 + seed, seed))
    assert reconstruct(truth.leaves, oracle(truth)).same_as(truth)


def test_a_chain_in_any_direction_takes_few_launches():
    for nested in (sequential(300), chain(range(299, -1, -1)), chain(random.Random(1).sample(range(300), 300))):
        truth = Tree.nested(nested)
        answer, calls = oracle(truth), []

        def ask(pairs, answer=answer, calls=calls):
            calls.append(len(pairs))
            return answer(pairs)

        assert reconstruct(300, ask).same_as(truth)
        assert len(calls) < 40


def test_same_as_ignores_sides_and_sees_everything_else():
    assert Tree.nested(((0, 1), (2, 3))).same_as(Tree.nested(((3, 2), (1, 0))))
    assert not Tree.nested(((0, 1), (2, 3))).same_as(Tree.nested(((0, 2), (1, 3))))
    assert not Tree.nested(((0, 1), 2)).same_as(Tree.nested((0, 1, 2)))
    assert not Tree.nested((0, 1)).same_as(Tree.nested(((0, 1), 2)))


def test_json_and_depth():
    tree = Tree.nested(split(8, 2))
    assert tree.depth() == 4
    assert tree.to_json() == {
        "leaves": 8, "unit": 1, "nodes": [list(c) for c in tree.nodes], "words": "split-K 2 at 4", "proof": None,
    }  # fmt: skip


def added(x, w, order, fused):
    """x @ w.T in float32 along nested tuples."""
    products = x[:, None].double() * w[None].double()

    def value(t):
        if not isinstance(t, tuple):
            return products[..., t].float()
        total = value(t[0])
        for part in t[1:]:
            other = products[..., part] if fused and not isinstance(part, tuple) else value(part).double()
            total = (total.double() + other).float()
        return total

    return value(order)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["sequential", "pairwise", "split 4", "lanes", "tail"])
def test_the_tree_and_the_contraction_of_a_kernel_are_proven(name, fused):
    nested = KNOWN[name][0]
    truth = Tree.nested(nested)
    found = accumulation_tree(lambda x, w: added(x, w, nested, fused), truth.leaves, 64)
    assert found.same_as(truth)
    assert found.proof.holds
    if name != "pairwise":
        assert (found.proof.fma == 64) == fused
        assert (found.proof.multiply_add == 64) == (not fused)


def test_a_wrong_tree_is_not_proven():
    from samebits.diagnose.tree.replay import replay

    for nested in (sequential(64), split(64, 2)):
        proof = replay(
            Tree.nested(nested), lambda x, w: added(x, w, lanes(64, 8), False), 64, 64, dtype=torch.float32
        )
        assert not proof.holds
        assert "not proven" in proof.words


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_dtypes(dtype):
    """Outputs in 16 bits cannot count to 300: such sums are asked for in stripes."""
    nested = split(300, 3)

    def kernel(x, w):
        if dtype != "float64":
            return added(x, w, nested, False).to(x.dtype)
        parts = [x[:, None] * w[None]]
        total = None
        for start in range(0, 300, 100):
            block = parts[0][..., start]
            for i in range(start + 1, start + 100):
                block = block + parts[0][..., i]
            total = block if total is None else total + block
        return total

    found = accumulation_tree(kernel, 300, 64, dtype=dtype)
    assert found.same_as(Tree.nested(nested))
    assert found.proof.holds


@pytest.mark.parametrize("m", [1, 2, 4, 16])
def test_real_linear_layers_are_proven_bit_for_bit(m):
    """Which tree it is depends on the machine; that the tree gives the bits does not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = accumulation_tree(F.linear, 256, 256, m=m, row=m - 1)
    finally:
        torch.set_num_threads(threads)
    assert found.leaves == 256
    assert found.words()
    if not found.proof.holds:  # columns of one launch may have trees of their own: then no single one is right
        pytest.skip(f"F.linear of this machine has no single tree at M={m}: {found.proof.words}")


def test_real_sums_are_proven():
    found = sum_tree(lambda x: x.sum(1), 64)
    assert found.proof.holds, found.words()


def test_a_sum_written_out():
    found = sum_tree(lambda x: (x[:, 0] + x[:, 2]) + (x[:, 1] + x[:, 3]), 4)
    assert found.same_as(Tree.nested(((0, 2), (1, 3))))


def test_the_order_of_arrival_has_no_tree():
    dice = random.Random(0)

    def kernel(x, w):
        order = list(range(16))
        dice.shuffle(order)
        return added(x, w, chain(order), False)

    with pytest.raises(NoTreeError, match="arrival-order"):
        accumulation_tree(kernel, 16, 64)


def test_columns_that_disagree_are_told():
    def kernel(x, w):
        y = added(x, w, sequential(16), False)
        y[:, 32:] = added(x, w[32:], pairwise(range(16)), False)
        return y

    with pytest.raises(NoTreeError, match=r"different orders \(column 3\d for one"):
        accumulation_tree(kernel, 16, 64)


def test_what_is_no_sum_is_told():
    with pytest.raises(NoTreeError, match="no plain sum"):
        accumulation_tree(lambda x, w: torch.sin(x @ w.T), 16, 16)


def test_refusals():
    with pytest.raises(UsageError, match="float8"):
        accumulation_tree(F.linear, 16, 16, dtype="float8_e4m3fn")
    with pytest.raises(UsageError, match="row 3 of 2"):
        accumulation_tree(F.linear, 16, 16, m=2, row=3)


def test_words_of_a_proof():
    assert Proof(64, 64, 64).words == "proven by replay"
    assert Proof(20, 64, 64).words == "proven by replay, with fused multiply-adds"
    assert Proof(64, 20, 64).words == "proven by replay, without fused multiply-adds"
    assert Proof(63, 20, 64).words == "not proven: replay gives 63 of 64 outputs"
