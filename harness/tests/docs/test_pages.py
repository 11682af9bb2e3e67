"""The documentation covers what there is, and nothing else."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import samebits
from samebits import checks
from samebits.cli.app import cli
from samebits.diagnose.cause import CAUSES
from samebits.errors import ExitCode
from samebits.report.summary import MEANING

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SECTIONS = (
    "What it does", "Why it matters", "Example", "What it covers", "Its power", "When it fails", "Control",
)  # fmt: skip


def read(name):
    return (DOCS / name).read_text()


def pages():
    yield from (p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))


def test_every_check_has_a_page_and_every_page_a_check():
    found = {p.stem for p in (DOCS / "checks").glob("*.md")} - {"index"}
    assert found == set(checks.IDS)


@pytest.mark.parametrize("name", checks.IDS)
def test_the_page_of_a_check(name):
    page, check = read(f"checks/{name}.md"), checks.get(name)
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert tuple(headings) == SECTIONS
    lines = page.splitlines()
    assert lines[0] == f"# {name}"
    assert lines[2] == f"{check.title}.", "the relation, as the check itself says it"
    assert f"`{check.control().name}`" in page.rpartition("## Control")[2]
    assert "```python" in page


def test_the_index_of_the_checks_has_their_order():
    rows = re.findall(r"^\| \[([\w-]+)\]", read("checks/index.md"), re.MULTILINE)
    assert tuple(rows) == checks.IDS


def test_every_command_and_option_is_in_the_reference():
    page = read("reference/cli.md")
    for name, command in cli.commands.items():
        section = re.search(rf"^## samebits {name}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, f"no section on samebits {name}"
        for option in command.params:
            for word in option.opts:
                if word.startswith("-"):
                    shared = "[shared](#shared-options)" in section[1] and f"`{word}" in page
                    assert f"`{word}" in section[1] or shared, f"samebits {name} {word}"


def test_no_option_of_the_reference_is_gone():
    known = {word for command in cli.commands.values() for option in command.params for word in option.opts}
    known |= {"--help", "-h", "--version"}
    assert set(re.findall(r"`(--?[a-z][a-z-]*)", read("reference/cli.md"))) <= known


def test_every_option_of_the_plugin_is_on_its_page():
    source = (ROOT / "harness/samebits/plugin/options.py").read_text()
    known = set(re.findall(r'"(--samebits-[\w-]+)"', source))
    assert known
    assert set(re.findall(r"^\| `(--samebits-[\w-]+)`", read("how-to/pytest.md"), re.MULTILINE)) == known


def test_every_exit_code_is_in_the_reference():
    rows = re.findall(r"^\| (\d) \| (.*?) \|", read("reference/exit-codes.md"), re.MULTILINE)
    assert dict(rows) == {str(int(code)): MEANING[code] for code in ExitCode}


def test_every_public_name_is_in_the_reference():
    page = read("reference/api.md")
    for name in samebits.__all__:
        assert re.search(rf"(samebits\.|`){name}\b", page), name


def test_every_field_of_the_evidence_is_in_the_reference():
    page = read("reference/evidence.md")
    schema = json.loads((ROOT / "harness/samebits/report/evidence.schema.json").read_text())
    for part in (schema, *(schema["$defs"][name] for name in ("suite", "case", "check", "finding"))):
        for field in part["properties"]:
            assert f"`{field}`" in page, field


def test_every_suite_is_in_the_reference():
    page = read("reference/suites.md")
    for suite in entry_points(group="samebits.suites"):
        if suite.value.startswith("samebits_suites."):
            assert f"## {suite.name}" in page, suite.name


def test_the_causes_are_in_the_order_in_which_they_are_tried():
    rows = re.findall(r"^\| ([a-z][\w-]*) \|", read("explanation/causes.md"), re.MULTILINE)
    assert rows == ["cause", *(c.id for c in CAUSES)]


def test_relative_links_lead_somewhere():
    missing = []
    for page in pages():
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not target.startswith(("http", "mailto")) and not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert not missing


def test_no_page_knows_the_machine_it_was_written_on():
    for page in pages():
        assert not re.search(r"/(work|root)/", page.read_text()), page
