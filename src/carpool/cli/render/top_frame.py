"""One frame of `carpool top`: a pure function from a snapshot to lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from carpool.cli.render import formatting
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, shorten
from carpool.cli.render.progress import bar
from carpool.cli.render.telemetry import short_lines
from carpool.protocol.api import DeviceInfo, JobInfo, LaneInfo
from carpool.protocol.units import format_duration, format_size

BAR = 12
OWNER = TableColumn("OWNER", gives_way=1)
COLUMNS = (
    *(
        TableColumn(""),
        TableColumn("ID", right=True),
        TableColumn("NAME", least=10),
        TableColumn("STATE"),
        TableColumn("MEMORY P/E", gives_way=2),
    ),
    *(TableColumn("PROGRESS", gives_way=3), TableColumn("TIME", right=True), TableColumn("WHY", prose=True)),
)
Text = tuple[str, str]  # and its style: see `Output.painted`
Line = Text | JobInfo | None  # None: the titles of the columns


class Snapshot(msgspec.Struct, frozen=True):
    """What `top` shows, and what `top --json` prints."""

    time_us: int
    policy: str
    devices: list[DeviceInfo]
    active: list[JobInfo]
    ended: list[JobInfo]  # the last few


def frame(snapshot: Snapshot, output: Output, height: int | None) -> list[str]:
    """Lines for a screen of this height (None: not limited)."""
    plan = _lines(snapshot)
    lines = [line for block in _drawn(plan[:height], snapshot.time_us, output) for line in block]
    if height is None or (len(lines) <= height and len(plan) <= height):
        return lines
    # Rows that have no place are not laid out at all, so how many lines they would take nobody knows.
    shown = lines[: height - 1]
    return [*shown, output.painted("dim", _cut(f"… more than {height} lines: `carpool ls`", output))]


def _drawn(plan: Sequence[Line], now: int, output: Output) -> Iterator[list[str]]:
    """The lines of each part of the plan; the jobs of all devices have the same columns."""
    jobs = [line for line in plan if isinstance(line, JobInfo)]
    titles, *rows = _job_blocks(jobs, now, output)
    blocks = iter(rows)
    for line in plan:
        if line is None:
            yield titles
        elif isinstance(line, JobInfo):
            yield next(blocks)
        else:
            yield [output.painted(line[1], _cut(line[0], output))]


def _job_blocks(jobs: Sequence[JobInfo], now: int, output: Output) -> list[list[str]]:
    columns, rows = list(COLUMNS), [_row(job, now) for job in jobs]
    if formatting.several_owners(jobs):
        columns.insert(3, OWNER)
        rows = [(*row[:3], formatting.owner(job.owner), *row[3:]) for job, row in zip(jobs, rows, strict=True)]
    return output.blocks(columns, rows, [formatting.style(job) for job in jobs])


def _cut(text: str, output: Output) -> str:
    return text if output.width is None else shorten(text, output.width)


def _lines(snapshot: Snapshot) -> list[Line]:
    lines: list[Line] = [_summary(snapshot)]
    placed: set[int] = set()
    for device in snapshot.devices:
        jobs = {job.id: job for job in snapshot.active if job.device == device.id}
        placed |= jobs.keys()
        lines += [("", ""), _device(device), *((line, "dim") for line in short_lines(device))]
        lines += [*([None] if jobs else []), *_lanes(device, jobs)]
    queued = [job for job in snapshot.active if job.id not in placed]
    lines += _section(f"queued ({len(queued)})", queued)
    return lines + _section("ended last", snapshot.ended[::-1])


def _summary(snapshot: Snapshot) -> Text:
    computing = sum(job.holds_turn for job in snapshot.active)
    active = f"{len(snapshot.active)} active, {computing} computing"
    text = f"carpool  {formatting.clock(snapshot.time_us)[11:]}  policy {snapshot.policy}  {active}"
    return text, "bold"


def _device(device: DeviceInfo) -> Text:
    share = bar(device.granted_bytes, device.capacity_bytes, 20)
    granted = f"{format_size(device.granted_bytes)} of {format_size(device.capacity_bytes)} granted"
    weights = f", {format_size(device.weights_bytes)} of weights" if device.weights_bytes else ""
    return f"{device.id}  {share}  {granted}, {format_size(device.used_bytes)} in use{weights}", "bold"


def _lanes(device: DeviceInfo, jobs: dict[int, JobInfo]) -> list[Line]:
    lines: list[Line] = []
    rest = dict(jobs)
    for lane in device.lanes:
        members = [rest.pop(number) for number in lane.jobs if number in rest]
        lines.append(_lane(lane))
        lines += members
    if not device.lanes and not rest:
        lines.append(("  idle", "dim"))
    return [*lines, *rest.values()]


def _lane(lane: LaneInfo) -> Text:
    holder = "free" if lane.holder is None else f"turn: job {lane.holder}"
    waiting = f", then {', '.join(map(str, lane.waiting))}" if lane.waiting else ""
    return f"  lane {lane.id}  {format_size(lane.size_bytes)}  {holder}{waiting}", ""


def _row(job: JobInfo, now: int) -> tuple[str, ...]:
    return (
        "▶" if job.holds_turn else "",
        str(job.id),
        formatting.title(job),
        formatting.state(job),
        formatting.memory_pair(job),
        _progress(job),
        format_duration(formatting.completion_us(job, now)),
        formatting.why(job),
    )


def _progress(job: JobInfo) -> str:
    if not job.iterations_total:
        return formatting.iterations(job)
    return f"{bar(job.iterations, job.iterations_total, BAR)} {formatting.iterations(job)}"


def _section(title: str, jobs: Sequence[JobInfo]) -> list[Line]:
    return [("", ""), (title, "bold"), *jobs] if jobs else []
