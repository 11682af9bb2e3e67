"""Inputs that cannot hide a reordering, and the measure of whether they do.

`randn` reveals almost nothing once a sum is rounded to bf16, and nothing at all in NVFP4, whose fp32 sums are
exact. The designs here cancel: half of the products of an output element are the other half, negated, elsewhere
along K, over a wide range of exponents. The sum is zero in real numbers, so the result *is* the rounding error.

| function | gives |
| --- | --- |
| `gemm(rows, n, k, dtype=, seed=, kind=)` | x [rows, k] and w [n, k] in fp32, fp64, bf16, fp16 or fp8 |
| `nvfp4_gemm(rows, n, k, seed=, kind=)` | packed e2m1 and e4m3 block scales of both operands |
| `reduction(rows, k, dtype=, seed=, kind=)` | rows for sums, norms and softmax |
| `moe(rows, hidden, intermediate, experts, ...)` | hidden states, router logits and NVFP4 expert weights |
| `derive(rows, seed=, fn=)` | further rows for a kernel whose weights are somebody else's |
| `sensitivity(fn, rows, ...)` | which share of the output elements shows a reordering |

Public signatures:

    gemm(rows, n, k, *, dtype="bfloat16", seed=0, device="cpu", kind="mixed") -> GemmOperands(x, w, order)
    nvfp4_gemm(rows, n, k, *, seed=0, device="cpu", kind="mixed")
        -> Nvfp4Operands(x, x_scale, w, w_scale, alpha, order)
    reduction(rows, k, *, dtype="float32", seed=0, device="cpu", kind="mixed") -> Tensor
    moe(rows, hidden, intermediate, experts, *, dtype="bfloat16", seed=0, device="cpu", routing="mixed")
        -> MoeOperands
    derive(rows, *, seed=0, fn=None) -> tuple of further row tensors, or ()
    sensitivity(fn, rows, *, reordered=None, addends=None) -> Sensitivity(share, elements, addends, how)

`GemmOperands.reordered()` and `Nvfp4Operands.reordered()` give the twin for `Subject.reordered`;
`Nvfp4Operands.activations(dtype)` the rows in 16 bits that quantise to it without loss. What shows on which unit
is computed by `samebits.inputs.orders.flip_rates(x, w, adder)` on the models in `samebits.inputs.adders`.

All are deterministic in their arguments: an explicit generator on the CPU, then moved.
Source of the designs and of the flip rates: docs/explanation/power.
"""

from samebits.inputs.derived import derive
from samebits.inputs.gemm import GemmOperands, gemm
from samebits.inputs.moe import MoeOperands, moe
from samebits.inputs.nvfp4 import Nvfp4Operands, nvfp4_gemm
from samebits.inputs.reduction import reduction
from samebits.inputs.sensitivity import Sensitivity, sensitivity

__all__ = [
    "GemmOperands",
    "MoeOperands",
    "Nvfp4Operands",
    "Sensitivity",
    "derive",
    "gemm",
    "moe",
    "nvfp4_gemm",
    "reduction",
    "sensitivity",
]
