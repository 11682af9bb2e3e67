"""Shared by every test in the repository: the code blocks of the documentation are tests, too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from sybil import Sybil

ROOT = Path(__file__).parent
pytest_plugins = ("pytester",)


def _blocks():
    """harness/tests/docs/blocks.py: tests are in no package, so it has no name to be imported by."""
    spec = importlib.util.spec_from_file_location("samebits_docs_blocks", ROOT / "harness/tests/docs/blocks.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


blocks = _blocks()
pytest_collect_file = Sybil(
    parsers=[blocks.parse],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/**/*.md"],
    excludes=["docs/_build/**"],
    path=str(ROOT),
    setup=blocks.setup,
    teardown=blocks.teardown,
).pytest()
