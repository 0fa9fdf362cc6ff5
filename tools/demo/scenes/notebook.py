"""A notebook that is idle most of the time, and a batch job: the device for one of them, or shared."""

from __future__ import annotations

from pathlib import Path

from tools.demo.picture import Band
from tools.demo.running import check, follow, time_limit
from tools.demo.scene import Scene
from tools.demo.session import Session
from tools.demo.submitting import CAPACITY, band, example, program, seconds, until_computing

TITLE = "A notebook idles beside a batch job"
WHY = "The turn belongs to whoever computes: while the person at the notebook thinks, the batch job has the device."


def run(directory: Path) -> Scene:
    before, alone = _run(directory / "alone", "one job on the device", exclusive=True)
    after, shared = _run(directory / "shared", "shared", exclusive=False)
    figure = "the batch job has ended after, one job per device -> shared"
    return Scene("notebook", TITLE, figure, f"{before:.1f} s", f"{after:.1f} s", WHY, [alone, shared], CAPACITY)


def _run(home: Path, title: str, exclusive: bool) -> tuple[float, Band]:
    with Session(home, [f"host:{CAPACITY}B"], "fair") as client, time_limit(f"the batch job, {title}"):
        notebook = program(client, "notebook", exclusive=exclusive)
        until_computing(client, [notebook])
        batch = example(client, "cnn", 12)
        found = band(title, follow(client, {batch}), client)
        check(client.job(batch), home)
    return seconds(found.timeline, batch), found
