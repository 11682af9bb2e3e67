"""Find suites and subjects by name, in this process or a fresh one.

The parent never imports a suite (it would import torch): `describe` asks a child process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

from samebits.engine.subject import Subject
from samebits.engine.suite import Case, Suite
from samebits.errors import InfrastructureError, UsageError

ENTRY_POINTS = "samebits.suites"


@dataclass(frozen=True)
class Ref:
    """How a fresh process finds a subject again: JSON-able."""

    module: str
    name: str
    """Attribute of the module: "suite" for a suite, or a callable, factory or Subject."""
    case: str | None = None
    seed: int = 0
    rows: tuple[str, ...] = ()
    """For a bare callable: "512:bfloat16" or "16x64:float32", one per row input."""
    env: Mapping[str, str] = field(default_factory=dict)

    def subject(self) -> Subject:
        """Build it."""
        if self.case is not None:
            return load_suite(self.module)[self.case].build(self.seed)
        return named_subject(self.module, self.name, self.rows, self.seed)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ref:
        """Inverse of `to_json`."""
        return cls(**{**data, "rows": tuple(data.get("rows", ()))})


def installed_suites() -> dict[str, str]:
    """name -> module of every suite that an installed package offers under the entry point `samebits.suites`."""
    return {e.name: e.value for e in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS))}


def load_suite(module: str) -> Suite:
    """The suite of a module (its first module-level `Suite`); imports it.

    Raises:
        UsageError: no such module, or no suite in it.
    """
    found = [v for v in vars(_import(module)).values() if isinstance(v, Suite)]
    if not found:
        raise UsageError(
            f"{module} declares no suite",
            allowed='a module-level samebits.Suite("name")',
            fix="samebits list",
        )
    return found[0]


def named_subject(module: str, name: str, rows: Sequence[str] = (), seed: int = 0) -> Subject:
    """`MODULE:NAME` as a subject: a Subject, a factory `f(seed)` returning one, or a callable with `rows`."""
    import torch

    target: Any = _import(module)
    for part in name.split("."):
        if not hasattr(target, part):
            public = [n for n in vars(target) if not n.startswith("_")] if hasattr(target, "__dict__") else []
            raise UsageError(
                f"{module}:{name}",
                found=f"{module} has no {part!r}",
                allowed=", ".join(public[:12]) or "nothing",
            )
        target = getattr(target, part)
    if isinstance(target, Subject):
        return target
    if rows:
        generator = torch.Generator().manual_seed(seed)
        return Subject(target, tuple(_parse_rows(r, generator) for r in rows), name=name)
    try:
        made = target(seed=seed)
    except TypeError as error:
        raise UsageError(
            f"{module}:{name} needs rows to run on",
            found=f"{type(target).__name__}; called as a factory it said: {error}",
            allowed="a Subject, a factory f(seed) -> Subject, or a kernel together with its rows",
            fix="--rows 512:bfloat16 (columns:dtype, once per row input)",
        ) from error
    if not isinstance(made, Subject):
        raise UsageError(
            f"{module}:{name} must be a factory of a Subject", found=type(made).__name__,
            fix="return samebits.Subject(fn, rows=(x,)), or give --rows",
        )  # fmt: skip
    return made


def _parse_rows(text: str, generator: Any, count: int = 32) -> Any:
    import torch

    shape, _, dtype = text.partition(":")
    kind = getattr(torch, dtype or "float32", None)
    try:
        dims = [int(n) for n in shape.split("x")]
    except ValueError:
        dims = []
    if not dims or not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise UsageError(
            "--rows describes one row of a row input",
            found=repr(text),
            allowed="COLUMNS[xCOLUMNS...]:DTYPE with a floating-point dtype, such as 512:bfloat16 or 8x64:float32",
        )
    return torch.randn(count, *dims, generator=generator).to(kind)


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            raise UsageError(
                f"cannot import {module}", found=str(error), fix="install the package, or run from its folder"
            ) from error
        raise


def case_json(module: str, case: Case) -> dict[str, Any]:
    """What the parent needs to know of a case."""
    return {
        "module": module,
        "suite": case.suite,
        "id": case.id,
        "expect": str(case.expect),
        "env": dict(case.env),
        "deadline": case.deadline,
        "checks": list(case.checks) if case.checks is not None else None,
        "max_batch": case.max_batch,
        "search": case.strategies is not None,
        "parameters": {k: str(v) for k, v in case.parameters.items()},
    }


def describe(modules: Sequence[str], env: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """module -> {"suite", "summary", "cases"} or {"error"}, read in one child process.

    Raises:
        InfrastructureError: the child could not be run or died.
    """
    done = subprocess.run(
        [sys.executable, "-m", "samebits.engine.locate", *modules],
        capture_output=True,
        text=True,
        check=False,
        env=None if env is None else dict(env),
    )
    if done.returncode:
        raise InfrastructureError(
            f"reading the suites failed with exit code {done.returncode}:\n{done.stderr[-2000:]}"
        )
    result: dict[str, dict[str, Any]] = json.loads(done.stdout.rsplit("\x1e", 1)[-1])
    return result


def _main(modules: Sequence[str]) -> None:
    # Suites may print while they are imported: the answer comes behind a separator of its own.
    out: dict[str, dict[str, Any]] = {}
    for module in modules:
        try:
            suite = load_suite(module)
            out[module] = {
                "suite": suite.name,
                "summary": suite.summary,
                "cases": [case_json(module, c) for c in suite],
            }
        except UsageError as error:
            out[module] = {"error": str(error), "class": "usage"}
        except Exception as error:  # a suite of somebody else's may fail in any way, and that is its own news
            out[module] = {"error": f"{type(error).__name__}: {error}", "class": "infrastructure"}
    sys.stdout.write("\x1e" + json.dumps(out))


if __name__ == "__main__":
    _main(sys.argv[1:])
