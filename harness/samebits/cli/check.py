"""`samebits check`: one kernel by name."""

from __future__ import annotations

from typing import Any

import click

from samebits.cli.finish import perform
from samebits.cli.options import running, to_options
from samebits.errors import UsageError


@click.command(short_help="Check one kernel by name.")
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--rows", multiple=True, metavar="SHAPE:DTYPE",
    help="One row of a row input, such as 512:bfloat16 or 8x64:float32; once per input of a bare callable.",
)  # fmt: skip
@running
@click.pass_context
def check(context: click.Context, /, target: str, rows: tuple[str, ...], **values: Any) -> None:
    """Check one kernel: a callable with its --rows, a factory f(seed) -> Subject, or a Subject.

    \b
    samebits check torch.nn.functional:silu --rows 1007:float32
    samebits check mypkg.kernels:fused_moe
    """
    from samebits.engine.locate import Ref
    from samebits.session.suites import run_subject

    module, name = split(target)
    options = to_options(**values)
    ref = Ref(module, name, seed=options.seed, rows=rows)
    code = perform(
        lambda listener: run_subject(ref, options, listener),
        as_json=values["as_json"],
        quiet=values["quiet"],
        no_html=values["no_html"],
        show_all=not values["quiet"],
    )
    context.exit(code)


def split(target: str) -> tuple[str, str]:
    """(module, attribute) of `MODULE:NAME`.

    Raises:
        UsageError: anything else.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name) or not all(
        p.isidentifier() for p in (*module.split("."), *name.split("."))
    ):
        raise UsageError(
            "a kernel is named by its module and attribute",
            found=repr(target),
            allowed="MODULE:NAME, such as torch.nn.functional:silu",
        )
    return module, name
