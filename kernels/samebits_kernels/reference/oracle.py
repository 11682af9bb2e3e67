"""float64 oracle, from the raw nibbles and scale bytes, in numpy and with its own tables.

Independent of the kernels on purpose: no torch arithmetic, no shared constants, rounding by search over all codes
instead of bit tricks. Quantisation is exact to the bit; sums are in float64 with a bound for the fp32 chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]

_MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_UNIT = 2.0**-24
_DTYPE_UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # half a unit in the last place of 1.0
_DTYPE_TINY = {torch.bfloat16: 2.0**-134, torch.float16: 2.0**-25}  # half the subnormal step


def _e4m3_table() -> F64:
    values = []
    for byte in range(256):
        exponent, mantissa = (byte >> 3) & 15, byte & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        value = float("nan") if exponent == 15 and mantissa == 7 else value
        values.append(-value if byte & 0x80 else value)
    return np.array(values)


E4M3 = _e4m3_table()


def _as_f32(x: Tensor) -> F32:
    result: F32 = x.detach().cpu().to(torch.float32).numpy()
    return result


def _bytes(x: Tensor) -> U8:
    result: U8 = x.detach().cpu().contiguous().view(torch.uint8).numpy()
    return result


def _nearest_even(values: F64, table: F64) -> npt.NDArray[np.int64]:
    """Index of the nearest entry of an ascending table; the even index on a tie."""
    above = np.clip(np.searchsorted(table, values), 1, len(table) - 1)
    below = above - 1
    up, down = table[above] - values, values - table[below]
    pick = np.where(up < down, above, below)
    result: npt.NDArray[np.int64] = np.where(up == down, np.where(above % 2 == 0, above, below), pick)
    return result


def unswizzle(buffer: Tensor, rows: int, columns: int) -> U8:
    """Scale bytes [rows, columns] of a swizzled buffer, by the offset formula."""
    flat = _bytes(buffer).reshape(-1)
    r, c = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    quads = -(-columns // 4)
    result: U8 = flat[((r // 128) * quads + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4]
    return result


def decode(data: Tensor, scale_bytes: U8) -> F64:
    """uint8 [R, K/2] and scale bytes [R, K/16] -> the exact values [R, K]."""
    packed = _bytes(data)
    codes = np.empty((packed.shape[0], packed.shape[1] * 2), np.uint8)
    codes[:, 0::2], codes[:, 1::2] = packed % 16, packed // 16
    values = np.where(codes >= 8, -1.0, 1.0) * _MAGNITUDES[codes % 8]
    result: F64 = values * np.repeat(E4M3[scale_bytes], 16, axis=1)
    return result


def quantise(x: Tensor, global_scale: float | F32) -> tuple[U8, U8]:
    """Rows bf16/fp16 [R, K]; one global scale, or one a row -> bytes [R, K/2] and plain scale bytes [R, K/16]."""
    rows, k = x.shape
    blocks = _as_f32(x).reshape(rows, k // 16, 16)
    scale = np.broadcast_to(np.asarray(global_scale, np.float32).reshape(-1, 1), (rows, 1))
    with np.errstate(all="ignore"):
        nan: npt.NDArray[np.bool_] = np.asarray(np.isnan(blocks).any(axis=2))
        in_nan = np.repeat(nan, 16, axis=1).reshape(blocks.shape)
        amax = np.where(nan, np.float32(0), np.abs(blocks).max(axis=2))
        wanted = np.minimum(scale * (amax / np.float32(6)), np.float32(448))
        code = _nearest_even(wanted.astype(np.float64), E4M3[:127])
        s = E4M3[code].astype(np.float32)
        r = np.where(s == 0, np.float32(0), scale / s).astype(np.float32)
        y: F32 = (np.where(in_nan, np.float32(0), blocks) * r[..., None]).astype(np.float32)
        q = _nearest_even(np.minimum(np.abs(y), 6).astype(np.float64), _MAGNITUDES)
        q = np.where(in_nan | np.isnan(y), 7, q + 8 * np.signbit(y))
    codes: U8 = q.astype(np.uint8).reshape(rows, k)
    packed: U8 = codes[:, 0::2] + np.uint8(16) * codes[:, 1::2]
    return packed, np.where(nan, 0x7F, code).astype(np.uint8)


@dataclass(frozen=True)
class Bounded:
    """The exact result and how far a correct kernel may be from it."""

    value: F64
    bound: F64

    def violations(self, actual: Tensor) -> int:
        """Elements of `actual` that are too far away, or finite where they should not be."""
        got = _as_f32(actual).astype(np.float64)
        limit = 65504.0 if actual.dtype == torch.float16 else 3.3895313892515355e38
        with np.errstate(all="ignore"):
            close = np.abs(got - self.value) <= self.bound
            overflow = (
                np.isinf(got) & (np.sign(got) == np.sign(self.value)) & (np.abs(self.value) + self.bound > limit)
            )
            both_nan = np.isnan(got) & np.isnan(self.value)
        return int((~(close | overflow | both_nan)).sum())


def scaled_mm(a: Tensor, a_scale: U8, b: Tensor, b_scale: U8, alpha: float, dtype: torch.dtype) -> Bounded:
    """[M, K] x [N, K] in float64, with plain scale bytes.

    The bound: K/16 leaves are exact; a sum of n fp32 terms in any order errs by at most (n-1)u/(1-(n-1)u) times
    the sum of their magnitudes (u = 2^-24); alpha rounds once more; the cast by half a unit of the result.
    """
    with np.errstate(all="ignore"):
        left, right = decode(a, a_scale), decode(b, b_scale)
        value = (left @ right.T) * float(np.float32(alpha))
        magnitude = (np.abs(left) @ np.abs(right).T) * abs(float(np.float32(alpha)))
        depth = max(left.shape[1] // 16 - 1, 0) * _UNIT
        error = magnitude * (depth / (1 - depth) + 2.0**-50) + (np.abs(value) + magnitude * depth) * _UNIT
        return Bounded(value, error + _cast_error(np.abs(value) + error, dtype))


def _cast_error(magnitude: F64, dtype: torch.dtype) -> F64:
    result: F64 = magnitude * _DTYPE_UNIT[dtype] + _DTYPE_TINY[dtype]
    return result


def silu(x: F64) -> F64:
    """x / (1 + e^-x)."""
    with np.errstate(all="ignore"):
        result: F64 = x / (1.0 + np.exp(-x))
    return result


def activation(x: Tensor, kind: str) -> Bounded:
    """[R, 2*I] -> [R, I]. fp32 inside: exp within 2 ulp, then four roundings; one cast."""
    both = _as_f32(x).astype(np.float64)
    gate, up = np.split(both, 2, axis=1)
    s = silu(gate)
    if kind == "swiglustep":
        s, up = np.minimum(s, 7.0), np.clip(up, -7.0, 7.0)
    value = s * up
    error = np.abs(value) * 10 * _UNIT + 2.0**-126  # a subnormal e^-x, or a subnormal product, keeps no more
    return Bounded(value, error + _cast_error(np.abs(value) + error, x.dtype))


def route(logits: Tensor, topk: int, renormalize: bool) -> tuple[F64, npt.NDArray[np.int64]]:
    """Softmax weights and choices, by descending weight, ties to the lower id."""
    x = _as_f32(logits).astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    weights = e / e.sum(axis=1, keepdims=True)
    ids = np.argsort(-weights, axis=1, kind="stable")[:, :topk]
    chosen = np.take_along_axis(weights, ids, axis=1)
    return (chosen / chosen.sum(axis=1, keepdims=True) if renormalize else chosen), ids


def combine(y: Tensor, weights: Tensor, c_map: Tensor) -> Bounded:
    """k products and k-1 sums in fp32, one cast."""
    rows = _as_f32(y).astype(np.float64)[c_map.numpy()]
    w = _as_f32(weights).astype(np.float64)[:, :, None]
    value, magnitude = (w * rows).sum(axis=1), np.abs(w * rows).sum(axis=1)
    error = magnitude * (w.shape[1] * _UNIT * 1.01 + 2.0**-50)
    return Bounded(value, error + _cast_error(np.abs(value) + error, y.dtype))


def _cast(x: F64, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(x.astype(np.float32)).to(dtype)


def moe(
    hidden: Tensor,
    router_logits: Tensor,
    weights: tuple[Tensor, ...],
    topk: int,
    *,
    renormalize: bool = False,
    activation_kind: str = "silu",
    apply_router_weight_on_input: bool = False,
) -> F64:
    """The layer token by token, float64 between the points where the definition rounds.

    `weights` as for `ops.moe`.

    A value that lies within fp32's error of a rounding boundary may land on the other side, and then moves by one
    code; compare the parts for a bound, and this for the wiring.
    """
    w13, s13, w2, s2, a1, alpha1, a2, alpha2 = weights
    dtype, (tokens, h), inter = hidden.dtype, hidden.shape, w2.shape[2] * 2
    chosen, ids = route(router_logits, topk, renormalize)
    out = np.zeros((tokens, h))
    decoded: dict[int, tuple[F64, F64]] = {}
    for m in range(tokens):
        for j in range(topk):
            e = int(ids[m, j])
            if e not in decoded:
                decoded[e] = (
                    decode(w13[e], unswizzle(s13[e], 2 * inter, h // 16)),
                    decode(w2[e], unswizzle(s2[e], h, inter // 16)),
                )
            first, second = decoded[e]
            row = hidden[m : m + 1]
            if apply_router_weight_on_input:
                row = _cast(_as_f32(row).astype(np.float64) * chosen[m, j], dtype)
            q, s = quantise(row, float(a1[e]))
            gate_up = _cast(decode(torch.from_numpy(q), s) @ first.T * float(alpha1[e]), dtype)
            act = _cast(activation(gate_up, activation_kind).value, dtype)
            q, s = quantise(act, float(a2[e]))
            y = _as_f32(_cast(decode(torch.from_numpy(q), s) @ second.T * float(alpha2[e]), dtype))
            out[m] += y[0].astype(np.float64) * (1.0 if apply_router_weight_on_input else chosen[m, j])
    return out
