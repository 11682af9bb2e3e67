"""`samebits list`: suites, their cases, the checks."""

from __future__ import annotations

import click

from samebits.errors import ExitCode


@click.command("list", short_help="List suites, cases or checks.")
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@click.option("--checks", is_flag=True, help="List the checks instead.")
@click.pass_context
def list_(context: click.Context, /, suites: tuple[str, ...], checks: bool) -> None:
    """List suites; with a SUITE, its cases; with --checks, the checks."""
    if checks:
        _checks()
        return
    from samebits.engine.locate import describe
    from samebits.session.suites import resolve

    modules = resolve(suites)
    described = describe(modules)
    broken = [m for m in modules if "error" in described[m]]
    for module in modules:
        found = described[module]
        if module in broken:
            click.echo(f"{module}\n  cannot be read: {found['error']}")
            continue
        cases = found["cases"]
        click.echo(f"{found['suite']:<16} {len(cases):>4} cases  {found['summary']}".rstrip())
        for case in cases if suites else ():
            limits = [f"M <= {case['max_batch']}"] if case.get("max_batch") else []
            limits += [f"checks {', '.join(case['checks'])}"] if case.get("checks") else []
            expect = "" if case["expect"] == "invariant" else case["expect"]
            click.echo(f"  {case['id']:<60} {expect:<12} {' · '.join(limits)}".rstrip())
    if suites and broken:
        codes = {described[m].get("class") for m in broken}
        context.exit(ExitCode.USAGE if codes == {"usage"} else ExitCode.INFRASTRUCTURE)


def _checks() -> None:
    from samebits.checks import all_checks

    for check in all_checks():
        click.echo(f"{check.id:<14} {check.title}")
