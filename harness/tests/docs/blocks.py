"""Code blocks of Markdown pages as tests.

A page is one session: its Python blocks share a namespace, its files and console blocks one empty folder.

    ```python                executed
    ```console               lines behind `$ ` run in bash; what they print must match what is written,
                             where `...` stands for anything and a blank block of output is not looked at
    <!-- file: NAME -->      the block that follows is written to NAME instead
    <!-- raises: TEXT -->    the Python block that follows must raise, and TEXT be in the exception's name
                             or words, up to the amount of white space
    <!-- skip: WHY -->       the block that follows is not executed, because ...

Blocks in other languages are only shown.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region

BLOCK = re.compile(
    r"^(?:<!-- (?P<verb>file|raises|skip): (?P<argument>.*?) -->\n+)?"
    r"(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
EXECUTED = ("python", "console")
DEADLINE = 180


@dataclass(frozen=True)
class Block:
    """One fenced block and what is to be done with it."""

    language: str
    body: str
    line: int
    verb: str | None
    argument: str


def blocks(text: str) -> Iterator[tuple[int, int, Block]]:
    """(start, end, block) of everything that is executed or written."""
    for found in BLOCK.finditer(text):
        verb = found["verb"]
        if verb == "skip" or (verb != "file" and found["language"] not in EXECUTED):
            continue
        indent = len(found["indent"])
        body = "".join(line[indent:] for line in found["body"].splitlines(keepends=True))
        line = text.count("\n", 0, found.start("body"))
        yield found.start(), found.end(), Block(found["language"], body, line, verb, found["argument"] or "")


def parse(document: Document) -> Iterator[Region]:
    """What sybil calls."""
    for start, end, block in blocks(document.text):
        yield Region(start, end, block, _evaluate)


def setup(namespace: dict[str, Any]) -> None:
    """An empty folder for the page; its modules are importable."""
    folder = Path(tempfile.mkdtemp(prefix="samebits-docs-"))
    namespace.update({"__name__": "page", "_folder": folder, "_modules": set(sys.modules)})
    sys.path.insert(0, str(folder))


def teardown(namespace: dict[str, Any]) -> None:
    """Leave no trace in the process that runs the other tests."""
    folder = namespace["_folder"]
    with contextlib.suppress(ValueError):
        sys.path.remove(str(folder))
    for name in set(sys.modules) - namespace["_modules"]:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    shutil.rmtree(folder, ignore_errors=True)


def _evaluate(example: Example) -> str | None:
    block, folder = example.parsed, example.namespace["_folder"]
    if block.verb == "file":
        path = folder / block.argument
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body)
        return None
    if block.language == "console":
        return console(block.body, folder)
    return _python(block, example.path, example.namespace)


def _python(block: Block, path: str, namespace: dict[str, Any]) -> str | None:
    code = compile("\n" * block.line + block.body, path, "exec")
    before = Path.cwd()
    os.chdir(namespace["_folder"])
    try:
        exec(code, namespace)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        if block.verb != "raises":
            return "".join(traceback.format_exception(error)[-6:])
        return None if block.argument in said else f"raised, without {block.argument!r}:\n{error}"
    finally:
        os.chdir(before)
    return f"did not raise {block.argument}" if block.verb == "raises" else None


def console(body: str, folder: Path) -> str | None:
    """Run a console block; what is wrong, or None."""
    status = 0
    for command, expected in _steps(body):
        done = subprocess.run(
            ["bash", "-c", f"(exit {status}); {command}"],
            cwd=folder, env=_environment(folder), text=True, timeout=DEADLINE, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        status = done.returncode
        if expected is None:
            if status:
                return f"$ {command}\nexit status {status}:\n{done.stdout}"
        elif not matches(expected, done.stdout):
            return f"$ {command}\nexpected:\n{expected}\nfound (exit status {status}):\n{done.stdout}"
    return None


def _steps(body: str) -> Iterator[tuple[str, str | None]]:
    """(command, expected output or None) of each `$ ` line; `> ` continues a command."""
    command: list[str] = []
    output: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            if command:
                yield "\n".join(command), "\n".join(output) or None
            command, output = [line[2:]], []
        elif line.startswith("> ") and not output:
            command.append(line[2:])
        else:
            output.append(line)
    if command:
        yield "\n".join(command), "\n".join(output) or None


def matches(expected: str, found: str) -> bool:
    """Whether `found` is `expected`, up to `...` and the amount of white space."""
    words = " ".join(expected.split())
    pattern = ".*".join(re.escape(part.strip()) for part in words.split("..."))
    return re.fullmatch(pattern, " ".join(found.split()), re.DOTALL) is not None


def _environment(folder: Path) -> dict[str, str]:
    """As in a fresh shell with the virtual environment active: nothing of this test run leaks into it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "SAMEBITS_", "COV_"))}
    env.pop("VLLM_BATCH_INVARIANT", None)
    env["PATH"] = str(Path(sys.executable).parent) + os.pathsep + env.get("PATH", "")
    env.update(NO_COLOR="1", TERM="dumb", COLUMNS="100")
    cache = os.environ.get("SAMEBITS_CACHE_DIR")  # kernels that were built once need not be built again
    if cache:
        env["SAMEBITS_CACHE_DIR"] = cache
    return env
