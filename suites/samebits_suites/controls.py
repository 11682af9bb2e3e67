"""Public faults P01..P15: every kind is caught by a constructed kernel, and the real one is observed beside it.

`pNN_..._kind` is built from element-wise arithmetic whose bits every machine agrees on, so it must be caught
everywhere. `pNN_...` is the library's own kernel with the inputs of the public report: another CPU or another
BLAS may be clean, so what it does here is shown and not judged. The last cases die: they prove the isolation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import samebits
from samebits import Subject
from samebits_suites.constructed import chained_mm, chained_sum

if TYPE_CHECKING:
    from torch import Tensor

suite = samebits.Suite("controls", summary="public faults that must be caught, and crashes that must be survived")

SWEEP = ("batch-size", "solo", "replay", "permutation", "duplicates", "prefix")
"""Positions and batch sizes."""
WIDE = (*SWEEP, "neighbours", "layout", "repeat")
"""And what else the faults here depend on."""


def _operands(seed: int, rows: int, n: int, k: int, dtype: str = "float32") -> tuple[Tensor, Tensor]:
    o = samebits.inputs.gemm(rows, n, k, dtype=dtype, seed=seed)
    return o.x, o.w


def _randn(seed: int, *shape: int) -> Tensor:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# -- P01, P03: a GEMM path chosen by M ----------------------------------------------------------------------


@suite.case(expect="observed", checks=SWEEP, max_batch=64)
def p01_matmul(seed: int) -> Subject:
    """`x @ w`, 512 to 256, fp32: three bit patterns of row 0 in the report."""
    w = _randn(seed, 512, 256)
    return Subject(lambda x: x @ w, (_randn(seed + 1, 16, 512),), name="x @ w, 512 -> 256, fp32", addends=512)


@suite.control(checks=SWEEP, max_batch=16)
def p01_matmul_kind(seed: int) -> Subject:
    """Four lanes below M = 4, one chain from there on."""
    x, w = _operands(seed, 8, 256, 64)
    return Subject(
        lambda x: chained_mm(x, w, 4 if x.shape[0] < 4 else 1),
        (x,),
        name="GEMM path below M = 4",
        addends=64,
        derive=False,
    )


@suite.case(expect="observed", checks=SWEEP, max_batch=64, dtype=["float32", "float64"])
def p03_linear(seed: int, dtype: str) -> Subject:
    """`nn.Linear(1000, 1000)`, fp32 and fp64."""
    import torch

    layer = torch.nn.Linear(1000, 1000).to(getattr(torch, dtype))
    with torch.no_grad():
        layer.weight.copy_(_randn(seed, 1000, 1000))
        layer.bias.copy_(_randn(seed + 1, 1000))
    x = _randn(seed + 2, 16, 1000).to(layer.weight.dtype)
    return Subject(layer, (x,), name=f"nn.Linear(1000, 1000), {dtype}", addends=1001)


@suite.control(checks=SWEEP, max_batch=8)
def p03_linear_kind(seed: int) -> Subject:
    """The bias starts the chain at M = 1 (an epilogue of its own path) and ends it in a batch."""
    x, w = _operands(seed, 8, 256, 64)
    bias = _randn(seed, 256)

    def kernel(x: Tensor) -> Tensor:
        if x.shape[0] > 1:
            return chained_mm(x, w) + bias
        total = bias.expand(1, -1)
        for i in range(x.shape[1]):
            total = total + x[:, i, None] * w[None, :, i]
        return total

    return Subject(kernel, (x,), name="bias first at M = 1, last in a batch", addends=65, derive=False)


# -- P02: threads split the rows and leave a tail -----------------------------------------------------------


@suite.case(expect="observed", checks=SWEEP, max_batch=130)
def p02_tail_row(seed: int) -> Subject:
    """130 rows, two threads: the last row differs in the report, row 0 does not."""
    w = _randn(seed, 512, 256)
    return Subject(lambda x: x @ w, (_randn(seed + 1, 32, 512),), name="x @ w, up to 130 rows", addends=512)


@suite.control(checks=SWEEP, max_batch=20)
def p02_tail_row_kind(seed: int) -> Subject:
    """Rows go to threads in fours; those of an incomplete four are added in two chains."""
    import torch

    x, w = _operands(seed, 8, 256, 64)

    def kernel(x: Tensor) -> Tensor:
        body = x.shape[0] // 4 * 4
        return torch.cat([chained_mm(x[:body], w), chained_mm(x[body:], w, 2)])

    return Subject(kernel, (x,), name="thread tail with a loop of its own", addends=64, derive=False)


# -- P04: a backend chosen by the number of pictures ---------------------------------------------------------


@suite.case(expect="observed", checks=SWEEP, max_batch=16)
def p04_conv2d(seed: int) -> Subject:
    """`nn.Conv2d(64, 64, 3, padding=1)` on 14 x 14 pictures."""
    from torch.nn import functional as F

    w = _randn(seed, 64, 64, 3, 3)
    x = _randn(seed + 1, 8, 64, 14, 14)
    return Subject(lambda x: F.conv2d(x, w, padding=1), (x,), name="conv2d 64 -> 64, 14 x 14", addends=576)


@suite.control(checks=SWEEP, max_batch=16)
def p04_conv2d_kind(seed: int) -> Subject:
    """A direct convolution for one picture, tap by tap; channel by channel for more (1 x 3 taps)."""
    x, w = _randn(seed, 8, 6, 66), _randn(seed + 1, 8, 6, 3)

    def kernel(x: Tensor) -> Tensor:
        taps = [(c, t) for c in range(6) for t in range(3)]
        if x.shape[0] == 1:
            taps.sort(key=lambda ct: ct[1])
        total = x.new_zeros(x.shape[0], 8, 64)
        for c, t in taps:
            total = total + x[:, None, c, t : t + 64] * w[None, :, c, t, None]
        return total

    return Subject(kernel, (x,), name="convolution backend chosen by N", addends=18, derive=False)


# -- P05: vector body against scalar tail --------------------------------------------------------------------


@suite.case(
    expect="observed",
    checks=SWEEP,
    max_batch=64,
    op=["softplus", "gelu", "silu", "mish", "elu", "sigmoid", "exp2"],
)
def p05_activation(seed: int, op: str) -> Subject:
    """An activation over 1007 elements a row: where a vector ends depends on the rows before."""
    import torch
    from torch.nn import functional as F

    fn = getattr(F, op, None) or getattr(torch, op)
    return Subject(fn, (_randn(seed, 8, 1007),), name=f"{op}, 1007 wide")


@suite.control(checks=SWEEP, max_batch=16)
def p05_activation_kind(seed: int) -> Subject:
    """Vectors of eight over the flat batch; the scalar tail rounds its product before the sum."""
    import torch

    def kernel(x: Tensor) -> Tensor:
        flat = x.reshape(-1).double()
        fused = (flat * flat + flat).float()
        apart = (flat * flat).float() + flat.float()
        tail = torch.arange(flat.numel()) >= flat.numel() // 8 * 8
        return torch.where(tail, apart, fused).reshape(x.shape)

    return Subject(kernel, (_randn(seed, 8, 1007),), name="scalar tail of an element-wise kernel", derive=False)


# -- P06: the layout picks the path ---------------------------------------------------------------------------


@suite.case(expect="observed", checks=("layout",), op=["pow", "logit"])
def p06_layout(seed: int, op: str) -> Subject:
    """`x ** 2.3` and `logit`, contiguous against strided."""
    import torch

    x = torch.rand(16, 512, generator=torch.Generator().manual_seed(seed)) * 0.98 + 0.01
    fn = {"pow": lambda x: x**2.3, "logit": torch.logit}[op]
    return Subject(fn, (x,), name=op, derive=False)


@suite.control(checks=("layout",))
def p06_layout_kind(seed: int) -> Subject:
    """Rows that are not contiguous go through a path that adds in two chains."""
    x, w = _operands(seed, 8, 256, 64)
    return Subject(
        lambda x: chained_mm(x, w, 1 if x.is_contiguous() else 2),
        (x,),
        name="strided path with another order",
        addends=64,
        derive=False,
    )


# -- P07: one long row is split over threads ------------------------------------------------------------------


@suite.case(expect="observed", checks=("batch-size", "solo"), max_batch=8)
def p07_long_sum(seed: int) -> Subject:
    """`x.sum(1)` of 8 x 200,000: one row alone is split over threads."""
    return Subject(lambda x: x.sum(1), (_randn(seed, 8, 200_000),), name="sum of 200,000", addends=200_000)


@suite.control(checks=SWEEP, max_batch=16)
def p07_long_sum_kind(seed: int) -> Subject:
    """A row is split over as many threads as rows leave idle, of eight."""
    x = samebits.inputs.gemm(8, 1, 64 * 16, dtype="float32", seed=seed).x.reshape(8, 64, 16)
    return Subject(
        lambda x: chained_sum(x, max(1, 8 // x.shape[0])),
        (x,),
        name="row split over idle threads",
        addends=64,
        derive=False,
    )


# -- P08: tiles by query length -------------------------------------------------------------------------------


@suite.case(expect="observed", checks=SWEEP, max_batch=64)
def p08_attention(seed: int) -> Subject:
    """Queries of one sequence through SDPA: the last query alone against the prefill."""
    from torch.nn import functional as F

    k, v = _randn(seed, 1, 8, 64, 64), _randn(seed + 1, 1, 8, 64, 64)

    def kernel(q: Tensor) -> Tensor:
        split = q.reshape(1, -1, 8, 64).transpose(1, 2)
        return F.scaled_dot_product_attention(split, k, v).transpose(1, 2).reshape(-1, 512)

    return Subject(kernel, (_randn(seed + 2, 64, 512),), name="sdpa by query length", addends=64)


@suite.control(checks=SWEEP, max_batch=32)
def p08_attention_kind(seed: int) -> Subject:
    """Weighted values are added in one chain for a short query block, in two for a long one."""
    weights, values = _operands(seed, 16, 256, 64)
    return Subject(
        lambda p: chained_mm(p, values, 1 if p.shape[0] < 16 else 2),
        (weights,),
        name="keys tiled by query length",
        addends=64,
        derive=False,
    )


# -- P09 .. P12: rows that share state, routing, arrival, ties -------------------------------------------------


@suite.control(checks=WIDE, max_batch=16)
def p09_shared_scale(seed: int) -> Subject:
    """fp8 with one dynamic scale for the tensor: a neighbour twenty times as large changes every row."""
    import torch

    def kernel(x: Tensor) -> Tensor:
        scale = 448 / x.abs().amax()
        return (x * scale).to(torch.float8_e4m3fn).float() / scale

    return Subject(kernel, (_randn(seed, 8, 256),), name="fp8 with one scale for the tensor")


@suite.control(checks=WIDE, max_batch=16)
def p10_grouped_linear(seed: int) -> Subject:
    """Four experts; an expert with more than two rows splits K: the neighbours' routing decides."""
    import torch

    o = samebits.inputs.gemm(8, 4 * 128, 64, dtype="float32", seed=seed)
    w = o.w.reshape(4, 128, 64)
    expert = torch.arange(8) % 4

    def kernel(x: Tensor, expert: Tensor) -> Tensor:
        out = x.new_zeros(x.shape[0], 128)
        for e in range(4):
            mine = (expert == e).nonzero().reshape(-1)
            out[mine] = chained_mm(x[mine], w[e], 1 if len(mine) <= 2 else 2)
        return out

    return Subject(kernel, (o.x, expert), name="grouped linear, split by rows of an expert", addends=64)


