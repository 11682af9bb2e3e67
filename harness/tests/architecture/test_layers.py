"""Imports point down only, and the modules that must stay light do."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import samebits

ROOT = Path(samebits.__file__).parents[2]
HARNESS = ROOT / "harness" / "samebits"
TREES = {
    "samebits": HARNESS,
    "samebits_kernels": ROOT / "kernels" / "samebits_kernels",
    "samebits_suites": ROOT / "suites" / "samebits_suites",
}

LAYERS = ("isolate", "inputs", "engine", "checks", "diagnose", "report", "session", "cli", "plugin")
"""From the bottom to the top; a module imports its own layer and those before it."""
BESIDE = {("plugin", "cli"), ("cli", "plugin")}
"""Front ends that do not know of each other."""
LEAVES = ("samebits.engine.bits", "samebits.engine.result")
"""Comparing bytes needs nothing else: any layer may do it, as long as these import no layer themselves."""
LIGHT = {"engine": {"torch", "pytest"}, "isolate": {"torch", "pytest"}, "checks": {"torch", "pytest"}}
STANDARD_ONLY = {"isolate": set(), "plugin": {"pytest", "_pytest", "pluggy", "samebits"}}
"""Layer -> what its modules may import at the top besides the standard library and themselves."""
BANNED = {
    "harness": "makes a second module object",
    "kernels": "shadows another package",
    "suites": "makes a second module object",
    "pkg_resources": "deprecated",
}
FORBIDDEN = {
    "samebits": {"samebits_kernels", "samebits_suites"},
    "samebits_kernels": {"samebits", "samebits_suites", "pytest"},
    "samebits_suites": {"pytest"},
}


def modules(package):
    return sorted(p for p in TREES[package].rglob("*.py"))


def name_of(path, package):
    parts = path.relative_to(TREES[package].parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path):
    return ast.parse(path.read_text(), filename=str(path))


def imports(path, *, top_only=False):
    """(line, absolute module) of the imports; those under TYPE_CHECKING cost nothing and are left out."""

    def walk(node, inside):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    yield from walk(other, inside)
                continue
            deferred = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import) and not (top_only and inside):
                yield from ((child.lineno, alias.name) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and not (top_only and inside):
                assert child.level == 0, f"{path}:{child.lineno}: imports are absolute"
                yield child.lineno, child.module
                # `from samebits import checks` names a layer, too.
                yield from ((child.lineno, f"{child.module}.{a.name}") for a in child.names)
            yield from walk(child, deferred)

    return list(walk(parsed(path), inside=False))


def layer(module):
    parts = module.split(".")
    return parts[1] if parts[0] == "samebits" and len(parts) > 1 and parts[1] in LAYERS else None


def leaf(module):
    return any(f"{module}.".startswith(f"{known}.") for known in LEAVES)


def test_every_package_of_the_harness_is_a_layer():
    found = {p.name for p in HARNESS.iterdir() if (p / "__init__.py").exists()}
    assert found == set(LAYERS)


def test_imports_point_down_only():
    wrong = []
    for path in modules("samebits"):
        mine = layer(name_of(path, "samebits"))
        if mine is None:
            continue
        for line, module in imports(path):
            theirs = layer(module)
            above = theirs is not None and not leaf(module) and LAYERS.index(theirs) > LAYERS.index(mine)
            if above or (mine, theirs) in BESIDE:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {mine} imports {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_imports_no_layer(name):
    path = HARNESS.joinpath(*name.split(".")[1:]).with_suffix(".py")
    assert not [module for _, module in imports(path) if layer(module) and not leaf(module)]


@pytest.mark.parametrize("package", TREES)
def test_packages_know_only_what_is_below_them(package):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in modules(package)
        for line, module in imports(path)
        if module.split(".")[0] in FORBIDDEN[package] | set(BANNED)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", LIGHT)
def test_light_layers_import_neither_torch_nor_pytest_at_the_top(name):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in modules("samebits")
        if layer(name_of(path, "samebits")) == name
        for line, module in imports(path, top_only=True)
        if module.split(".")[0] in LIGHT[name]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", STANDARD_ONLY)
def test_the_isolation_and_the_plugin_load_the_standard_library_only(name):
    allowed = STANDARD_ONLY[name] | set(sys.stdlib_module_names)

    def fine(module):
        return module.split(".")[0] in allowed or layer(module) == name or module.startswith("samebits.errors")

    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in modules("samebits")
        if layer(name_of(path, "samebits")) == name
        for line, module in imports(path, top_only=True)
        if not fine(module)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "code",
    [
        "import samebits",
        "import samebits.plugin",
        "import samebits.cli",
        "from samebits import Subject, Suite, Expect",
        "from samebits.checks import IDS",
        "import samebits.isolate.supervisor",
        "import samebits.session.suites",
    ],
)
def test_what_a_parent_imports_loads_no_torch(code):
    """Measured, not read: a parent without torch cannot touch CUDA."""
    probe = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    heavy = {"torch"} if "plugin" in code else {"torch", "pytest", "_pytest"}
    assert not heavy & set(done.stdout.split())


def test_the_reader_sees_an_import_that_points_up(tmp_path):
    path = tmp_path / "low.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from samebits.cli import app\n"
        "def f():\n    from samebits import report\n    import torch\n"
    )
    assert [m for _, m in imports(path) if layer(m)] == ["samebits.report"]
    assert not [m for _, m in imports(path, top_only=True) if m == "torch"]
