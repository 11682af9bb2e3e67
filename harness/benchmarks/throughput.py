"""Throughput and overhead of the exhaustive check, beside the loop that people write by hand.

    python harness/benchmarks/throughput.py [--device cuda] [--max-batch 256] [--repeat 5]

For each subject, in one run and interleaved:
- loop: for a batch of M rows, one call per row at M = 1 and `torch.testing.assert_close(atol=0, rtol=0)`;
- check: `batch-size` over every (M, position) pair for M = 1..max_batch, setup and solo launches included;
- bare: the very launches of the check, nothing compared.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

from samebits import checks
from samebits.engine.bench import Bench
from samebits.engine.subject import Subject

Kernel = Callable[[torch.Tensor], torch.Tensor]
Row = tuple[str, Kernel, torch.Tensor]


def subjects(device: str) -> list[Row]:
    torch.manual_seed(0)
    rows: list[Row] = []
    for n, k, dtype in ((256, 256, torch.float32), (1024, 1024, torch.float32), (1024, 1024, torch.bfloat16)):
        w = torch.randn(n, k, device=device).to(dtype)
        x = torch.randn(16, k, device=device).to(dtype)
        rows.append((f"linear {n}x{k} {str(dtype)[6:]}", lambda x, w=w: F.linear(x, w), x))
    rows.append(
        ("layer_norm 4096 float32", lambda x: F.layer_norm(x, (4096,)), torch.randn(16, 4096, device=device))
    )
    rows.append(("silu 1024 float32", F.silu, torch.randn(16, 1024, device=device)))
    return rows


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.machine()


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(run: Callable[[], object], device: str) -> float:
    sync(device)
    start = time.perf_counter()
    run()
    sync(device)
    return time.perf_counter() - start


def loop(fn: Kernel, x: torch.Tensor, m: int) -> int:
    """The usual test: one batch, each row again alone. A difference does not stop it, to time whole loops."""
    batch = x[torch.arange(m, device=x.device) % x.shape[0]]
    y = fn(batch)
    for i in range(m):
        with contextlib.suppress(AssertionError):
            torch.testing.assert_close(y[i : i + 1], fn(batch[i : i + 1]), atol=0, rtol=0)
    return m


def measure(fn: Kernel, x: torch.Tensor, max_batch: int, device: str) -> tuple[float, float, float]:
    """Pairs per second of the loop and of the check, and the check's time over its bare launches."""
    loop(fn, x, 32)
    looped = 32 / timed(lambda: loop(fn, x, 32), device)
    bench = Bench(Subject(fn, (x,), derive=False, addends=x.shape[1]), max_batch=max_batch)
    _ = bench.sensitivity, bench.distinct
    results = []
    seconds = timed(lambda: results.append(checks.get("batch-size").run(bench)), device)

    def bare() -> None:
        for p in range(bench.probes):
            bench.run((bench.pool[0][p : p + 1],))
        for m in range(1, max_batch + 1):
            bench.run(bench.sweep(m)[1])

    return looped, results[0].pairs / seconds, seconds / timed(bare, device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    card = torch.cuda.get_device_name() if args.device == "cuda" else cpu_name()
    print(f"{card}, torch {torch.__version__}, {torch.get_num_threads()} threads, M = 1..{args.max_batch}\n")
    print("| subject | loop, pairs/s | check, pairs/s | ratio | check / bare launches |")
    print("| --- | --- | --- | --- | --- |")
    for name, fn, x in subjects(args.device):
        runs = [measure(fn, x, args.max_batch, args.device) for _ in range(args.repeat)]
        a, b, overhead = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {name} | {a:,.0f} | {b:,.0f} | {b / a:,.0f} | {overhead:.2f} |", flush=True)


if __name__ == "__main__":
    main()
