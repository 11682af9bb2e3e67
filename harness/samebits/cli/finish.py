"""What every running command does with its evidence: show failures, sum up, write the report, exit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from samebits.cli.console import console
from samebits.cli.progress import LiveProgress, PlainProgress
from samebits.errors import ExitCode, InfrastructureError
from samebits.report.environment import machine_words
from samebits.report.evidence import Evidence, write_atomically
from samebits.report.summary import MEANING, summary
from samebits.report.terminal import render_case, render_suite_problem
from samebits.session.suites import Listener


def perform(
    start: Callable[[Listener], Evidence],
    *,
    as_json: bool,
    quiet: bool,
    no_html: bool,
    show_all: bool = False,
    replayed: bool = False,
) -> int:
    """Run with a display, then report.

    Args:
        start: runs and returns the evidence.
        as_json: the evidence goes to standard output and everything else to standard error.
        quiet: only failures and the summary.
        no_html: write no report.html.
        show_all: show every case in full, not only failures (for a single subject).
        replayed: the question is whether the finding shows again, so a control that diverges is exit 1.
    """
    screen = console(to_stderr=as_json)
    with _display(screen.is_terminal, quiet, screen) as listener:
        evidence = start(listener)
    run = evidence.run
    machine = machine_words(dict(evidence.environment))
    blocks = [
        render_case(suite, case, machine)
        for suite in run.suites.values()
        for case in suite.cases.values()
        if case.verdict.label != "not run" and (show_all or not case.verdict.ok)
    ]
    blocks += [text for suite in run.suites.values() if (text := render_suite_problem(suite))]
    if not quiet:
        screen.print()
    for block in filter(None, blocks):
        screen.print(block, end="\n\n", soft_wrap=True)

    if not no_html:
        _write_html(evidence)
    code = evidence.exit_code
    if replayed and any(c.result.findings for c in run.cases):
        code = ExitCode.DIVERGENCE
    screen.print(summary(run), style="" if code else "green", soft_wrap=True)
    if evidence.problem:
        screen.print(f"error: {evidence.problem}", soft_wrap=True)
    else:
        files = [evidence.path] + ([] if no_html else [evidence.directory / "report.html"])
        screen.print(f"evidence: {', '.join(_here(f) for f in files)}", soft_wrap=True)
    if not (quiet or replayed) or code:
        meaning = "interrupted" if run.interrupted and code is ExitCode.INFRASTRUCTURE else MEANING[code]
        screen.print(f"exit {int(code)}: {meaning}", soft_wrap=True)
    if as_json:
        import json

        click.echo(json.dumps(evidence.document(), indent=1))
    return int(code)


@contextlib.contextmanager
def _display(terminal: bool, quiet: bool, screen: object) -> Iterator[Listener]:
    from rich.console import Console

    assert isinstance(screen, Console)
    if quiet:
        yield Listener()
    elif terminal:
        live = LiveProgress(screen)
        try:
            yield live
        finally:
            live.close()
    else:
        yield PlainProgress(screen)


def _write_html(evidence: Evidence) -> None:
    from samebits.report.html import render_html

    if evidence.problem:
        return
    try:
        write_atomically(evidence.directory / "report.html", render_html(evidence.document()))
    except InfrastructureError as error:
        evidence.problem = str(error)


def _here(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
