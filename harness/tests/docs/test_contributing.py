"""A kernel author's first ten minutes, as CONTRIBUTING.md tells them: it lies in no folder that is collected."""

from __future__ import annotations

import sys
from pathlib import Path

from sybil import Document

blocks = sys.modules["samebits_docs_blocks"]
PAGE = Path(blocks.__file__).parents[3] / "CONTRIBUTING.md"


def test_every_block():
    document = Document.parse(str(PAGE), blocks.parse)
    blocks.setup(document.namespace)
    try:
        examples = list(document.examples())
        for example in examples:
            example.evaluate()
    finally:
        blocks.teardown(document.namespace)
    assert len(examples) == 4, "a kernel and its check, a suite and its run"
