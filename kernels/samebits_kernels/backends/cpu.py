"""The `cpu` backend: C++17, AVX-512 VNNI, AVX2 or plain, threads over output tiles. Same bits as `reference`.

Why it is fast: the 16 products of a block are small integers, so a block is one exact int8 dot product, and only
one fp32 addition a block remains. Why it is invariant: that addition is a chain over ascending K, lanes are
columns, and no thread, tile or instruction set appears in it (csrc/cpu/body.h, csrc/scheduler/tile_scheduler.h).

With `VLLM_BATCH_INVARIANT` 0 or unset the library's free schedule splits K when M and N give few tiles.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from samebits_kernels.backends.reference import TREES
from samebits_kernels.errors import UsageError
from samebits_kernels.flag import FLAG
from samebits_kernels.formats import BLOCK
from samebits_kernels.jit import build, toolchain
from samebits_kernels.ops import allocate

_DTYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
_ACTIVATIONS = {"silu": 0, "swiglustep": 1}
_NO_ACTIVATION = -1
_threads = torch.get_num_threads


class CpuBackend:
    """Binds csrc/cpu. The library is built (first use of this source) and loaded at the first call."""

    name = "cpu"
    device = "cpu"

    def __init__(self) -> None:
        self._manifest: dict[str, Any] = {}

    @functools.cached_property
    def _native(self) -> Any:
        module, self._manifest = build.load(build.target("cpu"))
        if module.flag() < 0:
            raise UsageError(f"{FLAG} as the native library read it", allowed="0, 1 or unset")
        allocate.on_poison(lambda byte: module.set_poison(-1 if byte is None else byte))
        return module

    def available(self) -> str | None:
        """A compiler and ninja are all it takes."""
        return toolchain.missing()

    def supports_batch_invariance(self) -> bool:
        """Yes, under the flag; csrc/scheduler pins it."""
        return True

    def tree(self, op: str) -> str:
        """That of the reference; in the free mode sums of up to 8 such chains, as many as M decides."""
        words = TREES.get(op, "no sum")
        if op in {"scaled_mm", "grouped_mm", "moe", "batched_moe"} and self._native.schedule() == "free":
            return f"free mode: 1 to 8 chunks of K, as many as M decides, added in order; each chunk: {words}"
        return words

    def source_hash(self) -> str:
        """Of csrc and the flags."""
        return build.target("cpu").source_hash()

    def probe(self) -> dict[str, object]:
        """As the library has read and found it."""
        native = self._native
        return {
            FLAG: int(native.flag()),
            "library": f"{self._manifest['folder']}/{self._manifest['library']}",
            "schedule": str(native.schedule()),
            "isa": str(native.isa()),
            "threads": _threads(),
            "build_seconds": self._manifest["seconds"],
            "compiler": self._manifest["compiler"],
        }

    def force_isa(self, name: str) -> None:
        """Use "avx512", "avx2" or "generic" from now on; "" is the best one again. All give the same bits.

        Raises:
            UsageError: this machine does not have it.
        """
        if not self._native.force_isa(name):
            raise UsageError(
                "an instruction set of this machine", found=repr(name), allowed=", ".join(self.isas())
            )

    def force_schedule(self, name: str) -> None:
        """Use the "invariant" or the "free" schedule whatever the flag says; "" gives it back to the flag.

        For tests and benchmarks that compare the two in one process; `probe` shows what is in use.
        """
        if not self._native.force_schedule(name):
            raise UsageError("a schedule of the cpu backend", found=repr(name), allowed="invariant, free")

    def isas(self) -> list[str]:
        """Instruction sets that this machine can run, best first."""
        return [name for name in ("avx512", "avx2", "generic") if self._native.has_isa(name)]

    def splits(self, m: int, n: int, k: int) -> int:
        """Into how many chunks the schedule in use splits K."""
        return int(self._native.splits(m, n, k))

    def quantise(self, q: Tensor, q_scale: Tensor, x: Tensor, global_scale: Tensor) -> None:
        """See the protocol."""
        self._quantise(q, q_scale, x, global_scale, _NO_ACTIVATION)

    def activation(self, y: Tensor, x: Tensor, kind: str) -> None:
        """See the protocol."""
        self._native.activation(
            y.data_ptr(), x.data_ptr(), x.stride(0), _DTYPES[x.dtype], *y.shape, _ACTIVATIONS[kind], _threads()
        )

    def activation_quantise(self, q: Tensor, q_scale: Tensor, x: Tensor, global_scale: Tensor, kind: str) -> None:
        """See the protocol."""
        self._quantise(q, q_scale, x, global_scale, _ACTIVATIONS[kind])

    def _quantise(
        self,
        q: Tensor,
        q_scale: Tensor,
        x: Tensor,
        global_scale: Tensor,
        activation: int,
        offsets: Tensor | None = None,
        scale_offsets: Tensor | None = None,
        a_map: Tensor | None = None,
        row_weight: Tensor | None = None,
    ) -> None:
        self._native.quantise(
            q.data_ptr(),
            q_scale.data_ptr(),
            q_scale.numel(),
            x.data_ptr(),
            x.stride(0),
            _DTYPES[x.dtype],
            q.shape[0],
            q.shape[1] * 2,
            global_scale.data_ptr(),
            global_scale.numel(),
            _address(offsets),
            _address(scale_offsets),
            _address(a_map),
            _address(row_weight),
            activation,
            _threads(),
        )

    def scaled_mm(self, d: Tensor, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, alpha: Tensor) -> None:
        """See the protocol."""
        n, half = b.shape
        self._native.scaled_mm(
            d.data_ptr(),
            d.stride(0),
            _DTYPES[d.dtype],
            a.data_ptr(),
            a.stride(0),
            a_scale.data_ptr(),
            b.data_ptr(),
            0,
            b.stride(0),
            b_scale.data_ptr(),
            a.shape[0],
            n,
            half * 2,
            alpha.data_ptr(),
            1,
            0,
            0,
            _threads(),
        )

    def prepared_bytes(self, n: int, k: int) -> int:
        """Panels of 16 columns, 160 bytes a K-block (csrc/cpu/kernels.h)."""
        return -(-n // 16) * (k // BLOCK) * 160

    def prepare(self, packed: Tensor, b: Tensor, b_scale: Tensor) -> None:
        """See the protocol."""
        n, half = b.shape
        self._native.prepare(
            packed.data_ptr(), b.data_ptr(), b.stride(0), b_scale.data_ptr(), n, half * 2, _threads()
        )

    def scaled_mm_prepared(self, d: Tensor, a: Tensor, packed: Tensor, a_scale: Tensor, alpha: Tensor) -> None:
        """See the protocol."""
        self._native.scaled_mm(
            d.data_ptr(),
            d.stride(0),
            _DTYPES[d.dtype],
            a.data_ptr(),
            a.stride(0),
            a_scale.data_ptr(),
            0,
            packed.data_ptr(),
            0,
            0,
            a.shape[0],
            d.shape[1],
            a.shape[1] * 2,
            alpha.data_ptr(),
            1,
            0,
            0,
            _threads(),
        )

    def route(self, weights: Tensor, ids: Tensor, logits: Tensor, renormalize: bool) -> None:
        """See the protocol."""
        self._native.route(
            weights.data_ptr(),
            ids.data_ptr(),
            logits.data_ptr(),
            logits.stride(0),
            _DTYPES[logits.dtype],
            *logits.shape,
            ids.shape[1],
            renormalize,
            _threads(),
        )

    def permute(self, a_map: Tensor, c_map: Tensor, offsets: Tensor, scale_offsets: Tensor, ids: Tensor) -> None:
        """See the protocol."""
        self._native.permute(
            a_map.data_ptr(),
            c_map.data_ptr(),
            offsets.data_ptr(),
            scale_offsets.data_ptr(),
            ids.data_ptr(),
            *ids.shape,
            offsets.shape[0] - 1,
        )

    def experts_quantise(
        self,
        q: Tensor,
        q_scale: Tensor,
        x: Tensor,
        global_scale: Tensor,
        offsets: Tensor,
        scale_offsets: Tensor,
        a_map: Tensor | None,
        row_weight: Tensor | None,
    ) -> None:
        """See the protocol."""
        self._quantise(q, q_scale, x, global_scale, _NO_ACTIVATION, offsets, scale_offsets, a_map, row_weight)

    def experts_activation_quantise(
        self,
        q: Tensor,
        q_scale: Tensor,
        x: Tensor,
        global_scale: Tensor,
        offsets: Tensor,
        scale_offsets: Tensor,
        kind: str,
    ) -> None:
        """See the protocol."""
        self._quantise(q, q_scale, x, global_scale, _ACTIVATIONS[kind], offsets, scale_offsets)

    def grouped_mm(
        self,
        d: Tensor,
        a: Tensor,
        b: Tensor,
        a_scale: Tensor,
        b_scale: Tensor,
        alphas: Tensor,
        offsets: Tensor,
        scale_offsets: Tensor,
    ) -> None:
        """See the protocol."""
        experts, n, half = b.shape
        self._native.scaled_mm(
            d.data_ptr(),
            d.stride(0),
            _DTYPES[d.dtype],
            a.data_ptr(),
            a.stride(0),
            a_scale.data_ptr(),
            b.data_ptr(),
            0,
            half,
            b_scale.data_ptr(),
            a.shape[0],
            n,
            half * 2,
            alphas.data_ptr(),
            experts,
            offsets.data_ptr(),
            scale_offsets.data_ptr(),
            _threads(),
        )

    def combine(self, out: Tensor, y: Tensor, weights: Tensor | None, c_map: Tensor) -> None:
        """See the protocol."""
        self._native.combine(
            out.data_ptr(),
            out.stride(0),
            y.data_ptr(),
            y.stride(0),
            _DTYPES[y.dtype],
            _address(weights),
            c_map.data_ptr(),
            *c_map.shape,
            y.shape[1],
            _threads(),
        )


def _address(t: Tensor | None) -> int:
    return 0 if t is None else t.data_ptr()
