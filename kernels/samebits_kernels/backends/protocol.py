"""What a backend is. One file per backend beside this one, listed in `backends.registry`.

Every method writes into outputs that the ops layer has allocated and checked; inputs are already valid, so a
backend only computes. Shapes: M tokens, k choices a token, R = M*k slots (rows sorted by expert), E experts.
`offsets` int32 [E+1] are the first slots of the experts, `scale_offsets` int32 [E+1] the rows at which their
scales start in a swizzled buffer (multiples of 128).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Backend(Protocol):
    """The steps of the NVFP4 layer on one kind of machine."""

    name: str
    device: str
    """torch device type it computes on."""

    def available(self) -> str | None:
        """Why this machine cannot run the backend, or None. Cheap: compiles nothing."""

    def supports_batch_invariance(self) -> bool:
        """Whether a row's bits are promised not to depend on its batch under `VLLM_BATCH_INVARIANT=1`."""

    def tree(self, op: str) -> str:
        """The accumulation tree class of `op`'s sums, in words."""

    def source_hash(self) -> str:
        """Digest of everything that the bits come from: evidence binds to it."""

    def probe(self) -> dict[str, object]:
        """What the backend's own library has read and found: `VLLM_BATCH_INVARIANT`, instruction set, threads."""

    def quantise(self, q: Tensor, q_scale: Tensor, x: Tensor, global_scale: Tensor) -> None:
        """bf16/fp16 [M, K] and fp32 [1] -> uint8 [M, K/2] and swizzled e4m3."""

    def activation(self, y: Tensor, x: Tensor, kind: str) -> None:
        """[R, 2*I] -> [R, I] of the same dtype."""

    def activation_quantise(self, q: Tensor, q_scale: Tensor, x: Tensor, global_scale: Tensor, kind: str) -> None:
        """`quantise(activation(x))`: same bits as the two in turn."""

    def scaled_mm(self, d: Tensor, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, alpha: Tensor) -> None:
        """uint8 [M, K/2] x uint8 [N, K/2] -> bf16/fp16 [M, N]."""

    def prepared_bytes(self, n: int, k: int) -> int:
        """Size of prepared weights [N, K]."""

    def prepare(self, packed: Tensor, b: Tensor, b_scale: Tensor) -> None:
        """uint8 [N, K/2] and swizzled e4m3 -> uint8 [prepared_bytes(N, K)], in this backend's order."""

    def scaled_mm_prepared(self, d: Tensor, a: Tensor, packed: Tensor, a_scale: Tensor, alpha: Tensor) -> None:
        """`scaled_mm` with prepared weights: same bits."""

    def route(self, weights: Tensor, ids: Tensor, logits: Tensor, renormalize: bool) -> None:
        """[M, E] -> fp32 [M, k], int32 [M, k]."""

    def permute(self, a_map: Tensor, c_map: Tensor, offsets: Tensor, scale_offsets: Tensor, ids: Tensor) -> None:
        """Expert ids int32 [M, k] -> int32 [R], [M, k], [E+1], [E+1]."""

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
        """Slot r takes row `a_map[r]` of x (row r if None), its expert's global scale (fp32 [E]), and is first
        multiplied by `row_weight` fp32 [rows of x] with one rounding if that is given."""

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
        """`activation_quantise` with each slot's expert's global scale."""

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
        """Slots [R, K/2] x weights [E, N, K/2] -> [R, N], each slot with its expert's weights and alpha."""

    def combine(self, out: Tensor, y: Tensor, weights: Tensor | None, c_map: Tensor) -> None:
        """[R, H], fp32 [M, k], int32 [M, k] -> [M, H]; weights None: all one."""
