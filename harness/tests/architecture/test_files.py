"""Files stay short, names say what they hold, and nothing knows the machine it was written on."""

from __future__ import annotations

import re
import statistics
import subprocess
from pathlib import Path

import pytest

import samebits

ROOT = Path(samebits.__file__).parents[2]
SOURCES = ("harness", "kernels", "suites", "docs", "ci")
LIMITS = {".py": 600, ".cu": 400, ".cuh": 400, ".h": 400, ".cpp": 600}
MEDIAN = 200


def files(*suffixes):
    """Tracked ones, or all where there is no git (an unpacked archive)."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = done.stdout.splitlines() if done.returncode == 0 else []
    found = [ROOT / n for n in names] or [p for s in SOURCES for p in (ROOT / s).rglob("*")]
    return [p for p in found if p.is_file() and p.suffix in suffixes]


def lines(path):
    return len(path.read_text().splitlines())


def test_no_file_is_too_long():
    long = [f"{p.relative_to(ROOT)}: {lines(p)}" for p in files(*LIMITS) if lines(p) > LIMITS[p.suffix]]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("tree", ["harness/samebits", "kernels/samebits_kernels", "suites/samebits_suites"])
def test_a_file_is_about_one_thing(tree):
    lengths = [lines(p) for p in files(".py") if p.is_relative_to(ROOT / tree)]
    assert statistics.median(lengths) <= MEDIAN


def test_every_module_says_what_it_is_and_postpones_annotations():
    missing = []
    for path in files(".py"):
        text = path.read_text()
        packaged = any(part.startswith("samebits") for part in path.relative_to(ROOT).parts)
        if packaged and text.strip() and not text.lstrip().startswith(('"""', 'r"""')):
            missing.append(f"{path.relative_to(ROOT)}: no docstring")
        if (
            re.search(r"^(?:def|class) .*", text, re.MULTILINE)
            and "from __future__ import annotations" not in text
        ):
            missing.append(f"{path.relative_to(ROOT)}: no `from __future__ import annotations`")
    assert not missing, "\n".join(missing)


def test_tests_are_in_no_package():
    assert not [p for p in files(".py") if p.name == "__init__.py" and "tests" in p.parts]


def test_no_file_knows_the_machine_it_was_written_on():
    pattern = re.compile(r"(?<![\w.])/(?:work|root)/\w")
    known = [
        str(p.relative_to(ROOT))
        for p in files(".py", ".md", ".toml", ".yml", ".sh", ".h", ".cpp", ".cu", ".cuh", ".txt")
        if p != Path(__file__) and pattern.search(p.read_text())
    ]
    assert not known


def test_no_unfinished_business():
    pattern = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    others = [p for p in files(*LIMITS) if p != Path(__file__)]
    left = [str(p.relative_to(ROOT)) for p in others if pattern.search(p.read_text())]
    assert not left