@suite.control(checks=WIDE, max_batch=16)
def p11_combine(seed: int) -> Subject:
    """Top-8 results of a token are added in the order in which tokens' tiles arrive: here, by M."""
    x = samebits.inputs.gemm(8, 1, 8 * 256, dtype="float32", seed=seed).x.reshape(8, 8, 256)

    def kernel(x: Tensor) -> Tensor:
        first = x.shape[0] % 8
        return chained_sum(x.roll(first, dims=1))

    return Subject(kernel, (x,), name="combine of eight in order of arrival", addends=8, derive=False)


@suite.control(checks=WIDE, max_batch=16)
def p12_topk_ties(seed: int) -> Subject:
    """Equal router logits; the scan begins at an expert that depends on the batch size."""
    import torch

    def kernel(logits: Tensor) -> Tensor:
        start = logits.shape[0] % logits.shape[1]
        best = logits.roll(-start, dims=1).argsort(dim=1, descending=True, stable=True)[:, :2]
        return (best + start) % logits.shape[1]

    logits = torch.randint(0, 3, (8, 16), generator=torch.Generator().manual_seed(seed)).float()
    return Subject(kernel, (logits,), name="top-k ties by scan order", derive=False)


@suite.case(expect="observed", checks=SWEEP, max_batch=32)
def p12_topk(seed: int) -> Subject:
    """`torch.topk` with ties."""
    import torch

    logits = torch.randint(0, 3, (16, 64), generator=torch.Generator().manual_seed(seed)).float()
    return Subject(lambda x: tuple(x.topk(4, dim=1)), (logits,), name="topk with ties", derive=False)


