"""One frame of `carpool top`: a pure function from a snapshot to lines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from carpool.cli.render import formatting
from carpool.cli.render.progress import bar
from carpool.cli.render.style import Style
from carpool.cli.render.table import shorten
from carpool.cli.render.telemetry import short_lines
from carpool.protocol.api import DeviceInfo, JobInfo, LaneInfo
from carpool.protocol.escaping import escaped
from carpool.protocol.units import format_duration, format_size

NAME_WIDTH = 22
STATE_WIDTH = 10
BAR = 12
ROW = f"{{}} {{:>5}}  {{:<{NAME_WIDTH}}}  {{:<{STATE_WIDTH}}}  {{:<21}}  {{:<28}}  {{:>6}}  {{}}"
COLUMNS = ROW.format(" ", "ID", "JOB", "STATE", "MEMORY P/E", "PROGRESS", "JCT", "WHY")
Line = tuple[str, str]  # text and how to paint it: a method of `Style`, or ""


class Snapshot(msgspec.Struct, frozen=True):
    """What `top` shows, and what `top --json` prints."""

    time_us: int
    policy: str
    devices: list[DeviceInfo]
    active: list[JobInfo]
    ended: list[JobInfo]  # the last few


def frame(snapshot: Snapshot, width: int | None, height: int | None, style: Style) -> list[str]:
    """Lines for a screen of this size (None: not limited)."""
    lines = _lines(snapshot)
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], (f"… {hidden} more lines: `carpool ls`", "dim")]
    cut = [(text if width is None else shorten(text, width), paint) for text, paint in lines]
    return [getattr(style, paint)(text) if paint else text for text, paint in cut]


def _lines(snapshot: Snapshot) -> list[Line]:
    now = snapshot.time_us
    lines: list[Line] = [_summary(snapshot)]
    placed: set[int] = set()
    for device in snapshot.devices:
        jobs = {job.id: job for job in snapshot.active if job.device == device.id}
        placed |= jobs.keys()
        lines += [("", ""), _device(device), *((line, "dim") for line in short_lines(device))]
        lines += [(COLUMNS, "dim"), *_lanes(device, jobs, now)]
    queued = [job for job in snapshot.active if job.id not in placed]
    lines += _section(f"queued ({len(queued)})", queued, now)
    return lines + _section("ended last", snapshot.ended[::-1], now)


def _summary(snapshot: Snapshot) -> Line:
    computing = sum(job.holds_turn for job in snapshot.active)
    active = f"{len(snapshot.active)} active, {computing} computing"
    text = f"carpool  {formatting.clock(snapshot.time_us)[11:]}  policy {snapshot.policy}  {active}"
    return text, "bold"


def _device(device: DeviceInfo) -> Line:
    share = bar(device.granted_bytes, device.capacity_bytes, 20)
    granted = f"{format_size(device.granted_bytes)} of {format_size(device.capacity_bytes)} granted"
    weights = f", {format_size(device.weights_bytes)} of weights" if device.weights_bytes else ""
    return f"{device.id}  {share}  {granted}, {format_size(device.used_bytes)} in use{weights}", "bold"


def _lanes(device: DeviceInfo, jobs: dict[int, JobInfo], now: int) -> list[Line]:
    lines: list[Line] = []
    rest = dict(jobs)
    for lane in device.lanes:
        members = [rest.pop(number) for number in lane.jobs if number in rest]
        lines.append(_lane(lane))
        lines += [job_line(job, now) for job in members]
    if not device.lanes and not rest:
        lines.append(("  idle", "dim"))
    return lines + [job_line(job, now) for job in rest.values()]


def _lane(lane: LaneInfo) -> Line:
    holder = "free" if lane.holder is None else f"turn: job {lane.holder}"
    waiting = f", then {', '.join(map(str, lane.waiting))}" if lane.waiting else ""
    return f"  lane {lane.id}  {format_size(lane.size_bytes)}  {holder}{waiting}", ""


def job_line(job: JobInfo, now: int) -> Line:
    """A job's line, and how to paint it.  ``now``: microseconds of the wall clock."""
    completion = format_duration(formatting.completion_us(job, now))
    cells = (
        shorten(escaped(formatting.title(job)), NAME_WIDTH),
        formatting.state(job),
        formatting.memory_pair(job),
        _progress(job),
    )
    text = ROW.format("▶" if job.holds_turn else " ", job.id, *cells, completion, escaped(formatting.why(job)))
    return text.rstrip(), _paint(job)


def _progress(job: JobInfo) -> str:
    if not job.iterations_total:
        return formatting.iterations(job)
    return f"{bar(job.iterations, job.iterations_total, BAR)} {formatting.iterations(job)}"


def _paint(job: JobInfo) -> str:
    if job.holds_turn:
        return "green"
    return "" if job.outcome is None else ("dim" if job.outcome == "succeeded" else "red")


def _section(title: str, jobs: Sequence[JobInfo], now: int) -> list[Line]:
    return [("", ""), (title, "bold"), *(job_line(job, now) for job in jobs)] if jobs else []
