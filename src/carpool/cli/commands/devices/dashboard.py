"""``carpool dashboard``: the daemon in a browser."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.paths import expanded

if TYPE_CHECKING:
    from carpool.dashboard.process import Link
    from carpool.dashboard.server import ListeningPlace


@click.command("dashboard", short_help="Show devices, jobs and turns in a browser.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help="Port of 127.0.0.1.  [default: any free port]"
)
@click.option("--socket", "socket_path", metavar="PATH", help="Listen on a Unix socket instead, for ssh -L.")
@click.option("--browser", is_flag=True, help="Open the page in your browser.")
@with_common_options
def command(home: Path, as_json: bool, port: int | None, socket_path: str | None, browser: bool) -> int:
    """Show the daemon in a browser: devices, jobs, turns and services, live, until Ctrl-C.

    The page has your own rights with the daemon, and no more.  Each link works once: press Enter for another one.
    On a shared server, use --socket, and ssh -L from your own machine.  Starts the daemon if none is
    running.
    """
    if port is not None and socket_path is not None:
        raise Problem(Exit.USAGE, "bad_option", "--port and --socket exclude each other", "give one of them")
    with connected(home):
        pass
    place = _place(port, socket_path)
    from carpool.dashboard.process import run
    from carpool.dashboard.upstream import DaemonGone

    try:
        run(home, place, lambda link: _say(link, as_json), browser)
    except DaemonGone as error:
        raise Problem(Exit.NO_DAEMON, "daemon_gone", str(error), "carpool up starts one") from None
    return 0


def _place(port: int | None, socket_path: str | None) -> ListeningPlace:
    from carpool.dashboard.server import PlaceError, on_port, on_socket

    try:
        return on_port(port or 0) if socket_path is None else on_socket(expanded(socket_path).absolute())
    except PlaceError as error:
        raise Problem(Exit.FAILED, "bad_place", str(error)) from None


def _say(link: Link, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"event": "link", "url": link.url, **({"ssh": link.ssh} if link.ssh else {})}), flush=True)
        return
    if link.ssh:
        print(f"on your own machine: {link.ssh}")
    more = " (Enter: another link; Ctrl-C: end)" if sys.stdin is not None and sys.stdin.isatty() else ""
    print(f"{link.url}{more}", flush=True)
