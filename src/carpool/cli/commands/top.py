"""``carpool top``: a live screen of devices, lanes and jobs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpool.cli.base.options_common import TIME_US, print_json, print_lines, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.output import stdout_output
from carpool.cli.render.top_choice import TopChoice
from carpool.cli.render.top_frame import Snapshot, frame, screenful, shown_jobs
from carpool.protocol.client import ClientError, DaemonClient

if TYPE_CHECKING:
    from carpool.cli.render.screen import Screen

RECENT = 5
SHORTEST_US = 50_000
LOAD_FACTOR = 5


@click.command("top", short_help="Watch devices, lanes and jobs live.")
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option(
    "--interval", "interval_us", type=TIME_US, default=1_000_000, show_default="1s", help="Time between frames."
)
@with_common_options
def command(home: Path, as_json: bool, once: bool, interval_us: int) -> int:
    """Watch devices, lanes and jobs: who computes, memory, progress, completion times.

    The last line of the screen says what keys do: select, sort and filter jobs, cancel, pause or resume the selected
    one.  q or Ctrl-C quits.  Without a terminal, or with --once or --json, one frame is printed.
    """
    with DaemonClient(home) as client:
        if as_json:
            print_json(snapshot(client))
        elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            print_lines(frame(snapshot(client), stdout_output(), None))
        else:
            from carpool.cli.render.screen import Screen

            with Screen() as screen:
                _watch(client, screen, max(interval_us, SHORTEST_US) / 1e6)
    return 0


def _watch(client: DaemonClient, screen: Screen, interval_s: float) -> None:
    """Until q.  Keys are answered at once, from what is known; the daemon is asked when the next frame is due."""
    choice, due_s, seen = TopChoice(), 0.0, snapshot(client)
    while True:
        before = time.monotonic()
        if before >= due_s:
            seen = snapshot(client)
            # With very many jobs a look is work for the daemon: it has better things to do.
            due_s = before + max(interval_s, LOAD_FACTOR * (time.monotonic() - before))
        screen.show(screenful(seen, stdout_output(), screen.height(), choice))
        for key in screen.keys(max(0.0, due_s - time.monotonic())):
            if key in ("q", "Q") and not choice.typing:
                return
            choice, action = choice.pressed(key, shown_jobs(seen, choice))
            if action:
                choice, due_s = _done(client, choice, action), 0.0


def _done(client: DaemonClient, choice: TopChoice, action: str) -> TopChoice:
    """What came of it is said in the last line."""
    job = choice.selected
    assert job is not None, "nothing is asked without a job"
    try:
        {"cancel": client.cancel, "pause": client.pause, "resume": client.resume}[action](job)
    except ClientError as error:
        return replace(choice, said=str(error))
    return replace(choice, said=f"{action}: job {job}")


def snapshot(client: DaemonClient) -> Snapshot:
    """What a frame shows, asked of the daemon in four requests."""
    active = client.jobs(formatting.ACTIVE)
    # Asked last: a job that ends in between shows up in both lists rather than in none, and the later answer counts.
    ended = client.jobs(("ended",), RECENT)
    over = {job.id for job in ended}
    return Snapshot(
        time_us=formatting.now_us(),
        policy=client.policy().name,
        devices=client.devices(),
        active=[job for job in active if job.id not in over],
        ended=ended,
    )
