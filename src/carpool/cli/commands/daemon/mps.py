"""``carpool mps``: NVIDIA's MPS server, which lets the lanes of one user compute at the same time on a GPU."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.mps_control import COST, EXPERIMENTAL, MpsControl, Status
from carpool.cli.base.options_common import pass_on_common_options, print_json, with_common_options


@click.group("mps", short_help="Start, stop or show NVIDIA's MPS server (experimental).", invoke_without_command=True)
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> int:
    """Start, stop or show NVIDIA's MPS server (for `carpool up --sharing mps`); without a command, show its status.

    Under MPS, kernels of several jobs of one user run on a GPU at the same time.  The price is isolation: a fault in
    one job ends all of them, and jobs of another user wait until the first user's jobs have ended.

    Experimental: has run with a stand-in for NVIDIA's control program only.
    """
    if context.invoked_subcommand is not None:
        pass_on_common_options(context, command.commands)
        return 0
    return _show(home, as_json)


@command.command("on")
@with_common_options
def on(home: Path, as_json: bool) -> int:
    """Start the MPS control daemon (experimental), with its pipe and logs in Carpool's state directory.

    No effect if it is running.
    """
    control = MpsControl(home)
    started = control.start()
    if as_json:
        print_json({"started": started, **_fields(control.status())})
        return 0
    click.echo(f"MPS {'has been started' if started else 'is already running'}; its pipe is in {control.pipe}")
    click.echo(COST)
    click.echo(EXPERIMENTAL)
    click.echo("A daemon that is started from now on with --sharing mps runs its jobs under MPS; other programs need")
    click.echo(f"  export CUDA_MPS_PIPE_DIRECTORY={control.pipe}")
    return 0


@command.command("off")
@with_common_options
def off(home: Path, as_json: bool) -> int:
    """Stop the MPS control daemon that `carpool mps on` has started.  Refused while programs use MPS."""
    stopped = MpsControl(home).stop()
    if as_json:
        print_json({"stopped": stopped})
    else:
        click.echo("MPS has been stopped" if stopped else "MPS is not running")
    return 0


@command.command("status")
@with_common_options
def status(home: Path, as_json: bool) -> int:
    """Show whether MPS is running, and which processes use it."""
    return _show(home, as_json)


def _show(home: Path, as_json: bool) -> int:
    found = MpsControl(home).status()
    if as_json:
        print_json(_fields(found))
    elif not found.running:
        click.echo("MPS is not running (start: `carpool mps on`)")
    else:
        clients = "no process uses it" if not found.clients else f"used by process {', '.join(map(str, found.clients))}"
        click.echo(f"MPS is running with its pipe in {found.pipe}; {clients}")
    return 0


def _fields(found: Status) -> dict[str, object]:
    return {"running": found.running, "pipe": str(found.pipe), "servers": found.servers, "clients": found.clients}
