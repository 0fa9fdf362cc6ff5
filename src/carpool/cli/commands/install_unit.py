"""``carpool install-unit``: a daemon that systemd starts."""

from __future__ import annotations

import os
from pathlib import Path

import click

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.options_common import print_json, with_common_options
from carpool.cli.request.unit_file import NAME, directory_of_units, unit_text
from carpool.protocol.paths import SYSTEM_HOME, own_home


@click.command("install-unit", short_help="Have systemd start the daemon.")
@click.option("--user", is_flag=True, help="A daemon of your own, started by your systemd; no root needed.")
@click.option(
    "--run-as", metavar="NAME", help="System user that the server's daemon runs as; only a small helper stays root."
)
@click.option("--device", "devices", multiple=True, metavar="KIND", help="As for `carpool up`; repeatable.")
@click.option("--print", "only_print", is_flag=True, help="Print the unit instead of writing a file.")
@with_common_options
@click.pass_context
def command(
    context: click.Context,
    /,
    home: Path,
    as_json: bool,
    user: bool,
    run_as: str | None,
    devices: tuple[str, ...],
    only_print: bool,
) -> int:
    """Write a unit by which systemd starts the daemon with the machine, or with your first login.

    Without --user: the daemon of the whole server, in /var/lib/carpool, where all users find the daemon without setting
    anything.  The unit is written, and neither enabled nor started; what is printed says how.
    """
    if user and run_as:
        raise Problem(Exit.USAGE, "run_as_user", "--run-as is for the server's daemon", "leave --user or --run-as out")
    explicit = context.get_parameter_source("home") is not click.core.ParameterSource.DEFAULT
    place = home if explicit else own_home() if user else SYSTEM_HOME
    text = unit_text(place, user=user, run_as=run_as, devices=devices)
    path = directory_of_units(user=user) / NAME
    if only_print:
        click.echo(text, nl=False)
        return 0
    _write(path, text)
    scope = "--user " if user else ""
    start = f"systemctl {scope}daemon-reload && systemctl {scope}enable --now {NAME.removesuffix('.service')}"
    print_json({"unit": str(path), "home": str(place), "start": start}) if as_json else click.echo(
        f"written: {path}\nstart the daemon: {start}"
    )
    return 0


def _write(path: Path, text: str) -> None:
    """Raises Problem."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        hint = "use sudo, or --user for a daemon of your own" if os.geteuid() else "--print shows the unit"
        raise Problem(Exit.FAILED, "unit_not_written", f"cannot write {path}: {error.strerror}", hint) from None