# -- P13: an edge kernel by position ---------------------------------------------------------------------------


@suite.case(expect="observed", checks=SWEEP, max_batch=130)
def p13_numpy(seed: int) -> Subject:
    """NumPy's BLAS, fp32: 130 equal rows gave three results in the report."""
    import numpy as np
    import torch

    w = _randn(seed, 512, 256).numpy()

    def kernel(x: Tensor) -> Tensor:
        with np.errstate(all="ignore"):  # rows behind the batch are made to overflow
            return torch.from_numpy(x.numpy() @ w)

    return Subject(kernel, (_randn(seed + 1, 32, 512),), name="numpy x @ w", addends=512)


@suite.control(checks=SWEEP, max_batch=16)
def p13_edge_kernel_kind(seed: int) -> Subject:
    """Every sixth row, the last of a register tile, is added in two chains."""
    import torch

    x, w = _operands(seed, 8, 256, 64)

    def kernel(x: Tensor) -> Tensor:
        edge = torch.arange(x.shape[0])[:, None] % 6 == 5
        return torch.where(edge, chained_mm(x, w, 2), chained_mm(x, w))

    return Subject(kernel, (x,), name="edge kernel of a register tile", addends=64, derive=False)


# -- P14: what comparing values would miss ----------------------------------------------------------------------


