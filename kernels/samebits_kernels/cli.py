"""`samebits-kernels`: build the kernels ahead of time, and say what this machine can run."""

from __future__ import annotations

import json
import sys

import click

from samebits_kernels.errors import BackendUnavailableError, BuildError, KernelsError
from samebits_kernels.jit import build as jit
from samebits_kernels.jit import cache, toolchain

EXIT_USAGE, EXIT_INFRASTRUCTURE = 2, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="samebits")
def main() -> None:
    """NVFP4 kernels whose batch invariance is a declared contract."""


@main.command()
@click.option("--arch", "archs", multiple=True, type=click.Choice(list(jit.TARGETS)), help="Default: all.")
@click.option("--force", is_flag=True, help="Compile even if the cache has it.")
def build(archs: tuple[str, ...], force: bool) -> None:
    """Compile into the cache, so that no first call has to."""
    for name in archs or tuple(jit.TARGETS):
        try:
            manifest = jit.build(jit.target(name), force=force)
        except (BuildError, BackendUnavailableError) as error:
            click.echo(str(error), err=True)
            sys.exit(EXIT_INFRASTRUCTURE)
        how = f"built in {manifest['seconds']} s" if manifest["built"] else "already in the cache"
        click.echo(f"{name}: {how}\n  {manifest['folder']}/{manifest['library']}\n  {manifest['compiler']}")


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def list_backends(as_json: bool) -> None:
    """Backends, best first: invariant or not, and why one cannot run here."""
    from samebits_kernels.backends.registry import backends

    rows = [
        {
            "backend": b.name,
            "device": b.device,
            "batch_invariant": b.supports_batch_invariance(),
            "unavailable": b.available(),
        }
        for b in backends()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        promise = "batch invariant" if row["batch_invariant"] else "not batch invariant"
        click.echo(f"{row['backend']:<10} {row['device']:<5} {promise:<20} {row['unavailable'] or 'available'}")


@main.command()
def doctor() -> None:
    """Toolchain, cache, backends, and what the native library reads from the environment."""
    from samebits_kernels.backends.registry import backends
    from samebits_kernels.contract import probe
    from samebits_kernels.flag import FLAG, batch_invariant

    try:
        click.echo(f"{FLAG}: {int(batch_invariant())}")
    except KernelsError as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_USAGE)
    reason = toolchain.missing()
    click.echo(f"compiler: {reason or toolchain.host().version}")
    click.echo(f"cache: {cache.root()} ({len(cache.entries())} libraries)")
    for backend in backends():
        reason = backend.available()
        click.echo(f"{backend.name}: {reason or 'available'}")
        if reason is None and (backend.supports_batch_invariance() or not batch_invariant()):
            try:
                for key, value in probe(backend.name).items():
                    click.echo(f"  {key}: {value}")
            except KernelsError as error:
                click.echo(f"  {error}", err=True)
                sys.exit(EXIT_INFRASTRUCTURE)


if __name__ == "__main__":
    main()
