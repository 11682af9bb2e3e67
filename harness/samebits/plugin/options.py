"""Options of the plugin, and what cannot be combined with it."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

import pytest

PROFILES = ("dev", "ci", "nightly")
GROUPS_WORK = hasattr(pytest.Item, "_nodeid")
"""pytest-xdist 3.8 renames items of a group through an attribute that pytest 9.2 no longer has."""


@dataclass(frozen=True)
class Settings:
    """What command line and ini decided."""

    start: str
    deadline: float
    seed: int
    max_batch: int | None
    budget: float
    isolate: bool
    profile: str
    why_off: str = ""

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """From a parsed configuration.

        Raises:
            pytest.UsageError: an ini value that is not allowed.
        """
        isolate, why = _choice(config, "isolate", ("auto", "off")) == "auto", "--samebits-isolate=off"
        if isolate and (config.getoption("usepdb") or config.getoption("trace")):
            isolate, why = False, "a debugger needs the terminal"
        return cls(
            start=_choice(config, "start", ("template", "spawn")),
            deadline=_number(config, "deadline", "300"),
            seed=int(_number(config, "seed", "0")),
            max_batch=int(_number(config, "max_batch", "0")) or None,
            budget=_number(config, "budget", "5"),
            isolate=isolate,
            profile=_choice(config, "profile", ("", *PROFILES)),
            why_off="" if isolate else why,
        )


SETTINGS = pytest.StashKey[Settings]()


def add(parser: pytest.Parser) -> None:
    """Declare them."""
    group = parser.getgroup("samebits", "batch invariance (samebits)")
    group.addoption(
        "--samebits-isolate", choices=("auto", "off"),
        help="auto: each suite in a fresh process (default); off: in this one, for debuggers and profilers",
    )  # fmt: skip
    group.addoption(
        "--samebits-start", choices=("template", "spawn"),
        help="template: processes forked from one that has imported torch (default); spawn: cold interpreters",
    )  # fmt: skip
    group.addoption(
        "--samebits-deadline", type=float, metavar="SECONDS",
        help="a test that takes longer counts as hung and is killed (default: 300)",
    )  # fmt: skip
    group.addoption("--samebits-seed", type=int, metavar="N", help="decides every random choice (default: 0)")
    group.addoption(
        "--samebits-max-batch", type=int, metavar="M", help="check batch sizes up to M (default: the check's own)"
    )
    group.addoption(
        "--samebits-budget", type=float, metavar="SECONDS",
        help="seconds that a check may spend on more batch sizes beyond its fixed plan (default: 5)",
    )  # fmt: skip
    group.addoption(
        "--samebits-profile", choices=PROFILES,
        help="how many examples Hypothesis draws (default: ci where CI is set, else dev)",
    )  # fmt: skip
    for name in ("isolate", "start", "deadline", "seed", "max_batch", "budget", "profile"):
        parser.addini(f"samebits_{name}", f"default of --samebits-{name.replace('_', '-')}", default="")


def header(config: pytest.Config, settings: Settings) -> str:
    """One line, and a second one where xdist may split suites."""
    lines = [f"samebits: each suite in a fresh process (start: {settings.start}), seed {settings.seed}"]
    if not settings.isolate:
        lines = [
            f"samebits: isolation is off ({settings.why_off}): tests run in this process,"
            " with its environment and without deadlines"
        ]
    together = ("no", "each", "loadfile", *(["loadgroup"] if GROUPS_WORK else []))
    if (mode := config.getoption("dist", "no")) not in together:
        lines.append(f"samebits: --dist {mode} may split a suite over workers; --dist loadfile does not")
    return "\n".join(lines)


def refuse_forked(
    config: pytest.Config, pytest_version: str | None = None, forked_version: str | None = None
) -> None:
    """Refuse `--forked` where it lies or fails. Tried: pytest 8.4, 9.0, 9.1, 9.2 with pytest-forked 1.6.0, 1.7.5.

    Raises:
        pytest.UsageError: with what to do.
    """
    if not config.getoption("forked", False):
        return
    running = pytest_version or pytest.__version__
    plugin = forked_version or _version("pytest-forked")
    if _numbers(running) < (9, 0) or _numbers(plugin) > (1, 7, 5):  # later ones have not been tried
        return
    what = (
        "every test fails: it cannot send the reports of this pytest"
        if _numbers(running) >= (9, 2)
        else "failing subtests are reported as passed"
    )
    raise pytest.UsageError(
        "--forked cannot be used here\n"
        f"  found:   pytest-forked {plugin} with pytest {running}, where {what}\n"
        "  allowed: --forked with pytest 8.4\n"
        "  do:      leave --forked out: tests of samebits run in fresh processes anyway; for others use"
        " pytest 8.4 or pytest-xdist"
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _numbers(version: str) -> tuple[int, ...]:
    parts = []
    for part in version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        parts.append(int(digits or 0))
    return tuple(parts)


def _raw(config: pytest.Config, name: str) -> object:
    given = config.getoption(f"samebits_{name}")
    return config.getini(f"samebits_{name}") if given is None else given


def _choice(config: pytest.Config, name: str, allowed: tuple[str, ...]) -> str:
    value = str(_raw(config, name)) or allowed[0]
    if value not in allowed:
        raise pytest.UsageError(
            f"samebits_{name}\n  found:   {value}\n  allowed: {', '.join(filter(None, allowed))}"
        )
    return value


def _number(config: pytest.Config, name: str, default: str) -> float:
    value = _raw(config, name)
    try:
        return float(default if value == "" else str(value))
    except ValueError:
        raise pytest.UsageError(f"samebits_{name}\n  found:   {value}\n  allowed: a number") from None
