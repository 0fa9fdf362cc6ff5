"""Use of devices by ended jobs: one row per job for tables, CSV and JSON, and the sums."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.cli.render.columns import TableColumn
from carpool.protocol.api import AttemptInfo, JobInfo
from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration, format_size

COLUMNS = (
    TableColumn("ID", right=True),
    TableColumn("NAME", least=10),
    TableColumn("OWNER", gives_way=3),
    TableColumn("STATE"),
    TableColumn("ENDED", gives_way=1),
    TableColumn("WAITED", right=True),
    TableColumn("RAN", right=True),
    TableColumn("DEVICE-H", right=True),
    TableColumn("IDLE", right=True),
    TableColumn("MEMORY", right=True, gives_way=2),
)
US_PER_HOUR = 3_600_000_000


class UsageOfJob(msgspec.Struct, frozen=True):
    """An ended job.  Moments are microseconds of the wall clock."""

    id: int
    name: str
    owner: str
    state: str
    submitted_us: int
    started_us: int | None  # the last attempt; null: the job was never started
    ended_us: int
    waited_us: int  # from submission to end, without attempts
    ran_us: int  # all attempts together
    device_hours: float  # device time of all attempts, for each of its devices
    turn_us: int  # turn time of the last attempt
    idle_ppm: int | None  # part of the last attempt without a turn; null: the job was never started
    peak_bytes: int  # most memory of a device that the job has used, persistent and ephemeral
    exit_code: int | None
    element: str = ""  # id of an element of an array, as in `carpool ls`: 7_3


def used_by(job: JobInfo) -> UsageOfJob:
    """Return what an ended job has used."""
    ended = job.submitted_us if job.ended_us is None else job.ended_us
    last = 0 if job.started_us is None else max(0, ended - job.started_us)
    ran = last if not job.attempts else sum(map(_lasted, job.attempts))
    return UsageOfJob(
        id=job.id,
        name=formatting.title(job),
        owner=formatting.owner(job.owner),
        state=formatting.state(job),
        submitted_us=job.submitted_us,
        started_us=job.started_us,
        ended_us=ended,
        waited_us=max(0, ended - job.submitted_us - ran),
        ran_us=ran,
        device_hours=round(job.used_us / US_PER_HOUR, 6),
        turn_us=job.device_us,
        idle_ppm=None if not last else max(0, 1_000_000 - job.device_us * 1_000_000 // last),
        peak_bytes=job.persistent_bytes + job.ephemeral_bytes,
        exit_code=job.exit_code,
        element="" if job.array is None else element_id(job),
    )


def _lasted(attempt: AttemptInfo) -> int:
    if attempt.started_us is None or attempt.ended_us is None:
        return 0
    return max(0, attempt.ended_us - attempt.started_us)


def table_row(use: UsageOfJob) -> tuple[str, ...]:
    """Return the cells for `COLUMNS`."""
    return (
        use.element or str(use.id),
        use.name,
        use.owner,
        use.state,
        formatting.clock(use.ended_us),
        format_duration(use.waited_us),
        format_duration(use.ran_us),
        f"{use.device_hours:.3f}",
        "-" if use.idle_ppm is None else f"{use.idle_ppm / 10_000:.0f} %",
        format_size(use.peak_bytes) if use.peak_bytes else "-",
    )


def sums(uses: Sequence[UsageOfJob]) -> str:
    """Return one line that sums up all jobs."""
    hours, waited = sum(use.device_hours for use in uses), sum(use.waited_us for use in uses) // max(1, len(uses))
    jobs = f"{len(uses)} job{'' if len(uses) == 1 else 's'}"
    return f"{jobs}: {hours:.3f} device-hours, waited {format_duration(waited)} on average"


def as_csv(uses: Sequence[UsageOfJob]) -> list[str]:
    """Return a line of names and a line for each job; characters that are not printable are escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(UsageOfJob.__struct_fields__)
    for use in uses:
        writer.writerow([escaped(each) if isinstance(each, str) else each for each in msgspec.structs.astuple(use)])
    return text.getvalue().splitlines()
