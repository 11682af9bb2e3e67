"""The NVFP4 MoE layer: the public grid, the gaps it leaves, every kind of routing, and the masked format."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import samebits
from samebits import Subject
from samebits.engine.suite import FLAG
from samebits_suites import kernels
from samebits_suites.constructed import chained_mm
from samebits_suites.profile import by_profile, most_checks

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.subject import Kernel
    from samebits.inputs import MoeOperands
    from samebits_kernels.ops.moe import Weights

PUBLIC = ((12, 1024, 1024), (129, 1024, 1024), (73, 1472, 1536))
"""(M, I, H) of vLLM's tests; M is the largest batch of the nightly profile."""
EXPERTS, TOPK = (40, 64), (1, 4)
ACTIVATIONS = ("silu", "swiglustep")
SMALL: dict[str, Any] = {"h": [256], "i": [128]}
ROWS = 48
SHORT = ("batch-size", "solo", "permutation", "neighbours", "out-contract")
"""The checks that say most in few launches; padding takes 150 of them, so a few cases stand for all."""
POISONED = (*SHORT, "padding")
LARGE = ("batch-size", "permutation", "out-contract")
CONTROL = ("batch-size", "solo", "neighbours")

suite = samebits.Suite("moe", summary="NVFP4 MoE layer, standard and batched-experts format")


class Layer:
    """Weights of a layer as `samebits_kernels.moe` takes them."""

    def __init__(self, operands: MoeOperands) -> None:
        import samebits_kernels

        self.operands = operands
        self.w13_scale = samebits_kernels.swizzle_scales(operands.w13_scale)
        self.w2_scale = samebits_kernels.swizzle_scales(operands.w2_scale)

    @functools.cache  # noqa: B019 - one layer a case: filling the padding of every expert takes longer than a launch
    def weights(self, byte: int | None = None) -> Weights:
        """The eight tensors in the order of the operator; `byte` fills the padding of their scales."""
        o, s13, s2 = self.operands, self.w13_scale, self.w2_scale
        if byte is not None:
            s13 = kernels.fill_scale_padding(s13, o.w13.shape[1], o.w13_scale.shape[2], byte)
            s2 = kernels.fill_scale_padding(s2, o.w2.shape[1], o.w2_scale.shape[2], byte)
        return o.w13, s13, o.w2, s2, o.a1_gscale, o.w1_alphas, o.a2_gscale, o.w2_alphas


def moe(
    seed: int,
    h: int,
    i: int,
    e: int,
    k: int,
    backend: str,
    dtype: str = "bfloat16",
    activation: str = "silu",
    routing: str = "mixed",
    renormalize: bool = False,
    weight_on_input: bool = False,
) -> Subject:
    """Rows are hidden states [H] and router logits [E]."""
    import samebits_kernels

    operands = samebits.inputs.moe(ROWS, h, i, e, dtype=dtype, seed=seed, routing=routing)

    def made(weights: Weights) -> Kernel:
        def kernel(hidden: Tensor, logits: Tensor, out: Tensor | None = None) -> Tensor:
            return samebits_kernels.moe(
                hidden, logits, *weights, k, renormalize=renormalize, activation=activation,
                apply_router_weight_on_input=weight_on_input, out=out, backend=backend,
            )  # fmt: skip

        return kernel

    layer = Layer(operands)
    kernel = made(layer.weights())
    return Subject(
        kernel,
        (operands.hidden, operands.logits),
        name=f"moe H={h} I={i} E={e} k={k} {activation} {dtype} on {backend}",
        out=kernel,
        reordered=_reordered(operands, made),
        addends=h,
        poisons={"scale padding": lambda byte: made(layer.weights(byte)), **kernels.workspaces(kernel)},
        **kernels.declared("moe", backend),
    )


def batched_moe(
    seed: int, h: int, i: int, e: int, backend: str, dtype: str = "bfloat16", activation: str = "silu"
) -> Subject:
    """Rows are hidden states and the expert each goes to. They sit in their expert's slots, two in three used.

    The slots are taken backwards for odd experts, so that a row's slot says nothing about its place in the batch.
    """
    import torch

    import samebits_kernels

    operands = samebits.inputs.moe(ROWS, h, i, e, dtype=dtype, seed=seed, routing="zipf")
    expert = operands.logits.argmax(1)

    def made(weights: Weights, byte: int = 0) -> Kernel:
        def kernel(hidden: Tensor, expert: Tensor) -> Tensor:
            chosen = torch.nn.functional.one_hot(expert, e)
            count = chosen.sum(0)
            slot = (chosen.cumsum(0) - 1).gather(1, expert[:, None])[:, 0]
            slot = torch.where(expert % 2 == 1, count[expert] - 1 - slot, slot)
            most = int(count.max()) * 3 // 2 + 1
            grouped = torch.full((e, most, h * 2), byte, dtype=torch.uint8).view(hidden.dtype)
            grouped[expert, slot] = hidden
            y = samebits_kernels.batched_moe(
                grouped, count.int(), *weights, activation=activation, backend=backend
            )
            return y[expert, slot]

        return kernel

    layer = Layer(operands)
    kernel = made(layer.weights())
    return Subject(
        kernel,
        (operands.hidden, expert),
        name=f"batched_moe H={h} I={i} E={e} {activation} {dtype} on {backend}",
        reordered=_reordered(operands, made, expert),
        addends=h,
        poisons={
            "scale padding": lambda byte: made(layer.weights(byte)),
            "unused slots": lambda byte: made(layer.weights(), byte),
            **kernels.workspaces(kernel),
        },
        **kernels.declared("batched_moe", backend),
    )