@suite.control(checks=("batch-size", "solo"), max_batch=8)
def p14_signed_zero(seed: int) -> Subject:
    """+0 alone, -0 in a batch: `torch.equal` says equal."""
    import torch

    def kernel(x: Tensor) -> Tensor:
        clipped = x.clamp(min=0)
        return torch.where(clipped == 0, -clipped, clipped) if x.shape[0] > 1 else clipped

    return Subject(kernel, (_randn(seed, 8, 256),), name="signed zero by M", derive=False)


@suite.control(checks=("batch-size", "solo"), max_batch=8)
def p14_nan_payload(seed: int) -> Subject:
    """The payload of a NaN changes with M: every comparison of values says unequal, also where bits agree."""
    import torch

    x = _randn(seed, 8, 256)
    x[:, ::7] = torch.nan

    def kernel(x: Tensor) -> Tensor:
        bits = x.view(torch.int32)
        return torch.where(x.isnan(), bits ^ (x.shape[0] > 1), bits).view(torch.float32)

    return Subject(kernel, (x,), name="NaN payload by M", derive=False)


# -- P15: what must stay clean -----------------------------------------------------------------------------------


@suite.case(expect="observed", checks=SWEEP, max_batch=64)
def p15_linear_bf16(seed: int) -> Subject:
    """bf16 `nn.Linear`: clean at any M on an AVX2 machine; another CPU has other kernels."""
    from torch.nn import functional as F

    x, w = _operands(seed, 16, 256, 512, "bfloat16")
    return Subject(lambda x: F.linear(x, w), (x,), name="bf16 linear 512 -> 256", addends=512)


@suite.case(expect="observed", checks=SWEEP, max_batch=4)
def p15_lstm(seed: int) -> Subject:
    """`nn.LSTM`, batch 4 against 1."""
    import torch

    torch.manual_seed(seed)
    lstm = torch.nn.LSTM(64, 64, batch_first=True)
    return Subject(lambda x: lstm(x)[0], (_randn(seed, 4, 12, 64),), name="LSTM, batch up to 4", addends=64)


@suite.case(max_batch=32)
def p15_clean_kind(seed: int) -> Subject:
    """One chain in element-wise arithmetic, whatever M is: a finding here would be a false alarm."""
    x, w = _operands(seed, 16, 256, 64)
    o = samebits.inputs.gemm(16, 256, 64, dtype="float32", seed=seed).reordered()
    return Subject(
        lambda x: chained_mm(x, w),
        (x,),
        name="one chain of additions",
        reordered=(lambda x: chained_mm(x, o[1]), (o[0],)),
        addends=64,
        derive=False,
    )


# -- crashes and hangs: the isolation has to contain them --------------------------------------------------------


def _native(call: str) -> Subject:
    import ctypes

    def kernel(x: Tensor) -> Tensor:
        c = ctypes.PyDLL(None)  # keeps the interpreter lock, as a binding may
        if call == "abort":
            c.abort()
        elif call == "segfault":
            ctypes.string_at(0)
        else:
            while True:
                c.pause()
        return x

    import torch

    return Subject(kernel, (torch.ones(2, 4),), name=f"{call} in native code", derive=False)


@suite.case(expect="crash", call=["abort", "segfault"])
def crash(seed: int, call: str) -> Subject:
    """A kernel that takes its process with it; the cases behind it must not notice."""
    return _native(call)


@suite.case(expect="hang", deadline=3.0)
def hang(seed: int) -> Subject:
    """A kernel that never returns and holds the interpreter lock: ended at its deadline."""
    return _native("hang")


@suite.case(checks=("batch-size", "solo"), max_batch=8)
def after_the_crashes(seed: int) -> Subject:
    """Runs behind the crashes and the hang, and must be invariant."""
    return Subject(lambda x: x * 2, (_randn(seed, 8, 256),), name="doubling")
