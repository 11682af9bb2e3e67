"""`samebits run`: suites, each in fresh processes."""

from __future__ import annotations

from typing import Any

import click

from samebits.cli.finish import perform
from samebits.cli.options import running, to_options


@click.command(short_help="Run suites, each in a fresh process.")
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only cases whose id matches; repeatable.")
@click.option("--strict", is_flag=True, help="A divergence of a kernel that is only observed fails the run, too.")
@running
@click.pass_context
def run(context: click.Context, /, suites: tuple[str, ...], **values: Any) -> None:
    """Run suites, each in a fresh process: installed names or importable modules; by default all installed."""
    from samebits.session.suites import run_suites

    options = to_options(**values)
    code = perform(
        lambda listener: run_suites(suites, options, listener),
        as_json=values["as_json"],
        quiet=values["quiet"],
        no_html=values["no_html"],
    )
    context.exit(code)
