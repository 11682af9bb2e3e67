"""Make docs/_static/terminal.svg from a real run: `.venv/bin/python docs/picture.py`.

The commands run on a pseudo-terminal, as a person would run them; what they print is drawn, nothing is edited
but the lines left out, which are marked.
"""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

TARGET = Path(__file__).parent / "_static" / "terminal.svg"
WIDTH = 108
COMMANDS = (
    (("samebits", "run", "quantise", "--case", "quantise-*", "--case", "dynamic_scale*"), 20),
    (("samebits", "check", "torch.nn.functional:silu", "--rows", "1007:float32", "--check", "duplicates"), 26),
)
"""(command, last lines shown). A few cases are enough for a picture."""


def record(command: tuple[str, ...], folder: Path) -> tuple[str, int]:
    """What a command prints on a terminal of `WIDTH` columns, with its colours; its exit code."""
    parent, child = pty.openpty()
    env = {**os.environ, "COLUMNS": str(WIDTH), "LINES": "200", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    env.pop("NO_COLOR", None)
    binary = str(Path(sys.executable).parent / command[0])
    process = subprocess.Popen(
        [binary, *command[1:]], stdin=child, stdout=child, stderr=child, env=env, cwd=folder, close_fds=True
    )
    os.close(child)
    chunks = []
    while True:
        ready, _, _ = select.select([parent], [], [], 0.2)
        if ready:
            try:
                data = os.read(parent, 65536)
            except OSError:  # the other side has closed
                break
            if not data:
                break
            chunks.append(data)
        elif process.poll() is not None:
            break
    os.close(parent)
    return b"".join(chunks).decode(errors="replace"), process.wait()


def screen(output: str) -> list[Text]:
    """The lines that remain once cursor movements have been carried out."""
    lines: list[str] = [""]
    row = 0
    for piece in output.replace("\r\n", "\n").replace("\x1b[?25l", "").replace("\x1b[?25h", "").split("\n"):
        part = piece
        while "\x1b[1A" in part:  # the live display moves up and writes over itself
            before, _, part = part.partition("\x1b[1A")
            lines[row] = _overwrite(lines[row], before)
            row = max(0, row - 1)
        lines[row] = _overwrite(lines[row], part)
        row += 1
        if row == len(lines):
            lines.append("")
    return [Text.from_ansi(line) for line in lines]


def _overwrite(line: str, part: str) -> str:
    kept = part.rpartition("\r")[2] if "\r" in part else line + part
    return kept.rpartition("\x1b[2K")[2]


def main() -> None:
    """Run, draw, write."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: PTH123, SIM115
    with tempfile.TemporaryDirectory() as name:
        for command, shown in COMMANDS:
            output, code = record(command, Path(name))
            lines = screen(output)
            while lines and not lines[-1].plain.strip():
                lines.pop()
            console.print(Text(f"$ {shlex.join(command)}", style="bold"))
            if len(lines) > shown:
                console.print(Text(f"  ... {len(lines) - shown} lines ...", style="dim"))
            for line in lines[-shown:]:
                console.print(line, soft_wrap=True)
            console.print()
            print(f"exit {code}: {shlex.join(command)}, {len(lines)} lines")
    TARGET.write_text(console.export_svg(title="samebits", theme=DIMMED_MONOKAI))


if __name__ == "__main__":
    main()
