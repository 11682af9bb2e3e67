"""Where a command writes: results on standard output, or all but the JSON on standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100


def console(to_stderr: bool = False) -> Console:
    """A console that neither marks up nor highlights what it is given. Follows NO_COLOR; plain off a terminal."""
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    return Console(
        file=stream, markup=False, highlight=False, emoji=False, soft_wrap=not terminal,
        width=None if terminal else PLAIN_WIDTH,
    )  # fmt: skip
