"""CPU scaled MM against torch, side by side in one run: `python kernels/benchmarks/cpu_scaled_mm.py`.

Each contender gets enough copies of its weights that they do not fit the last-level cache, and walks through them,
as the layers of a model do (`--hot` uses one copy). Medians of interleaved rounds. The floor is the time that
reading the weights takes at the measured read bandwidth; "op" is our operator's whole cost on a tiny matrix.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

import samebits_kernels as sk


def cache_bytes() -> int:
    """Size of the last-level cache, or 32 MiB."""
    try:
        sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max(int(s[:-1]) << {"K": 10, "M": 20}[s[-1]] for s in sizes)
    except (OSError, ValueError, KeyError):
        return 32 << 20


def machine() -> str:
    """Processor, cores, torch."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"


def median(calls: dict[str, list[Callable[[], object]]], rounds: int) -> dict[str, float]:
    """Seconds of one call, contenders interleaved."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 2):
        for name, variants in calls.items():
            call = variants[i % len(variants)]
            start = time.perf_counter()
            call()
            if i >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def read_bandwidth() -> float:
    """Bytes a second that a sum over a large buffer reads, with all threads; the best of 5."""
    buffer = torch.ones(1 << 28, dtype=torch.uint8).view(torch.int64)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        buffer.amax()
        best = min(best, time.perf_counter() - start)
    return buffer.numel() * 8 / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", type=int, nargs="*", default=[1, 2, 4, 8, 16, 64, 256])
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--hot", action="store_true", help="one copy of the weights, warm in cache")
    parser.add_argument("--no-fp32", action="store_true")
    args = parser.parse_args()
    n, k = args.n, args.k

    print(machine())
    probe = sk.probe("cpu")
    print(f"cpu backend: {probe['isa']}, schedule {probe['schedule']}, built in {probe['build_seconds']} s")
    bandwidth = read_bandwidth()
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s, last-level cache {cache_bytes() >> 20} MiB")

    def copies(size: int) -> int:
        return 1 if args.hot else -(-2 * cache_bytes() // size) + 1

    weight = torch.randn(n, k, dtype=torch.bfloat16)
    scale = sk.global_scale_for(weight)
    b, b_scale = sk.quantise(weight, scale)
    size = n * k // 2 + n * k // 16
    public = [(b.clone(), b_scale.clone()) for _ in range(copies(size))]
    prepared = [sk.prepare(*w, backend="cpu") for w in public]
    bf16 = [weight.clone() for _ in range(copies(n * k * 2))]
    fp32 = [weight.float() for _ in range(0 if args.no_fp32 else copies(n * k * 4))]

    print(f"\nN = {n}, K = {k}, weights {'hot' if args.hot else 'cold'}; milliseconds, median of {args.rounds}")
    names = ["cpu prepared", "cpu public layout", "torch bf16"] + (["torch fp32"] if fp32 else [])
    print(f"{'M':>5}" + "".join(f"{name:>19}" for name in names) + f"{'nvfp4 floor':>13}{'bf16/ours':>11}")
    floor = prepared[0].packed.numel() / bandwidth * 1e3
    for m in args.m:
        x = torch.randn(m, k, dtype=torch.bfloat16)
        x_scale = sk.global_scale_for(x)
        a, a_scale = sk.quantise(x, x_scale)
        alpha = 1 / (x_scale * scale)
        calls: dict[str, list[Callable[[], object]]] = {
            "cpu prepared": [partial(sk.scaled_mm, a, p, a_scale, None, alpha) for p in prepared],
            "cpu public layout": [
                partial(sk.scaled_mm, a, w, a_scale, s, alpha, backend="cpu") for w, s in public
            ],
            "torch bf16": [partial(F.linear, x, w) for w in bf16],
        }
        if fp32:
            calls["torch fp32"] = [partial(F.linear, x.float(), w) for w in fp32]
        seconds = median(calls, args.rounds)
        row = "".join(f"{seconds[name] * 1e3:>19.3f}" for name in names)
        ratio = seconds["torch bf16"] / seconds["cpu prepared"]
        print(f"{m:>5}{row}{floor:>13.3f}{ratio:>11.2f}")

    a, a_scale = sk.quantise(torch.randn(1, 16, dtype=torch.bfloat16), torch.ones(1))
    tiny = sk.prepare(*sk.quantise(torch.randn(16, 16, dtype=torch.bfloat16), torch.ones(1)), backend="cpu")
    one, out = torch.ones(1), torch.empty(1, 16, dtype=torch.bfloat16)
    call = median({"op": [lambda: [sk.scaled_mm(a, tiny, a_scale, None, one, out=out) for _ in range(1000)]]}, 5)
    print(f"\nop overhead (M = 1, N = K = 16, out=): {call['op'] * 1e3:.1f} us a call")


if __name__ == "__main__":
    main()
