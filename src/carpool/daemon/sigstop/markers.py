"""Markers of stopped processes that the daemon continues for a moment: they are stopped again even if it dies."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import suppress
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.privileges.base import Privileges, signal_process

log = logging.getLogger(__name__)

#: An older marker is out of date: the owner may have continued the job meanwhile.
RECENT_S = 60.0


class StopMarkers:
    """One empty file in the daemon's own directory per process that runs although a user has stopped it."""

    def __init__(self, directory: Path, privileges: Privileges) -> None:
        self._directory = directory
        self._privileges = privileges

    def note(self, job: JobId) -> None:
        with suppress(OSError):  # a full disk, for example: then only a crash in this very moment is not covered
            self._file(job).touch()

    def forget(self, job: JobId) -> None:
        self._file(job).unlink(missing_ok=True)

    def settle(self, jobs: JobTable) -> None:
        """After a restart, stop the processes again that an earlier daemon had no time to stop."""
        for note in self._notes():
            try:
                job = jobs.live.get(int(note.name.removeprefix("continued-")))
                recent = time.time() - note.stat().st_mtime < RECENT_S
                note.unlink()
            except (OSError, ValueError) as error:
                log.warning("%s is no note of ours: %s", note, error)
                continue
            if job is not None and recent:
                self._stop(job)

    def _notes(self) -> list[Path]:
        try:
            return list(self._directory.glob("continued-*"))
        except OSError as error:
            log.warning("jobs that were stopped may run now: %s", error)
            return []

    def _file(self, job: JobId) -> Path:
        return self._directory / f"continued-{job}"

    def _stop(self, job: JobRecord) -> None:
        if job.seated is not None:
            try:
                signal_process(self._privileges, job.seated.pid, job.owner, signal.SIGSTOP)
            except OSError as error:
                log.warning("job %d was stopped and runs now: %s", job.id, error)
