"""Jobs that wait for each other, so that none is through before the others have begun."""

from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack
from pathlib import Path

from tools.gpu_check.daemon import Daemon
from tools.gpu_check.registry import require

PATIENCE_S, LOOK_S = 120.0, 0.01


def outputs_together(shared: Daemon, commands: list[list[str]]) -> dict[int, str]:
    """What each job has printed last.  Commands: programs that call `meet` (`programs/meeting.py`), and arguments."""
    places = [shared.home / f"meeting{number}" for number in range(len(commands))]
    for place in places:
        os.mkfifo(place)
    jobs = [shared.submit(*command, MEETING=os.fspath(place)) for command, place in zip(commands, places, strict=True)]
    _begin(shared, dict(zip(jobs, places, strict=True)))
    return {job: shared.output(job) for job in jobs}


def _begin(shared: Daemon, places: dict[int, Path]) -> None:
    """Lets all go on when all are there: each reads its FIFO until nobody has that open for writing any more."""
    with ExitStack() as opened:
        for job, place in places.items():
            opened.callback(os.close, _when_there(shared, job, place))
    for place in places.values():
        place.unlink()


def _when_there(shared: Daemon, job: int, place: Path) -> int:
    """A descriptor of the job's FIFO, once the job has opened it, too."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return os.open(place, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        info = shared.client.job(job)
        require(info.phase != "ended", f"job {job} has ended before it met the others:\n{shared.log(job)[-1500:]}")
        require(time.monotonic() < deadline, f"job {job} does not come to the meeting: {info.reason}")
        time.sleep(LOOK_S)
