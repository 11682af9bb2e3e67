"""What batch invariance costs on the CPU: the free and the invariant schedule, interleaved in one process.

`python kernels/benchmarks/cpu_schedules.py`. The free schedule splits K when the output has few tiles; it can only
win where threads would otherwise idle. Median microseconds, prepared weights, warm.
"""

from __future__ import annotations

import statistics
import time

import torch

import samebits_kernels as sk
from samebits_kernels.backends.cpu import CpuBackend

SHAPES = [
    (1, 32, 16384),
    (1, 32, 65536),
    (1, 64, 65536),
    (8, 32, 65536),
    (64, 32, 16384),
    (8, 32, 262144),
    (1, 352, 3968),
    (1, 4096, 4096),
    (64, 4096, 4096),
]


def main() -> None:
    cpu = sk.resolve("cpu")
    assert isinstance(cpu, CpuBackend)
    print(f"{sk.probe('cpu')['isa']}, {torch.get_num_threads()} threads")
    print(f"{'M':>5}{'N':>6}{'K':>7}{'splits':>8}{'invariant us':>14}{'free us':>10}{'invariant/free':>16}")
    for m, n, k in SHAPES:
        a = torch.randint(0, 256, (m, k // 2), dtype=torch.uint8)
        b = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
        a_scale, b_scale = (sk.swizzle_scales(torch.full((r, k // 16), 0x38, dtype=torch.uint8)) for r in (m, n))
        weights = sk.prepare(b, b_scale, backend="cpu")
        alpha = torch.ones(1)
        out = torch.empty(m, n, dtype=torch.bfloat16)
        times: dict[str, list[float]] = {"invariant": [], "free": []}
        for _ in range(10):
            for name, seconds in times.items():
                cpu.force_schedule(name)
                for i in range(12):  # in a row, so that threads are awake, as between the layers of a model
                    start = time.perf_counter()
                    sk.scaled_mm(a, weights, a_scale, None, alpha, out=out)
                    if i >= 4:
                        seconds.append(time.perf_counter() - start)
        cpu.force_schedule("free")
        invariant, free = (statistics.median(t) * 1e6 for t in times.values())
        print(
            f"{m:>5}{n:>6}{k:>7}{cpu.splits(m, n, k):>8}{invariant:>14.1f}{free:>10.1f}{invariant / free:>16.2f}"
        )
    cpu.force_schedule("")


if __name__ == "__main__":
    main()
