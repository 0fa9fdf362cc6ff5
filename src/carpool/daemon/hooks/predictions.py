"""The daemon checks once a day how well the simulator predicts its jobs: `carpool simulate --check`, as a process.

The process has the lowest priority, and limits of time and of processor time: it ends even if the daemon does not live
to see that.  What it finds, it keeps in the home (`carpool.protocol.predictions`); a failure is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO

from carpool.core.model import Micros
from carpool.daemon.hooks.base import JobHook, Work
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.pidwatch import PidWatch
from carpool.protocol.paths import Home
from carpool.protocol.predictions import FEWEST_JOBS

log = logging.getLogger(__name__)
INTERVAL_S = 3600.0  # between two looks, also before the first
EVERY_US: Micros = 86_400_000_000
LIMIT_S = 900.0
PROCESSOR_S = 120
#: Of `nice`, and of ``oom_score_adj``: jobs come first.
NICE, EXPENDABLE = 19, 500
LONGEST = 300  # characters of an error in the log


class PredictionChecks(JobHook):
    """Checks the jobs that have ended since the last check, if that was a day ago and there are enough."""

    def __init__(self, home: Home, jobs: JobTable, *, enabled: bool) -> None:
        self._home = home
        self._jobs = jobs
        self._enabled = enabled
        self._tried_us: Micros = 0
        self._failed = False

    def work(self) -> Mapping[str, Work]:
        """Look every hour whether a check is due."""
        return {"checking predictions": self._run} if self._enabled else {}

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self.due(wall_us()):
                await self.check()

    def due(self, now_us: Micros) -> bool:
        """Return whether the last check, also a failed one, was a day ago, and enough jobs have ended since."""
        last = max(self._tried_us, _changed_us(self._home.predictions))
        since = (job for job in self._jobs.ended.values() if job.ended_us > last)
        return now_us - last >= EVERY_US and len([*islice(since, FEWEST_JOBS)]) == FEWEST_JOBS

    async def check(self) -> None:
        """Check, and wait for the end of the process, which has ended when this returns."""
        self._tried_us = wall_us()
        try:
            why = await _checked(self._home.root)
        except OSError as error:
            why = error.strerror or str(error)
        if why and not self._failed:
            log.warning("the simulator's predictions could not be checked: %s", why)
        self._failed = bool(why)


def _changed_us(path: Path) -> Micros:
    """Return when a file was written last; 0: there is none."""
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0


async def _checked(home: Path) -> str:
    """Run a check; return what went wrong, or an empty text.  Raises OSError."""
    with _unnamed_file() as said:
        process = _started(home, said.fileno())
        ended = asyncio.Event()
        watch = PidWatch(process.pid, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), LIMIT_S)
        except TimeoutError:
            return f"it takes longer than {LIMIT_S:.0f} s"
        finally:
            watch.stop()
            process.kill()
            process.wait()
        said.seek(0)
        return _last_line(said.read()) if process.returncode else ""


def _unnamed_file() -> IO[bytes]:
    return open(os.memfd_create("carpool-check", os.MFD_CLOEXEC), "w+b")


def _started(home: Path, stderr: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "carpool.cli", "simulate", "--check", "--home", str(home)]
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=null, stdout=null, stderr=stderr, cwd="/", start_new_session=True)
    with suppress(OSError):  # it may have ended already
        os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(str(EXPENDABLE))
    return process


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines() or ["its process was killed"]
    return lines[-1][:LONGEST]
