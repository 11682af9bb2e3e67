"""NVFP4 kernels whose batch invariance is a declared contract.

```python
q, q_scale = samebits_kernels.quantise(x, x_global_scale)
d = samebits_kernels.scaled_mm(q, w, q_scale, w_scale, alpha, torch.bfloat16)
```

Every function takes `backend=`: "cpu" (C++, built at first use), "reference" (plain torch, same bits) or ""
for the best one that this machine can run. `contract(op)` says what a backend promises, `probe()` what its
library has read from the environment. The numerics are in `reference.fp32`, in the order of the operations.
"""

from __future__ import annotations

from samebits_kernels.backends.registry import backends, register, resolve, unregister
from samebits_kernels.contract import contract, probe
from samebits_kernels.errors import BackendUnavailableError, BuildError, KernelsError, UsageError
from samebits_kernels.flag import FLAG, batch_invariant
from samebits_kernels.formats import (
    BLOCK,
    E2M1,
    E2M1_MAX,
    E4M3_MAX,
    dequantise,
    global_scale_for,
    pack,
    unpack,
)
from samebits_kernels.layout import offset, padded_shape
from samebits_kernels.ops.allocate import poisoned
from samebits_kernels.ops.batched_moe import batched_moe
from samebits_kernels.ops.experts import combine, experts_quantise, grouped_mm, permute, route
from samebits_kernels.ops.moe import moe
from samebits_kernels.ops.quantise import activation_and_mul, activation_quantise, quantise
from samebits_kernels.ops.scaled_mm import PreparedWeight, prepare, scaled_mm
from samebits_kernels.ops.scales import swizzle_scales, unswizzle_scales

__all__ = [
    "BLOCK",
    "E2M1",
    "E2M1_MAX",
    "E4M3_MAX",
    "FLAG",
    "BackendUnavailableError",
    "BuildError",
    "KernelsError",
    "PreparedWeight",
    "UsageError",
    "activation_and_mul",
    "activation_quantise",
    "backends",
    "batch_invariant",
    "batched_moe",
    "combine",
    "contract",
    "dequantise",
    "experts_quantise",
    "global_scale_for",
    "grouped_mm",
    "moe",
    "offset",
    "pack",
    "padded_shape",
    "permute",
    "poisoned",
    "prepare",
    "probe",
    "quantise",
    "register",
    "resolve",
    "route",
    "scaled_mm",
    "swizzle_scales",
    "unpack",
    "unregister",
    "unswizzle_scales",
]
