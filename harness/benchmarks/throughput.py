"""Throughput and overhead of the exhaustive check, beside the loop that people write by hand.

    python harness/benchmarks/throughput.py [--device cuda] [--max-batch 256] [--repeat 5]

For each subject, in one run and interleaved:
- loop: for a batch of M rows, one call per row at M = 1 and `torch.testing.assert_close(atol=0, rtol=0)`;
- check: `batch-size` over every (M, position) pair for M = 1..max_batch, setup and solo launches included;
- bare: the very launches of the check, nothing compared.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from samebits import checks
from samebits.engine.bench import Bench
from samebits.engine.subject import Subject

Row = tuple[str, Callable[[torch.Tensor], torch.Tensor], torch.Tensor]


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


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(run: Callable[[], object], device: str) -> float:
    sync(device)
    start = time.perf_counter()
    run()
    sync(device)
    return time.perf_counter() - start


def loop(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, m: int) -> int:
    """The usual test: one batch, each row again alone. Differences are counted, not raised, so the loop runs on."""
    batch = x[torch.arange(m, device=x.device) % x.shape[0]]
    y = fn(batch)
    for i in range(m):
        try:
            torch.testing.assert_close(y[i : i + 1], fn(batch[i : i + 1]), atol=0, rtol=0)
        except AssertionError:
            pass
    return m


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    card = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    print(f"{card}, torch {torch.__version__}, {torch.get_num_threads()} threads, M = 1..{args.max_batch}\n")
    print("| subject | loop, pairs/s | check, pairs/s | ratio | check / bare launches |")
    print("| --- | --- | --- | --- | --- |")
    check = checks.get("batch-size")
    for name, fn, x in subjects(args.device):
        subject = Subject(fn, (x,), derive=False, addends=x.shape[1])
        rates, pairs_per_s, overhead = [], [], []
        for _ in range(args.repeat):
            count = loop(fn, x, 32)
            rates.append(count / timed(lambda: loop(fn, x, 32), args.device))
            bench = Bench(subject, max_batch=args.max_batch)
            _ = bench.sensitivity, bench.distinct
            pairs = 0

            def run() -> None:
                nonlocal pairs
                pairs = check.run(bench).pairs

            seconds = timed(run, args.device)
            pairs_per_s.append(pairs / seconds)

            def bare() -> None:
                for p in range(bench.probes):
                    bench.run((bench.pool[0][p : p + 1],))
                for m in range(1, args.max_batch + 1):
                    bench.run(bench.sweep(m)[1])

            overhead.append(seconds / timed(bare, args.device))
        a, b = statistics.median(rates), statistics.median(pairs_per_s)
        print(f"| {name} | {a:,.0f} | {b:,.0f} | {b / a:,.0f} | {statistics.median(overhead):.2f} |", flush=True)


if __name__ == "__main__":
    main()
