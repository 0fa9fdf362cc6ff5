"""``carpool install-unit``: a daemon that systemd starts; the text of its unit, and where units lie."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import daemon_arguments
from carpool.cli.base.options_common import METRICS, answer, whole_file, with_common_options
from carpool.protocol.paths import SYSTEM_HOME, expanded, own_home

NAME = "carpool.service"
#: KillMode, Delegate: jobs outlive a stopped daemon, in control groups that the daemon makes.
_UNIT = """[Unit]
Description=Carpool: deep-learning jobs share this machine's accelerators
{after}
[Service]
Type=exec
ExecStart={command}
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=524288
OOMPolicy=continue
Restart=on-failure
RestartSec=2

[Install]
WantedBy={target}
"""


@click.command("install-unit", short_help="Have systemd start the daemon.")
@click.option("--user", is_flag=True, help="A daemon of your own, started by your systemd; no root needed.")
@click.option(
    "--run-as", metavar="NAME", help="System user that the server's daemon runs as; only a small helper stays root."
)
@click.option("--device", "devices", multiple=True, metavar="KIND", help="As for `carpool up`; repeatable.")
@click.option("--metrics", type=METRICS, help="As for `carpool up`.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="As for `carpool up`.")
@click.option("--force", is_flag=True, help="Replace an existing unit that differs.")
@click.option("--print", "only_print", is_flag=True, help="Print the unit instead of writing a file.")
@with_common_options
@click.pass_context
def command(
    context: click.Context,
    /,
    home: Path,
    as_json: bool,
    user: bool,
    force: bool,
    only_print: bool,
    **daemon: Any,
) -> int:
    """Write a unit by which systemd starts the daemon with the machine, or with your first login.

    Without --user: the daemon of the whole server, in /var/lib/carpool, where all users find the daemon without setting
    anything.  The unit is written, but neither enabled nor started: the output says how to do that.
    """
    run_as = daemon["run_as"]
    if user and run_as:
        raise Problem(Exit.USAGE, "run_as_user", "--run-as is for the server's daemon", "leave --user or --run-as out")
    explicit = context.get_parameter_source("home") is not click.core.ParameterSource.DEFAULT
    place = home if explicit else own_home() if user else SYSTEM_HOME
    _check_words(str(place), *daemon["devices"], run_as or "")
    text = unit_text(place, user=user, **daemon)
    path = directory_of_units(user=user) / NAME
    if only_print:
        click.echo(text, nl=False)
        return 0
    _check_user(run_as)
    _check_present(path, text, force)
    _write(path, text)
    scope = "--user " if user else ""
    start = f"systemctl {scope}daemon-reload && systemctl {scope}enable --now {NAME.removesuffix('.service')}"
    made = {"unit": str(path), "home": str(place), "start": start}
    return answer(as_json, made, lambda: [f"written: {path}", f"start the daemon: {start}"])


def _check_words(*words: str) -> None:
    """Check that words have no control characters: a unit has one line for all words.  Raises Problem."""
    for word in words:
        if any(ord(char) < 32 or ord(char) == 127 for char in word):
            text = f"{word!r} has control characters, which a unit cannot contain"
            raise Problem(Exit.USAGE, "control_characters", text, "choose another name")


def _check_user(name: str | None) -> None:
    """Check that the user exists, if one is named.  Raises Problem."""
    try:
        name and pwd.getpwnam(name)
    except KeyError:
        hint = f"create the user first: useradd --system {name}"
        raise Problem(Exit.USAGE, "unknown_user", f"there is no user {name!r} on this machine", hint) from None


def _check_present(path: Path, text: str, force: bool) -> None:
    """Check that nothing else is at ``path``, unless ``force`` is given.  Raises Problem."""
    if force or not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file() or path.read_bytes() != text.encode():
        hint = "look at the difference with --print; --force replaces the file"
        raise Problem(Exit.FAILED, "unit_differs", f"{path} exists already, and differs", hint)


def _write(path: Path, text: str) -> None:
    """Write the unit whole or not at all; a link is replaced, not followed.  Raises Problem."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        hint = "use sudo, or --user for a daemon of your own" if os.geteuid() else "--print shows the unit"
        raise Problem(Exit.FAILED, "unit_not_written", f"cannot write {path}: {error.strerror}", hint) from None


def _replace(path: Path, text: str) -> None:
    """Replace the file at ``path``.  Raises OSError, and then leaves no new file."""
    with whole_file(path) as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), 0o644)


def unit_text(home: Path, *, user: bool, run_as: str | None, devices: Sequence[str], **others: Any) -> str:
    """``user``: for a user's own systemd; ``run_as``: user that root's daemon becomes; ``others``: further options."""
    words = [sys.executable, "-P", "-m", "carpool.daemon", "--home", str(home), *daemon_arguments({"user": run_as})]
    words += [word for device in devices for word in ("--device", device)]
    words += daemon_arguments(others)
    after, target = ("", "default.target") if user else ("After=local-fs.target nss-user-lookup.target\n", None)
    return _UNIT.format(after=after, command=" ".join(map(_quoted, words)), target=target or "multi-user.target")


def directory_of_units(*, user: bool) -> Path:
    """Return the directory where systemd looks for units, as in systemd.unit(5)."""
    if not user:
        return Path("/etc/systemd/system")
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else expanded("~/.config")) / "systemd" / "user"


def _quoted(word: str) -> str:
    """Quote one word for systemd, which expands % and $ (systemd.service(5))."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or " " in word or "'" in word else word
