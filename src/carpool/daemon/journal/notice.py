"""The text for users of `carpool ls` about journal contents that could not be read, or are missing."""

from __future__ import annotations

import sqlite3

from carpool.core.model import Micros
from carpool.daemon.system.clock import wall_us

#: How long the notice is shown; `carpool doctor --journal` goes on showing the findings.
SHOWN_US: Micros = 7 * 24 * 3600 * 1_000_000
_UNREADABLE = "SELECT count(*), count(*) FILTER (WHERE source = 'jobs') FROM quarantine WHERE found_us > ?"
_LOST = "SELECT sum(last_job - first_job + 1), count(*) FROM losses WHERE found_us > ?"


def journal_notice(connection: sqlite3.Connection) -> str:
    """Return one line; empty: nothing was found in the last days."""
    since = (wall_us() - SHOWN_US,)
    rows, jobs = connection.execute(_UNREADABLE, since).fetchone()
    lost, findings = connection.execute(_LOST, since).fetchone()
    parts = [
        *([f"{_count(jobs, 'job')} of the journal could not be read"] if jobs else []),
        *([f"{_count(rows - jobs, 'other row')} of the journal could not be read"] if rows > jobs else []),
        *([f"{_count(lost, 'acknowledged job')} missing in the journal"] if lost else []),
        *(["the journal was damaged"] if findings and not lost else []),
    ]
    return f"{'; '.join(parts)}: carpool doctor --journal" if parts else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
