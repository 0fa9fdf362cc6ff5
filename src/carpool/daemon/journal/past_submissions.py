"""Submissions of jobs that have ended, read from the journal's file: memory keeps only their rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from carpool.core.model import JobId
from carpool.protocol.api import SubmitRequest


@dataclass(frozen=True, slots=True)
class PastSubmission:
    """``request``: without the environment, which is erased when a job ends; ``started``: whether the job ever ran."""

    request: SubmitRequest
    started: bool


def read_submissions(path: Path, jobs: Sequence[JobId]) -> dict[JobId, PastSubmission]:
    """Return the submissions of those jobs that the journal has.  Raises sqlite3.Error, ValueError."""
    numbers = ", ".join("?" * len(jobs))
    columns = "id, spec, started_us IS NOT NULL"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(f"SELECT {columns} FROM jobs WHERE id IN ({numbers})", jobs).fetchall()
    decode = msgspec.json.Decoder(SubmitRequest).decode
    return {job: PastSubmission(decode(spec), bool(started)) for job, spec, started in rows}
