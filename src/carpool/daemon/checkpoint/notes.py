"""Memory needs of suspended jobs, recorded before the suspend: they cannot be measured afterwards."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from carpool.core.model import JobId

log = logging.getLogger(__name__)


class Note(msgspec.Struct, frozen=True):
    """What is known of a job that is suspended, or is about to be."""

    needed: int = 0  # bytes of device memory, contexts included; 0: nothing is known
    complete: bool = False  # all of its processes had been suspended


class Notes:
    """One small file for each job in the daemon's own directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, job: JobId, note: Note) -> None:
        """Write a note durably, all of it or nothing.  Raises OSError."""
        path = self._file(job)
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(note))
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self, job: JobId) -> Note:
        """Return the note of a job; an empty one if there is none, or it makes no sense."""
        try:
            return msgspec.json.decode(self._file(job).read_bytes(), type=Note)
        except FileNotFoundError:
            return Note()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("what job %d needs for its resume cannot be read: %s", job, error)
            return Note()

    def forget(self, job: JobId) -> None:
        self._file(job).unlink(missing_ok=True)

    def _file(self, job: JobId) -> Path:
        return self._directory / f"suspended-{job}"
