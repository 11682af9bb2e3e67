"""How long until a fresh process can run a case: a cold interpreter against a fork of a warm template.

    python harness/benchmarks/start_up.py [N]

Both end at the same event: the first case of a job has begun, in a process that has imported torch. The first
suite of an environment pays for its template. Prints a Markdown table: median of N (default 10).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from samebits.isolate.protocol import CaseStarted, Channel, Job
from samebits.isolate.supervisor import Supervisor


def entry(payload: Mapping[str, Any], channel: Channel) -> None:
    """What a worker runs: nothing, once torch is there."""
    import torch

    assert not torch.cuda.is_initialized()
    for case in channel.remaining:
        channel.start(case)
        channel.end(case)


def starts(supervisor: Supervisor, start: str) -> float:
    """Seconds from asking for a worker to its first case."""
    job = Job("start-up", "start_up:entry", {}, ("case",), env={"VLLM_BATCH_INVARIANT": "1"}, start=start)
    began = time.perf_counter()
    seconds = None
    for event in supervisor.run(job):
        if isinstance(event, CaseStarted):
            seconds = time.perf_counter() - began
    assert seconds is not None
    return seconds


def main(n: int) -> None:
    sys.path.append(str(Path(__file__).parent))  # where workers find `entry`
    with tempfile.TemporaryDirectory() as folder:
        with Supervisor(Path(folder) / "cold", start="spawn") as supervisor:
            starts(supervisor, "spawn")  # the first reads torch from the disk
            cold = [starts(supervisor, "spawn") for _ in range(n)]
        with Supervisor(Path(folder) / "warm") as supervisor:
            first = starts(supervisor, "template")
            warm = [starts(supervisor, "template") for _ in range(n)]
    print("| start | median | fastest | slowest | share of a cold start |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, seconds in (
        ("cold interpreter (`--samebits-start=spawn`)", cold),
        ("first suite of an environment (template included)", [first]),
        ("second and later suites (goal: at most 10 %)", warm),
    ):
        median = statistics.median(seconds)
        times = " | ".join(f"{1e3 * s:.1f} ms" for s in (median, min(seconds), max(seconds)))
        print(f"| {name} | {times} | {100 * median / statistics.median(cold):.1f} % |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
