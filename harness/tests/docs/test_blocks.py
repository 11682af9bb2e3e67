"""The runner of the documentation's blocks can fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

blocks = sys.modules["samebits_docs_blocks"]

PAGE = """
<!-- file: kernel.py -->
```python
answer = 42
```

```python
import kernel
```

<!-- skip: needs a GPU -->
```console
$ nvidia-smi
```

```toml
a = 1
```

<!-- raises: ZeroDivisionError -->
```python
1 / 0
```

```console
$ echo one
one
```
"""


def test_finds_what_is_executed_and_leaves_the_rest():
    found = [b for _, _, b in blocks.blocks(PAGE)]
    assert [(b.language, b.verb, b.argument) for b in found] == [
        ("python", "file", "kernel.py"),
        ("python", None, ""),
        ("python", "raises", "ZeroDivisionError"),
        ("console", None, ""),
    ]


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("one", "one\n"),
        ("a ... z", "a b\nc   z\n"),
        ("...", "anything"),
        ("exit 1: no", "exit 1:\n   no"),
        ("1.5 s ...", "1.5 s (seconds)"),
    ],
)
def test_output_matches(expected, found):
    assert blocks.matches(expected, found)


@pytest.mark.parametrize(
    ("expected", "found"),
    [("one", "two"), ("one", "one two"), ("a ... z", "a b"), ("1.5", "1x5"), ("...end", "the end, not")],
)
def test_output_does_not_match(expected, found):
    assert not blocks.matches(expected, found)


def test_console_tells_wrong_output_and_a_failed_command(tmp_path):
    assert blocks.console("$ echo one\none\n", tmp_path) is None
    assert "found (exit status 0)" in blocks.console("$ echo one\ntwo\n", tmp_path)
    assert "exit status 3" in blocks.console("$ exit 3\n", tmp_path)


def test_console_keeps_the_folder_and_the_exit_status(tmp_path):
    session = "$ echo hello > note\n$ cat note\nhello\n$ bash -c 'echo no; exit 4'\nno\n$ echo $?\n4\n"
    assert blocks.console(session, tmp_path) is None


def test_console_continues_a_command(tmp_path):
    assert blocks.console("$ echo one \\\n> two\none two\n", tmp_path) is None


@pytest.fixture
def page(pytester):
    """Runs a page as the repository's own are."""

    def run(text):
        root = Path(sys.modules["samebits_docs_blocks"].__file__).parents[3]
        pytester.makefile(".md", README=text)
        conftest = (root / "conftest.py").read_text()
        conftest = conftest.replace("Path(__file__).parent", f"Path({str(root)!r})", 1)
        pytester.makeconftest(conftest.replace("path=str(ROOT)", "path=str(Path(__file__).parent)"))
        return pytester.runpytest_subprocess("README.md", "-p", "no:cacheprovider")

    return run


def test_a_good_page_passes(page):
    page(PAGE).assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("answer = 42", "answer = ", "SyntaxError"),
        ("1 / 0", "1 / 1", "did not raise ZeroDivisionError"),
        ("ZeroDivisionError -->", "KeyError -->", "raised, without 'KeyError'"),
        ("one\none", "one\ntwo", "expected:"),
    ],
)
def test_a_wrong_page_fails(page, before, after, said):
    result = page(PAGE.replace(before, after))
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines([f"*{said}*"])
