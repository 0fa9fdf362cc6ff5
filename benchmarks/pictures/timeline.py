"""Three jobs that need the device each, live: who computes, and whose memory is being moved."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from benchmarks.copies import DEVICE_MIB, MOST_MIB, load, rates
from benchmarks.jobs import submit
from carpool.facts.fact import Fact, What
from carpool.facts.recorded import facts_of
from carpool.protocol.api import EventInfo
from tools.demo import svg
from tools.demo.session import Session

WIDTH, ROW = 1000, 46
LEFT, RIGHT, TOP = 90, 20, 80
COPIES = 3
#: Shown of the run, beginning when everybody has had a turn.
SHOWN_US = 12_000_000
#: Of every job: its row says which one it is.
TURN, OUT, BACK = svg.BLUE, svg.RED, svg.ORANGE


@dataclass(slots=True)
class Moves:
    """Turns and moves that have ended, on the core's clock."""

    turns: list[Fact] = field(default_factory=list)
    out: list[Fact] = field(default_factory=list)  # to the host store
    back: list[Fact] = field(default_factory=list)  # at the begin of the turn in which it came; as long as it took


def read_moves(events: Iterable[EventInfo]) -> Moves:
    found, in_us = Moves(), dict[int, int]()  # of earlier turns
    for fact in facts_of(events):
        if not isinstance(fact, Fact) or fact.start_us is None or fact.end_us is None:
            continue
        if fact.what == What.MOVE:
            found.out.append(fact)
        elif fact.what == What.TURN:
            found.turns.append(fact)
            total_us = fact.usage.in_us if fact.usage else 0
            taken_us = total_us - in_us.get(fact.job, 0)
            if taken_us > 0:
                in_us[fact.job] = total_us
                found.back.append(replace(fact, end_us=fact.start_us + taken_us))
    return found


def draw() -> str:
    """The picture of a run that is made now."""
    return picture(_live())


def picture(moves: Moves) -> str:
    """Turns and moves by job, from the moment at which every job has had a turn."""
    begin = max(min(turn.start_us or 0 for turn in moves.turns if turn.job == job) for job in _jobs(moves))
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


def _bars(spans: list[Fact], job: int, begin: int, y: float, height: float, colour: str) -> list[str]:
    shown = [(_x((one.start_us or 0) - begin), _x((one.end_us or 0) - begin)) for one in spans if one.job == job]
    return [svg.rectangle(left, y, right - left, height, colour) for left, right in shown if right > left]
