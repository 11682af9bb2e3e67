"""The command line: `samebits run`, `check`, `list`, `replay`, `doctor`. Imports neither torch nor pytest."""

from __future__ import annotations

from samebits.cli.app import main

__all__ = ["main"]
