"""Two jobs of 96 MiB and more on a device of 128 MiB: as a driver answers, and as Carpool does."""

from __future__ import annotations

from pathlib import Path

from carpool.core.model import MIB
from tools.demo.picture import Band
from tools.demo.running import follow, time_limit
from tools.demo.scene import Scene
from tools.demo.session import Session
from tools.demo.submitting import band, program

CAPACITY = 128 * MIB
JOBS = 2
#: As a driver: what does not fit at this moment is refused, and who ran out of memory is not started again.
AS_A_DRIVER = {"refuse_growth": 1, "max_recoveries": 0}
TITLE = "Two jobs need one and a half times the memory that the device has"
WHY = "Memory is granted and taken back behind addresses that stay, so jobs take turns with the memory, too."


def run(directory: Path) -> Scene:
    before, refused = _run(directory / "refused", "refused as by a driver", AS_A_DRIVER)
    after, moved = _run(directory / "moved", "moved out and back", {})
    figure = "jobs that succeed, memory refused -> moved"
    words = [f"{count} of {JOBS}" for count in (before, after)]
    return Scene("memory", TITLE, figure, words[0], words[1], WHY, [refused, moved], CAPACITY)


def _run(home: Path, title: str, settings: dict[str, int]) -> tuple[int, Band]:
    with Session(home, [f"host:{CAPACITY}B"], "fair", settings) as client, time_limit(f"two jobs, {title}"):
        jobs = [program(client, "wide", f"wide{number}") for number in range(1, JOBS + 1)]
        found = band(title, follow(client, set(jobs)), client)
        succeeded = sum(client.job(job).outcome == "succeeded" for job in jobs)
    return succeeded, found
