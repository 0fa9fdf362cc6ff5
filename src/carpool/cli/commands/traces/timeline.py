"""``carpool timeline``: turns, waits, memory and load, for the viewers of traces."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.job_filters import jobs_on
from carpool.cli.base.job_selection import JOB_WORD, the_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.options_common import OUTPUT_FILE, answer, check_device, whole_file, with_common_options
from carpool.cli.base.time_arguments import MOMENT
from carpool.cli.render.event_words import happened
from carpool.protocol.client import DaemonClient
from carpool.timeline.chrome_file import ChromeFile
from carpool.timeline.follower import Follower
from carpool.timeline.profiles import BadProfile, profile_marks
from carpool.timeline.window import Begin, Mark, TimelinePart, time_of


@click.command("timeline", short_help="Write turns, waits and memory for viewers of traces.")
@click.option("--output", "-o", type=OUTPUT_FILE, required=True, metavar="FILE", help="OUT.json.")
@click.option("--since", "since_us", type=MOMENT, help="From then on, as in 14:05, '2026-01-31 14:05', or 10m.")
@click.option("--until", "until_us", type=MOMENT, help="Until then.")
@click.option("--job", type=JOB_WORD, help="Only tracks and events of this job.")
@click.option("--device", metavar="NAME", help="Only this device, its lanes and the jobs that it has now.")
@click.option(
    "--with",
    "profiles",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="A trace of torch.profiler (export_chrome_trace), shown beside the rest; repeatable.",
)
@with_common_options
def command(home: Path, as_json: bool, output: Path, profiles: Sequence[Path], **part: Any) -> int:
    """Write turns, waits and memory of jobs, as far back as the daemon keeps its events.

    For each device its memory, its load and a track per lane with the turns in it; for each job a track of what it
    did, with arrows from its request for a turn to that turn, and its requests for memory.  Open OUT.json in
    https://ui.perfetto.dev (the page reads the file on your machine) or in chrome://tracing.
    """
    _check(output)
    gc.disable()  # nothing here is cyclic garbage, and looking for such garbage takes a twelfth of the time
    with DaemonClient(home) as client:
        wanted = _part(client, **part)
        own = wanted.of(Follower(happened).follow(client.events()))
        others = (TimelinePart(wanted.since_ns, wanted.until_ns).of(_profile(path)) for path in profiles)
        counted = _Counted(heapq.merge(own, *others, key=time_of))
        _write(output, counted)
    seconds = (counted.last_ns - counted.first_ns) / 1e9
    about = {"file": str(output), "slices": counted.slices, "seconds": round(seconds, 3)}
    return answer(as_json, about, lambda: [f"{output}: {counted.text(seconds)}"])


class _Counted:
    """An iterator of marks that counts the slices taken, and knows the times of the first and the last mark."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._marks = marks
        self.slices = 0
        self.first_ns = self.last_ns = 0  # 0: there was no mark

    def __iter__(self) -> Iterator[Mark]:
        for mark in self._marks:
            self.first_ns = self.first_ns or mark.time_ns
            self.last_ns = mark.time_ns
            self.slices += isinstance(mark, Begin)
            yield mark

    def text(self, seconds: float) -> str:
        """Return a text about the slices, which cover so many seconds."""
        if not self.last_ns:
            return "the daemon has no events of that time"
        return f"{self.slices:,} slices in {seconds:,.1f} s; open it in https://ui.perfetto.dev"


def _check(output: Path) -> None:
    """Check the name of the output before anything is read.  Raises Problem."""
    if output.suffix != ".json":
        text = f"{str(output)!r} has to end in .json, the format that Perfetto and chrome://tracing open"
        raise Problem(Exit.USAGE, "unknown_format", text)


def _part(
    client: DaemonClient, since_us: int | None, until_us: int | None, job: JobWord | None, device: str | None
) -> TimelinePart:
    jobs_there, number = _jobs_there(client, device), None if job is None else the_job(client, job)
    until_ns = None if until_us is None else until_us * 1000
    return TimelinePart((since_us or 0) * 1000, until_ns, number, device, jobs_there)


def _jobs_there(client: DaemonClient, device: str | None) -> frozenset[int]:
    """Return the known jobs of a device; none without a device."""
    if device is None:
        return frozenset()
    check_device(device, [each.id for each in client.devices()])
    return jobs_on(client, device)


def _profile(path: Path) -> Iterator[Mark]:
    try:
        return profile_marks(path)
    except (BadProfile, OSError) as error:
        raise Problem(Exit.USAGE, "bad_profile", str(error)) from None


def _write(output: Path, marks: Iterable[Mark]) -> None:
    try:
        with whole_file(output) as file:
            ChromeFile(file).write(marks)
    except OSError as error:
        raise Problem(Exit.FAILED, "unwritable", f"{output} cannot be written: {error.strerror}") from None
