"""``carpool events``: the events that the daemon received and the decisions that it made."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from carpool.cli.base.job_filters import jobs_on
from carpool.cli.base.job_selection import JOB_WORD, the_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.options_common import (
    Parsed,
    check_device,
    json_escaped,
    not_negative,
    print_lines,
    with_common_options,
)
from carpool.cli.base.time_arguments import MOMENT
from carpool.cli.render import formatting
from carpool.cli.render.event_words import TELEMETRY, WORDS, event_line
from carpool.cli.render.output import stdout_output
from carpool.protocol.api import EventInfo
from carpool.protocol.client import DaemonClient

LAST = 20
TEXT = 24  # cells before the words


def event_kind(text: str) -> str:
    """Return the kind of event that ``text`` names, in whatever case.  Raises ValueError, for people."""
    known = {kind.lower(): kind for kind in WORDS}
    if text.lower() in known:
        return known[text.lower()]
    near = [known[each] for each in difflib.get_close_matches(text.lower(), known, n=3)]
    meant = f"did you mean {', '.join(near)}?" if near else f"kinds are {', '.join(sorted(WORDS))}"
    raise ValueError(f"there is no kind {text!r}; {meant}")


class EventKind(Parsed):
    """A kind of event; the shell completes kinds."""

    def __init__(self) -> None:
        super().__init__("kind", event_kind)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Complete a kind of event, in whatever case."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(kind) for kind in sorted(WORDS) if kind.lower().startswith(incomplete.lower())]


@click.command("events", short_help="Show what happened and what the daemon decided.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new events as they happen.")
@click.option("--count", "-n", type=Parsed("n", not_negative), help="Only the last N events.  [default: 20]")
@click.option(
    "--since",
    "since_us",
    type=MOMENT,
    help="All events since then, as in 14:05, '2026-01-31 14:05', or 10m (ten minutes ago).",
)
@click.option("--after-seq", type=Parsed("n", not_negative), help="All events after this sequence number (see --json).")
@click.option("--job", type=JOB_WORD, help="Only events of this job.")
@click.option("--device", metavar="NAME", help="Only events of this device, its lanes and its jobs.")
@click.option("--kind", "kinds", multiple=True, type=EventKind(), help="Only events of this kind; repeatable.")
@click.option("--all", "-a", "everything", is_flag=True, help="Measurements, too.")
@with_common_options
def command(
    home: Path,
    as_json: bool,
    follow: bool,
    count: int | None,
    since_us: int | None,
    after_seq: int | None,
    **wanted: Any,
) -> int:
    """Show what the daemon was told and what the daemon decided, oldest first: the last 20 events.

    Each line has the time, the job, lane or device, and what happened in words.  With --json each line is an object
    with all fields.  Measurements (Sampled, DeviceLoad, ForeignMemory, HostMeasured, PaceKnown, UseKnown,
    Tick) are shown with --all or --kind.
    """
    if count is None and since_us is None and after_seq is None:
        count = LAST
    with DaemonClient(home) as client:
        shown = _filter(client, **wanted)
        first = after_seq or 0
        past, newest = _past(client, shown, count, since_us or 0, first)
        _print(past, as_json)
        if follow:
            for event in client.events(since=newest, follow=True):
                _print([event] if shown.shows(event) else [], as_json)
    return 0


def _filter(
    client: DaemonClient, everything: bool, kinds: tuple[str, ...], job: JobWord | None, device: str | None
) -> EventFilter:
    made = EventFilter(everything, frozenset(kinds), None if job is None else the_job(client, job), device)
    if device is not None:
        known = {each.id: each for each in client.devices()}
        check_device(device, [*known])
        made.lanes_there |= {lane.id for lane in known[device].lanes}
        made.jobs_there |= jobs_on(client, device)
    return made


def _past(
    client: DaemonClient, shown: EventFilter, count: int | None, since_us: int, after_seq: int
) -> tuple[list[EventInfo], int]:
    """Return the past events to show, oldest first, and the number of the newest event of all."""
    found: list[EventInfo] = []
    newest = after_seq
    for event in client.past_events():
        newest = max(newest, event.seq)
        if len(found) == count or event.time_us < since_us or event.seq <= after_seq:
            break
        if shown.shows(event):
            found.append(event)
    return found[::-1], newest


def _print(events: Iterable[EventInfo], as_json: bool) -> None:
    now, output = formatting.now_us(), stdout_output()
    if as_json:
        print_lines(json_escaped(msgspec.json.encode(event).decode()) for event in events)
    else:
        print_lines(output.wrapped((event_line(event, now) for event in events), hanging=TEXT))
    sys.stdout.flush()  # with --follow, each line is wanted at once


@dataclass
class EventFilter:
    """``everything``: show measurements, too.  ``jobs_there``, ``lanes_there``: known jobs and lanes of ``device``."""

    everything: bool
    kinds: frozenset[str]
    job: int | None
    device: str | None
    jobs_there: set[int] = field(default_factory=set)
    lanes_there: set[int] = field(default_factory=set)

    def shows(self, event: EventInfo) -> bool:
        """Whether the event passes all options."""
        named = event.kind in self.kinds if self.kinds else self.everything or event.kind not in TELEMETRY
        return named and self._of_job(event) and (self.device is None or self._of_device(event))

    def _of_job(self, event: EventInfo) -> bool:
        others = (event.data.get(name) for name in ("to", "holder", "successor"))
        return self.job is None or self.job == event.job or self.job in others

    def _of_device(self, event: EventInfo) -> bool:
        """Whether an event is about the device; jobs and lanes that an event places there belong there from then on."""
        if not _names(event, str(self.device)):
            return event.job in self.jobs_there or event.data.get("lane") in self.lanes_there
        if event.job is not None:
            self.jobs_there.add(event.job)
        if isinstance(lane := event.data.get("lane"), int):
            self.lanes_there.add(lane)
        return True


def _names(event: EventInfo, device: str) -> bool:
    """Whether the event itself says that it is about the device."""
    named = event.data.get("device")
    own = named.get("id") if isinstance(named, dict) else named
    return device == own or any(device in _listed(event, name) for name in ("further", "devices"))


def _listed(event: EventInfo, name: str) -> Iterable[object]:
    value = event.data.get(name)
    return value if isinstance(value, list) else ()
