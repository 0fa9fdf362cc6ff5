"""``carpool top``: a live screen of devices, lanes and jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpool.cli.base.options_common import TIME_US, print_json, print_lines, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.cli.render.output import stdout_output
from carpool.cli.render.top_choice import TopChoice
from carpool.cli.render.top_devices import loads
from carpool.cli.render.top_frame import (
    LOAD_STEP_US,
    LOAD_STEPS,
    Snapshot,
    frame,
    frame_height,
    screenful,
    shown_jobs,
    within,
)
from carpool.protocol.api import DeviceInfo
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
    """Show frames until q.  Keys take effect at once, on the last snapshot; the daemon is asked when a frame is due."""
    choice, due_s, loads = TopChoice(), 0.0, TopLoads(client)
    seen = snapshot(client, loads)
    while True:
        before = time.monotonic()
        if before >= due_s:
            seen = snapshot(client, loads)
            # With very many jobs, a snapshot costs the daemon time that jobs need: then frames are less frequent.
            due_s = before + max(interval_s, LOAD_FACTOR * (time.monotonic() - before))
        screen.show(screenful(seen, stdout_output(), screen.height(), choice))
        for key in screen.keys(max(0.0, due_s - time.monotonic())):
            if key in ("q", "Q") and not choice.typing:
                return
            choice, action = choice.pressed(key, shown_jobs(seen, choice))
            choice = within(seen, frame_height(stdout_output(), screen.height(), choice), choice)
            if action:
                choice, due_s = _done(client, choice, action, seen), 0.0


def _done(client: DaemonClient, choice: TopChoice, action: str, seen: Snapshot) -> TopChoice:
    """Do the action on the selected job, and say in the last line what came of it."""
    assert choice.selected is not None, "nothing is asked without a job"
    try:
        {"cancel": client.cancel, "pause": client.pause, "resume": client.resume}[action](choice.selected)
    except ClientError as error:
        return replace(choice, said=str(error))
    name = next((element_id(job) for job in seen.active if job.id == choice.selected), str(choice.selected))
    return replace(choice, said=f"{action}: job {name}")


class TopLoads:
    """The load of devices in the last minutes; the daemon is asked once in each `LOAD_STEP_US`."""

    def __init__(self, client: DaemonClient) -> None:
        self._client = client
        self._known: dict[str, list[int | None]] = {}
        self._step = -1

    def now(self, devices: Sequence[DeviceInfo]) -> dict[str, list[int | None]]:
        """Return the loads by device, as in `Snapshot`."""
        step = formatting.now_us() // LOAD_STEP_US
        if step != self._step or self._known.keys() != {device.id for device in devices}:
            self._step, self._known = step, {device.id: self._load(device.id) for device in devices}
        return self._known

    def _load(self, device: str) -> list[int | None]:
        since_us = formatting.now_us() - (LOAD_STEPS + 1) * LOAD_STEP_US
        return loads(self._client.telemetry(device, since_us=since_us, step_us=LOAD_STEP_US), LOAD_STEPS)


def snapshot(client: DaemonClient, known: TopLoads | None = None) -> Snapshot:
    """Ask the daemon for the content of a frame: four requests, and one more for each device once in a while."""
    active = client.jobs(formatting.ACTIVE)
    # Asked last: a job that ends in between shows up in both lists rather than in none, and the later answer counts.
    ended = client.jobs(("ended",), RECENT)
    over = {job.id for job in ended}
    devices = client.devices()
    return Snapshot(
        time_us=formatting.now_us(),
        policy=client.policy().name,
        devices=devices,
        active=[job for job in active if job.id not in over],
        ended=ended,
        loads=(known or TopLoads(client)).now(devices),
    )
