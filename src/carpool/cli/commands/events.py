"""``carpool events``: what the core was told and what it decided."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from carpool.cli.base.job_selection import JOB_WORD, the_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.options_common import json_escaped, with_common_options
from carpool.cli.render.formatting import clock
from carpool.protocol.api import EventInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.escaping import escaped


@click.command("events", short_help="Print the journal of events and decisions.")
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events.")
@click.option(
    "--since", type=click.IntRange(min=0), default=0, show_default=True, help="Only events after this sequence number."
)
@click.option("--job", type=JOB_WORD, help="Only events of this job.")
@with_common_options
def command(home: Path, as_json: bool, follow: bool, since: int, job: JobWord | None) -> int:
    """Print the journal of events (what the daemon was told) and commands (what it decided), oldest first.

    With --json: one object per line.
    """
    with DaemonClient(home) as client:
        number = None if job is None else the_job(client, job)
        for event in client.events(since=since, follow=follow):
            if number is None or event.job == number:
                click.echo(json_escaped(msgspec.json.encode(event).decode()) if as_json else escaped(line(event)))
    return 0


def line(event: EventInfo) -> str:
    """An event or a command on one line: number, local time, kind, job, and its other fields as NAME=VALUE."""
    milliseconds = event.time_us // 1000 % 1000
    subject = "" if event.job is None else f"job {event.job}"
    facts = " ".join(f"{name}={_value(value)}" for name, value in event.data.items() if name != "job")
    return f"{event.seq:>8}  {clock(event.time_us)}.{milliseconds:03}  {event.kind:<16}  {subject:<9}  {facts}".rstrip()


def _value(value: object) -> str:
    return (
        value
        if isinstance(value, str) and value.isprintable() and " " not in value
        else msgspec.json.encode(value).decode()
    )
