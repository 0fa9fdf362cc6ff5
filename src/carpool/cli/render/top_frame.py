"""One frame of `carpool top`: a pure function from a snapshot to lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, shorten
from carpool.cli.render.progress import bar
from carpool.cli.render.top_choice import BETWEEN, HELP, LEGEND, TopChoice
from carpool.cli.render.top_devices import TextLine, device_lines, lane_line, painted_lines
from carpool.protocol.api import DeviceInfo, JobInfo
from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration

BAR = 12
WIDE = 110  # columns from which on bars and loads are drawn at full length
LEAST = 3  # lines that stay on the screen when scrolling
HELP_INDENT = 16  # cells, of what keys do
LOAD_STEP_US, LOAD_STEPS = 10_000_000, 30
FIRST_CHOICE = TopChoice()
OWNER = TableColumn("OWNER", gives_way=1)
COLUMNS = (
    TableColumn(""),
    TableColumn("ID", right=True),
    TableColumn("NAME", least=10),
    TableColumn("STATE"),
    TableColumn("MEMORY P/L", gives_way=2),
    TableColumn("PROGRESS", gives_way=3),
    TableColumn("TIME", right=True),
    TableColumn("WHY", prose=True),
)
Line = TextLine | JobInfo | None  # None: the titles of the columns


class Snapshot(msgspec.Struct, frozen=True):
    """The content of a frame, which `top --json` prints."""

    time_us: int
    policy: str
    devices: list[DeviceInfo]
    active: list[JobInfo]
    ended: list[JobInfo]  # the last few
    loads: dict[str, list[int | None]] = {}  # of devices, in millionths: see `LOAD_STEP_US`


def screenful(snapshot: Snapshot, output: Output, height: int, choice: TopChoice) -> list[str]:
    """Lines for a live screen: a frame that follows the selected job, or the help, and what the keys do."""
    if choice.helps:
        return [*[*_help(output)][: height - 1], "any key: back"]
    room, style = frame_height(output, height, choice), "bold" if choice.asks or choice.typing else "dim"
    lines = frame(snapshot, output, room, choice)
    footer = [output.painted(style, line) for line in _footer(output, choice)[: max(1, height - room)]]
    return [*lines, *[""] * (room - len(lines)), *footer]


def frame_height(output: Output, height: int, choice: TopChoice) -> int:
    """Return the height of the frame on a screen of ``height`` lines: the footer may take several lines."""
    return max(1, height - len(_footer(output, choice)))


def _footer(output: Output, choice: TopChoice) -> list[str]:
    lines = [""]
    for text in escaped(choice.footer()).split(BETWEEN):
        joined = BETWEEN.join(part for part in (lines[-1], text) if part)
        fits = output.width is None or len(joined) <= output.width
        lines[-1:] = [joined] if fits or not lines[-1] else [lines[-1], text]
    return [_cut(part, output) for part in output.wrapped(lines)]


def _help(output: Output) -> Iterator[str]:
    beside = Output(None if output.width is None else max(1, output.width - HELP_INDENT))
    for keys, what in (*HELP, ("", ""), *LEGEND, ("", "")):
        first, *rest = beside.wrapped([what], hanging=0)
        yield _cut(f"  {keys:<{HELP_INDENT - 4}}  {first}", output).rstrip()
        yield from (_cut(" " * HELP_INDENT + part, output) for part in rest)


def shown_jobs(snapshot: Snapshot, choice: TopChoice) -> list[JobInfo]:
    """Return the jobs from top to bottom, as on a screen of unlimited height."""
    return [line for line in _lines(snapshot, choice) if isinstance(line, JobInfo)]


def frame(snapshot: Snapshot, output: Output, height: int | None, choice: TopChoice = FIRST_CHOICE) -> list[str]:
    """Return the lines for a screen of ``height`` lines (None: not limited)."""
    wide = output.width is None or output.width >= WIDE
    plan = _scrolled(_lines(snapshot, choice, wide), height, choice)
    return _cut_off(plan, snapshot.time_us, output, height, choice)


def within(snapshot: Snapshot, height: int, choice: TopChoice) -> TopChoice:
    """Return the choice with the scrolling limited to the lines that there are."""
    plan = _lines(snapshot, choice)
    natural = _natural(plan, height, choice)
    return replace(choice, scroll=_begin(plan, height, choice) - natural)


def _scrolled(plan: list[Line], height: int | None, choice: TopChoice) -> list[Line]:
    """Keep the summary, and drop so many lines behind it that the selected job is among the first lines."""
    begin = 1 if height is None else _begin(plan, height, choice)
    return plan if begin <= 1 else [plan[0], None, *plan[begin:]]


def _begin(plan: Sequence[Line], height: int, choice: TopChoice) -> int:
    """Return the index of the first line of the plan, after the summary, that is shown."""
    return max(1, min(_natural(plan, height, choice) + choice.scroll, len(plan) - LEAST))


def _natural(plan: Sequence[Line], height: int, choice: TopChoice) -> int:
    place = next((n for n, line in enumerate(plan) if isinstance(line, JobInfo) and line.id == choice.selected), 0)
    return 1 if place < height // 2 else place - height // 2 + 2


def _cut_off(plan: list[Line], now: int, output: Output, height: int | None, choice: TopChoice) -> list[str]:
    lines = [line for block in _drawn(plan[:height], now, output, choice) for line in block]
    if height is None or (len(lines) <= height and len(plan) <= height):
        return lines
    # Rows without room are not laid out at all, so the number of lines that they would take is unknown.
    return [*lines[: height - 1], output.painted("dim", _cut("… more below: ↓ or d", output))]


def _drawn(plan: Sequence[Line], now: int, output: Output, choice: TopChoice) -> Iterator[list[str]]:
    """Yield the lines of each part of the plan; the jobs of all devices have the same columns."""
    jobs = [line for line in plan if isinstance(line, JobInfo)]
    titles, *rows = _job_blocks(jobs, now, output, choice.selected)
    blocks = iter(rows)
    for line in plan:
        if line is None:
            yield titles
        elif isinstance(line, JobInfo):
            yield next(blocks)
        else:
            yield painted_lines(line, output)


def _job_blocks(jobs: Sequence[JobInfo], now: int, output: Output, selected: int | None) -> list[list[str]]:
    columns, rows = list(COLUMNS), [_row(job, now, selected) for job in jobs]
    if formatting.several_owners(jobs):
        columns.insert(3, OWNER)
        rows = [(*row[:3], formatting.owner(job.owner), *row[3:]) for job, row in zip(jobs, rows, strict=True)]
    styles = ["bold" if job.id == selected else formatting.style(job) for job in jobs]
    return output.blocks(columns, rows, styles)


def _cut(text: str, output: Output) -> str:
    return text if output.width is None else shorten(text, output.width)


def _lines(snapshot: Snapshot, choice: TopChoice, wide: bool = True) -> list[Line]:
    lines: list[Line] = [_summary(snapshot)]
    active, known = choice.of(snapshot.active), {job.id: job for job in snapshot.active}
    for device in snapshot.devices:
        saved = sum(job.residue_bytes for job in snapshot.active if job.device == device.id)
        lines += [[], *device_lines(device, saved, snapshot.loads.get(device.id, []), wide)]
        lines += _lanes(device, {job.id: job for job in active if job.device == device.id}, known)
    return lines + _elsewhere(snapshot, choice, active)


def _elsewhere(snapshot: Snapshot, choice: TopChoice, active: Sequence[JobInfo]) -> list[Line]:
    """Return the lines of jobs that are on no device: queued ones, and the last that ended."""
    shown = {device.id for device in snapshot.devices}
    queued = [job for job in active if job.device not in shown]
    ended = [job for job in snapshot.ended[::-1] if choice.of([job])]
    return _section(f"queued ({len(queued)})", queued) + _section("ended last", ended)


def _summary(snapshot: Snapshot) -> TextLine:
    computing = sum(job.holds_turn for job in snapshot.active)
    active = f"{len(snapshot.active)} active, {computing} computing"
    text = f"carpool  {formatting.clock(snapshot.time_us)[11:]}  policy {snapshot.policy}  {active}"
    return [(text, "bold")]


def _lanes(device: DeviceInfo, jobs: dict[int, JobInfo], known: dict[int, JobInfo]) -> list[Line]:
    lines: list[Line] = [None] if jobs else []
    rest = dict(jobs)
    for lane in device.lanes:
        members = [rest.pop(number) for number in jobs if number in lane.jobs]
        lines.append(lane_line(lane, known))
        lines += members
    if not device.lanes and not rest:
        lines.append([("  idle", "dim")])
    return [*lines, *rest.values()]


def _row(job: JobInfo, now: int, selected: int | None) -> tuple[str, ...]:
    return (
        ("»" if job.id == selected else "") + ("▶" if job.holds_turn else ""),
        element_id(job),
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
    return [[], [(title, "bold")], *jobs] if jobs else []
