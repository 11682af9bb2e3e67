from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from samebits.cli.console import console
from samebits.cli.progress import LiveProgress
from samebits.session.suites import run_suites


def test_live_display_shows_the_case_and_ends_with_tables(fake: Any) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={})
    live = LiveProgress(screen)
    run_suites(["mine"], listener=live)
    live.close()
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    assert "3/3" in text
    assert "our kernels" in text
    assert text.count("invariant") == 2


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color, coloured in (("", True), ("1", False)):
        monkeypatch.setattr("sys.stdout", Terminal())
        monkeypatch.setenv("NO_COLOR", no_color)
        screen = console()
        screen.print("x", style="red")
        assert isinstance(screen.file, Terminal)
        assert ("\x1b[31m" in screen.file.getvalue()) is coloured
