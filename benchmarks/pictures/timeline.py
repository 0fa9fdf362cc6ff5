"""Three jobs that need the device each, live: who computes, and whose memory is being moved."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.copies import DEVICE_MIB, MOST_MIB, load, rates
from benchmarks.jobs import submit
from benchmarks.pictures import svg
from benchmarks.pictures.moves import Moves, Span, read_moves
from tools.demo.session import Session

WIDTH, ROW = 1000, 46
LEFT, RIGHT, TOP = 90, 20, 80
COPIES = 3
#: Shown of the run, beginning when everybody has had a turn.
SHOWN_US = 12_000_000
#: Of every job: its row says which one it is.
TURN, OUT, BACK = svg.BLUE, svg.RED, svg.ORANGE


def draw() -> str:
    """The picture of a run that is made now."""
    return picture(_live())


def picture(moves: Moves) -> str:
    """Turns and moves by job, from the moment at which every job has had a turn."""
    begin = max(min(turn.begin_us for turn in moves.turns if turn.job == job) for job in _jobs(moves))
    parts = svg.legend(LEFT, 56, [(TURN, "its turn"), (OUT, "memory moves out"), (BACK, "memory comes back")])
    for row, job in enumerate(_jobs(moves)):
        parts += _row(moves, job, begin, TOP + row * ROW)
    bottom = TOP + COPIES * ROW
    for second in range(SHOWN_US // 1_000_000 + 1):
        parts.append(svg.text(_x(second * 1_000_000), bottom + 18, f"{second} s", "dim", "middle"))
    title = f"{COPIES} jobs of {MOST_MIB} MiB on a device of {DEVICE_MIB} MiB, default settings"
    return svg.page(WIDTH, bottom + 34, title, parts)


def _live() -> Moves:
    """Each copy computes on the CPU for a while, then on the device."""
    work = load(rates(), 1000, 0.7, 2.0)
    with tempfile.TemporaryDirectory() as directory:
        home, go = Path(directory) / "home", Path(directory) / "go"
        with Session(home, [f"host:{DEVICE_MIB}MiB"], "fair") as client:
            jobs = [submit(client, work.command("--go", go)) for _ in range(COPIES)]
            while any(client.job(job).iterations == 0 for job in jobs):
                time.sleep(0.05)
            seen = max(event.seq for event in client.events())
            go.touch()
            time.sleep(10 + SHOWN_US / 1e6)  # what is shown is what happens meanwhile
            return read_moves(client.events(since=seen))


def _jobs(moves: Moves) -> list[int]:
    return sorted({turn.job for turn in moves.turns})


def _x(elapsed_us: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max(elapsed_us, 0), SHOWN_US) / SHOWN_US


def _row(moves: Moves, job: int, begin: int, y: float) -> list[str]:
    parts = [svg.text(20, y + 22, f"job {job}"), svg.rectangle(LEFT, y, WIDTH - LEFT - RIGHT, ROW - 12, "#f4f5f7")]
    parts += _bars(moves.turns, job, begin, y, ROW - 12, TURN)
    parts += _bars(moves.back, job, begin, y, ROW - 12, BACK)
    return parts + _bars(moves.out, job, begin, y, ROW - 12, OUT)


def _bars(spans: list[Span], job: int, begin: int, y: float, height: float, colour: str) -> list[str]:
    shown = [(_x(span.begin_us - begin), _x(span.end_us - begin)) for span in spans if span.job == job]
    return [svg.rectangle(left, y, right - left, height, colour) for left, right in shown if right > left]
