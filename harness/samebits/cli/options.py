"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from samebits.session.suites import Options

F = TypeVar("F", bound=Callable[..., Any])

_RUNNING = (
    click.option("--check", "checks", multiple=True, metavar="ID", help="Only this check; may be repeated."),
    click.option("--seed", type=int, default=0, show_default=True, help="Decides inputs and every random choice."),
    click.option(
        "--max-batch", type=click.IntRange(min=1), metavar="M", help="Check every batch size up to M."
    ),
    click.option(
        "--budget", type=click.FloatRange(min=0), default=5.0, show_default=True, metavar="SECONDS",
        help="Time that one check of a case may spend beyond its fixed plan.",
    ),
    click.option(
        "--deadline", type=click.FloatRange(min=0, min_open=True), default=300.0, show_default=True,
        metavar="SECONDS", help="A case that takes longer counts as hung.",
    ),
    click.option(
        "--start", type=click.Choice(["template", "spawn"]), default="template", show_default=True,
        help="Fork workers from a warm process, or start each interpreter cold.",
    ),
    click.option(
        "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
        help="Folder for the evidence of runs.  [default: .samebits]",
    ),
    click.option("--no-html", is_flag=True, help="Write no report.html."),
    click.option("--json", "as_json", is_flag=True, help="Print the evidence as JSON on standard output."),
    click.option("-q", "--quiet", is_flag=True, help="Only failures and the summary."),
)  # fmt: skip


def running(command: F) -> F:
    """Options of every command that runs checks."""
    for option in reversed(_RUNNING):
        command = option(command)
    return command


def to_options(**values: Any) -> Options:
    """The options of a run from what click has parsed.

    Raises:
        UsageError: an unknown check id.
    """
    if values.get("checks"):
        from samebits import checks as registry

        for check in values["checks"]:
            registry.get(check)
    kept: dict[str, Any] = {k: v for k, v in values.items() if k in Options.__dataclass_fields__}
    return Options(**kept)