def _reordered(
    operands: MoeOperands, made: Any, expert: Tensor | None = None
) -> tuple[Kernel, tuple[Tensor, ...]]:
    """The twin with H permuted in blocks of 16, where GEMM 1 sums over it; made when it is run."""
    import dataclasses

    import torch

    blocks = operands.w13_scale.shape[2]
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(1))

    def move(t: Tensor) -> Tensor:
        return t.reshape(*t.shape[:-1], blocks, -1).index_select(-2, order).flatten(-2).contiguous()

    def twin(*rows: Tensor) -> Any:
        moved = dataclasses.replace(operands, w13=move(operands.w13), w13_scale=operands.w13_scale[..., order])
        return made(Layer(moved).weights())(*rows)

    return twin, (move(operands.hidden), operands.logits if expert is None else expert)


def rows_per_expert(seed: int, h: int, e: int) -> Subject:
    """A grouped GEMM in plain torch that splits K in four for experts with fewer than three rows."""
    import torch

    operands = samebits.inputs.gemm(ROWS, e * 16, h, dtype="float32", seed=seed)
    w = operands.w.reshape(e, 16, h)
    expert = torch.randint(0, e, (ROWS,), generator=torch.Generator().manual_seed(seed))

    def kernel(x: Tensor, expert: Tensor) -> Tensor:
        y = x.new_empty(x.shape[0], 16)
        for i in range(e):
            mine = expert == i
            y[mine] = chained_mm(x[mine], w[i], splits=4 if int(mine.sum()) < 3 else 1)
        return y

    rows = (operands.x, expert)
    return Subject(kernel, rows, name="tile by rows per expert", addends=h, derive=False)


def arrival_order(seed: int, h: int, e: int, k: int) -> Subject:
    """A combine that adds the k choices of a token as its experts finish: those with fewer rows first."""
    import torch

    g = torch.Generator().manual_seed(seed)
    y = torch.randn(ROWS, e, h, generator=g)
    ids = torch.rand(ROWS, e, generator=g).topk(k, dim=1).indices

    def kernel(y: Tensor, ids: Tensor) -> Tensor:
        load = torch.nn.functional.one_hot(ids, e).sum((0, 1))
        total = torch.zeros(y.shape[0], h)
        for i in load.argsort(stable=True).tolist():
            total = torch.where((ids == i).any(1)[:, None], total + y[:, i], total)
        return total

    return Subject(kernel, (y, ids), name="combine in order of arrival", addends=k, derive=False)


def _cpu(name: str, *, m: int, checks: Any = SHORT, factory: Any = moe, **grid: Any) -> None:
    """Cases on the CPU backend: up to M = m in the default profile."""
    suite.case(
        name=name, needs=kernels.needs("cpu"), checks=by_profile(checks, None),
        max_batch=by_profile(m, max(m, 129)), backend=["cpu"], **grid,
    )(factory)  # fmt: skip


for _m, _i, _h in PUBLIC:
    if by_profile(False, True):
        suite.case(
            name=f"public_{_m}", h=[_h], i=[_i], e=EXPERTS, k=TOPK, activation=ACTIVATIONS,
            dtype=["bfloat16", "float16"], backend=["cpu"], needs=kernels.needs("cpu"), max_batch=_m,
        )(moe)  # fmt: skip
if by_profile(True, False):
    _cpu("public", m=12, checks=LARGE, h=[1024], i=[1024], e=[40], k=[4], activation=["silu"])
    _cpu("public", m=12, checks=LARGE, h=[1024], i=[1024], e=[64], k=[1], activation=["swiglustep"])
    _cpu("public", m=6, checks=LARGE, h=[1536], i=[1472], e=[40], k=[4], activation=["swiglustep"])
_cpu("every_check", m=33, checks=None, **SMALL, e=[40], k=[4])
_cpu("experts", m=17, **SMALL, e=by_profile([8, 36, 64, 128], [8, 36, 60, 64, 128, 256]), k=[2, 8])
_cpu("k", m=17, **SMALL, e=[40], k=[1, 4], activation=ACTIVATIONS, dtype=["bfloat16", "float16"])
_cpu("routing", m=17, **SMALL, e=[40], k=[4], routing=["uniform", "one", "zipf", "ties"])
# Of a pair and its opposite an even k leaves exact zeros; the third choice shows where the sum began.
_cpu("routing", m=17, **SMALL, e=[40], k=[3], routing=["opposite"])
_cpu("renormalised", m=33, **SMALL, e=[40], k=[4], renormalize=[True])
_cpu("weight_on_input", m=33, **SMALL, e=[40], k=[1], weight_on_input=[True])
_cpu("ragged", m=17, checks=POISONED, h=[208], i=[48], e=[36], k=[2], activation=ACTIVATIONS)
_cpu("batched", m=17, factory=batched_moe, **SMALL, e=[8], activation=["silu"], checks=POISONED)
_cpu("batched", m=17, factory=batched_moe, **SMALL, e=[40], activation=ACTIVATIONS)
_layers: list[tuple[Any, dict[str, Any]]] = [(moe, {"k": [4]}), (batched_moe, {})]
for _factory, _k in _layers:
    suite.case(
        name=f"{_factory.__name__}_reference", h=[64], i=[32], e=[8], backend=["reference"], **_k,
        checks=by_profile(SHORT, most_checks()), max_batch=by_profile(8, 64),
    )(_factory)  # fmt: skip

suite.control(
    name="free_mode", **SMALL, e=[8], k=[2], backend=["cpu"], env={FLAG: "0"}, needs=kernels.needs("cpu"),
    checks=CONTROL, max_batch=33,
)(moe)  # fmt: skip
suite.control(h=[96], e=[4], checks=CONTROL, max_batch=24)(rows_per_expert)
suite.control(h=[64], e=[16], k=[8], checks=CONTROL, max_batch=24)(arrival_order)
