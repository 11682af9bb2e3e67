"""`samebits doctor`: what this machine can build and run, and why not."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from samebits.errors import ExitCode
from samebits.report import environment

FORKED_WORKS_BELOW = (9, 0)
"""pytest-forked loses or fails tests from here on (docs: isolation)."""
LITTLE_SPACE = 1 << 30

BACKENDS = """
import json, sys
from samebits_kernels.backends import registry
rows = [[b.name, b.device, b.available(), b.supports_batch_invariance()] for b in registry.backends()]
sys.stdout.write("\\x1e" + json.dumps(rows))
"""


@dataclass(frozen=True)
class Line:
    """One thing looked at."""

    name: str
    state: str
    """ok; missing: some suites are skipped; bad: samebits cannot work."""
    text: str


@click.command(short_help="What this machine can build and run, and why not.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, /, as_json: bool) -> None:
    """Show card, driver, toolkit, compilers, and which backends can build and run here, or why not."""
    lines = list(examine())
    if as_json:
        click.echo(json.dumps([vars(line) for line in lines], indent=1))
    else:
        from rich.text import Text

        from samebits.cli.console import console

        style = {"ok": "green", "missing": "yellow", "bad": "bold red"}
        screen = console()
        for line in lines:
            row = Text.assemble(f"{line.name:<18}", (f"{line.state:<9}", style[line.state]), line.text)
            screen.print(row, soft_wrap=True)
    context.exit(ExitCode.INFRASTRUCTURE if any(line.state == "bad" for line in lines) else ExitCode.INVARIANT)


def examine() -> Iterator[Line]:
    """Every line, in the order of reading."""
    yield Line("python", "ok", f"{platform.python_version()} at {sys.executable}")
    torch = environment.version("torch")
    yield Line("torch", "ok" if torch else "bad", torch or "not installed: pip install torch")
    yield from _cards()
    nvcc = environment.nvcc_path()
    release = environment.toolkit()
    yield Line("nvcc", "ok" if release else "missing", f"{release} at {nvcc}" if release else "no CUDA toolkit")
    yield _compiler()
    yield from _backends()
    yield from _plugins()
    yield from _places()


def _cards() -> Iterator[Line]:
    driver, cards, why = environment.cards_and_driver()
    if not cards:
        yield Line("card", "missing", f"{why}: GPU suites are skipped")
        return
    yield Line("driver", "ok", str(driver))
    for card in cards:
        memory = f"{card['memory'] / (1 << 30):.0f} GiB"
        yield Line(f"card {card['index']}", "ok", f"{card['name']}, {card['arch']}, {memory}")


def _compiler() -> Line:
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            first = (environment.said([path, "--version"]).splitlines() or ["does not answer to --version"])[0]
            return Line("C++ compiler", "ok", f"{path}: {first}")
    return Line("C++ compiler", "missing", "none on PATH: only the reference backend runs (apt install g++)")


def _backends() -> Iterator[Line]:
    if importlib.util.find_spec("samebits_kernels") is None:
        yield Line("kernels", "missing", "samebits_kernels is not installed")
        return
    # In a child: listing them imports torch, and asking them may touch CUDA.
    done = subprocess.run(
        [sys.executable, "-c", BACKENDS], capture_output=True, text=True, check=False, timeout=120
    )
    try:
        rows = json.loads(done.stdout.rpartition("\x1e")[2])
    except json.JSONDecodeError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield Line("kernels", "bad", f"samebits_kernels cannot be imported: {last}")
        return
    for name, device, why_not, invariant in rows:
        promise = "batch invariant" if invariant else "makes no promise of batch invariance"
        text = f"computes on {device}, {promise}" if why_not is None else f"cannot run: {why_not}"
        yield Line(f"backend {name}", "ok" if why_not is None else "missing", text)


def _plugins() -> Iterator[Line]:
    pytest, forked, xdist = (environment.version(p) for p in ("pytest", "pytest-forked", "pytest-xdist"))
    yield Line("pytest", "ok" if pytest else "missing", pytest or "not installed: the command line works without")
    if xdist:
        yield Line("pytest-xdist", "ok", f"{xdist}: a suite is never split over workers")
    if forked:
        works = pytest is not None and tuple(int(n) for n in pytest.split(".")[:2]) < FORKED_WORKS_BELOW
        refused = f"{forked}: --forked is refused with pytest {pytest}, where it loses or misreports tests"
        yield Line("pytest-forked", "ok" if works else "missing", forked if works else refused)


def _places() -> Iterator[Line]:
    import platformdirs

    named = os.environ.get("SAMEBITS_CACHE_DIR")
    cache = Path(named) if named else Path(platformdirs.user_cache_dir("samebits"))
    for name, place in (("cache", cache), ("evidence", Path.cwd() / ".samebits")):
        there = next(p for p in (place, *place.parents) if p.exists())
        free = shutil.disk_usage(there).free
        text = f"{place}, {free / (1 << 30):.1f} GiB free"
        if not os.access(there, os.W_OK):
            yield Line(name, "bad", f"{place} cannot be written")
        elif free < LITTLE_SPACE:
            yield Line(name, "bad" if free < LITTLE_SPACE >> 6 else "missing", f"{text}: very little")
        else:
            yield Line(name, "ok", text)
    pattern = Path("/proc/sys/kernel/core_pattern")
    if pattern.exists():
        yield Line("core dumps", "ok", f"core_pattern {pattern.read_text().strip()}")
