"""The group of commands, and the one place where errors become text and exit codes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

import samebits
from samebits.cli.check import check
from samebits.cli.doctor import doctor
from samebits.cli.listing import list_
from samebits.cli.replay import replay
from samebits.cli.run import run
from samebits.errors import ExitCode, SamebitsError, UsageError

EPILOG = (
    "Exit codes: 0 invariant, 1 bits changed or a kernel failed, 2 usage, 3 infrastructure (may be retried), "
    "5 nothing tested."
)


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(samebits.__version__, prog_name="samebits", message="%(prog)s %(version)s")
def cli() -> None:
    """Same bits, whatever the batch: finds out whether kernels are batch invariant, and proves it."""


for command in (run, check, list_, replay, doctor):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: run a command and exit with its code."""
    sys.exit(int(_main(arguments)))


def _main(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(args=list(given), prog_name="samebits", standalone_mode=False)
    except click.UsageError as error:
        return _fail(_usage(error, given), ExitCode.USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", ExitCode.INFRASTRUCTURE)
    except SamebitsError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:  # `samebits list | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.INVARIANT
    return code if isinstance(code, int) else ExitCode.INVARIANT


def _fail(text: str, code: ExitCode) -> int:
    click.echo(f"error: {text}", err=True)
    return code


def _usage(error: click.UsageError, given: Sequence[str]) -> str:
    """click's complaint in the form of all the others."""
    where = error.ctx.command_path if error.ctx else "samebits"
    allowed = ""
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        allowed = ", ".join(sorted(error.possibilities))
    elif isinstance(error, click.exceptions.NoSuchCommand):
        allowed = ", ".join(sorted(cli.commands))
    found = shlex.join(given) if not isinstance(error, click.MissingParameter) else ""
    return str(UsageError(error.format_message().rstrip("."), found=found, allowed=allowed, fix=f"{where} --help"))
