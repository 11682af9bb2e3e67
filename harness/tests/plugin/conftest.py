from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

HELP = """
import os
from pathlib import Path


def note(word):
    with Path(__file__).with_name("notes").open("a") as file:
        file.write(f"{word} {os.getpid()}\\n")
"""


class Project:
    """A mini project; only the plugins that a test names are loaded."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester, self.path = pytester, pytester.path
        self.write("helping.py", HELP)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(textwrap.dedent(text))

    def arguments(self, *args: str) -> list[str]:
        return ["-p", "samebits.plugin", *args]

    def run(self, *args: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess(*self.arguments(*args), timeout=100)

    def notes(self) -> list[tuple[str, int]]:
        """(word, pid) of every `note(word)` so far."""
        file = self.path / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(word, int(pid)) for word, pid in (line.rsplit(" ", 1) for line in lines)]

    def words(self) -> list[str]:
        return [word for word, _ in self.notes()]

    def junit(self, name: str = "junit.xml") -> dict[str, ElementTree.Element]:
        """Test name -> its element."""
        return {case.attrib["name"]: case for case in ElementTree.parse(self.path / name).iter("testcase")}


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("VLLM_BATCH_INVARIANT", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    return Project(pytester)


@pytest.fixture
def files() -> Callable[[Path], list[str]]:
    return lambda folder: sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))
