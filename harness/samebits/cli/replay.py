"""`samebits replay`: one finding again, from the id in its report."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import Any

import click

from samebits.cli.check import split
from samebits.cli.console import console
from samebits.cli.finish import perform
from samebits.cli.options import to_options
from samebits.errors import UsageError

FORM = "SUITE::CASE::CHECK@SEED or MODULE:NAME::CHECK@SEED, and :M=17 behind it for one batch size"


@dataclass(frozen=True)
class ReplayId:
    """A finding's address, complete in itself."""

    target: str
    """A suite (name or module) with a `case`, or MODULE:NAME without."""
    case: str | None
    check: str
    seed: int
    batch: int | None = None

    def __str__(self) -> str:
        case = f"::{self.case}" if self.case is not None else ""
        batch = f":M={self.batch}" if self.batch is not None else ""
        return f"{self.target}{case}::{self.check}@{self.seed}{batch}"


def parse(text: str) -> ReplayId:
    """The parts of a replay id.

    Raises:
        UsageError: it is none.
    """
    place, at, rest = text.strip().rpartition("@")
    tail = re.fullmatch(r"(-?\d+)(?::M=(\d+))?", rest)
    parts = place.split("::")
    named = len(parts) == 3 or (len(parts) == 2 and ":" in parts[0])
    if not at or tail is None or not named or not all(parts):
        raise UsageError("a replay id", found=repr(text), allowed=FORM, fix="copy the replay line of a finding")
    target, *case, check = parts
    if not case:
        split(target)
    batch = int(tail[2]) if tail[2] else None
    return ReplayId(target, case[0] if case else None, check, int(tail[1]), batch)


@click.command(short_help="Run one finding again.")
@click.argument("replay_id", metavar="ID")
@click.option("--rows", multiple=True, metavar="SHAPE:DTYPE", help="As for `samebits check`.")
@click.option("--json", "as_json", is_flag=True, help="Print the evidence as JSON on standard output.")
@click.option("--start", type=click.Choice(["template", "spawn"]), default="spawn", show_default=True)
@click.pass_context
def replay(context: click.Context, /, replay_id: str, rows: tuple[str, ...], as_json: bool, start: str) -> None:
    """Run one check of one case again: ID is SUITE::CASE::CHECK@SEED, from the replay line of a finding.

    Exits with 1 if the finding shows again and with 0 if it does not.
    """
    from samebits.engine.locate import Ref
    from samebits.session.suites import Listener, run_subject, run_suites

    wanted = parse(replay_id)
    options = to_options(checks=(wanted.check,), seed=wanted.seed, max_batch=wanted.batch, start=start)
    if wanted.case is not None:
        options = replace(options, cases=(_literal(wanted.case),))

    def begin(listener: Listener) -> Any:
        if wanted.case is not None:
            return run_suites([wanted.target], options, listener)
        module, name = split(wanted.target)
        return run_subject(Ref(module, name, seed=wanted.seed, rows=rows), options, listener)

    again = shlex.join(["samebits", "replay", str(wanted), *(a for r in rows for a in ("--rows", r))])
    console(to_stderr=True).print(f"$ {again}", soft_wrap=True)
    code = perform(begin, as_json=as_json, quiet=True, no_html=False, show_all=True, replayed=True)
    context.exit(code)


def _literal(case: str) -> str:
    """A glob that matches this id only."""
    return re.sub(r"([*?\[])", r"[\1]", case)
