"""A short job arrives behind two long ones: in order of arrival, and shortest remaining time first."""

from __future__ import annotations

from pathlib import Path

from tools.demo.picture import Band
from tools.demo.running import follow, time_limit
from tools.demo.scene import Scene
from tools.demo.session import Session
from tools.demo.submitting import CAPACITY, ONE_LANE, band, example, seconds, until_computing

TITLE = "A short job arrives behind two long ones"
WHY = "srtf gives each turn to the job with the least left to do; turns change hands between iterations."


def run(directory: Path) -> Scene:
    before, fifo = _run(directory / "fifo", "fifo")
    after, srtf = _run(directory / "srtf", "srtf")
    figure = "the short job has ended after, fifo -> srtf"
    return Scene("short-job", TITLE, figure, f"{before:.1f} s", f"{after:.1f} s", WHY, [fifo, srtf], CAPACITY)


def _run(home: Path, policy: str) -> tuple[float, Band]:
    """Until the short job has ended: what the long ones do then is no matter."""
    with Session(home, [f"host:{CAPACITY}B"], policy, ONE_LANE) as client, time_limit(f"the short job under {policy}"):
        long = [example(client, "gpt", 20), example(client, "resnet", 14)]
        until_computing(client, long[:1])
        short = example(client, "mlp", 30)
        events = follow(client, {short})
        found = band(policy, events, client)
    return seconds(found.timeline, short), found
