"""Removing surplus events from the users who have most: no user's events push the history of others out.

Events of no job have a share of their own, and so have those of jobs that have been removed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from carpool.daemon.system.persons import person_of

#: Deletes an event that has been chosen.
DELETE = "DELETE FROM events WHERE seq = ?"
NO_JOB, REMOVED = -1, -2
_COUNT = "SELECT count(*) FROM events WHERE ring = ?"
_SHARES = f"""CREATE TEMP TABLE shares AS
  SELECT job, CASE WHEN job IS NULL THEN {NO_JOB} ELSE coalesce(owner, {REMOVED}) END AS person
  FROM (SELECT DISTINCT job FROM events WHERE ring = ?) LEFT JOIN jobs ON id = job"""
#: The newest event of each person has place 1: the largest place is the oldest event of the person with most events.
#: The event of a job's submission stays until that job has ended, and so does the last event: numbers go on from there.
_CHOSEN = """SELECT seq FROM
  (SELECT seq, kind, job, row_number() OVER (PARTITION BY person ORDER BY seq DESC) AS place
   FROM (SELECT seq, kind, events.job, person FROM events JOIN shares ON shares.job IS events.job WHERE ring = ?))
  WHERE seq < (SELECT max(seq) FROM events)
    AND NOT (kind = 'Submitted' AND job IN (SELECT id FROM jobs WHERE phase != 'ended'))
  ORDER BY place DESC, seq LIMIT ?"""


def excess(path: Path, most: int, *, frequent: bool) -> list[tuple[int]]:
    """Return the numbers of surplus events, as rows: without them ``most`` are left.  ``frequent``: which kinds.

    Reads the journal's file for a while.  Raises sqlite3.Error.
    """
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute(_COUNT, (frequent,)).fetchone()
        if count <= most:
            return []
        connection.execute(_SHARES, (frequent,))
        owners = [owner for (owner,) in connection.execute("SELECT DISTINCT person FROM shares WHERE person >= 0")]
        persons = [(person, owner) for owner in owners if (person := person_of(owner)) != owner]
        connection.executemany("UPDATE shares SET person = ? WHERE person = ?", persons)
        return connection.execute(_CHOSEN, (frequent, count - most)).fetchall()
