"""The journal's table of breakdowns: where the time of a job's last attempt went, for simulations."""

from __future__ import annotations

from typing import NamedTuple

from carpool.core.model import JobId, Micros
from carpool.daemon.journal.rows import LARGEST_NUMBER
from carpool.daemon.journal.writer import Statement

TABLES = """
CREATE TABLE IF NOT EXISTS breakdowns (  -- of the last attempt of jobs that have ended; NULL: not known
  job INTEGER PRIMARY KEY,
  startup_us INTEGER,          -- on the host until its first iteration has ended; if it has none, until its first turn
  startup_turn_us INTEGER NOT NULL,     -- turn time until then, and
  startup_iterations INTEGER NOT NULL,  -- iterations that had ended when that was seen
  startup_cpu_us INTEGER,      -- processor time of its process until then
  startup_delay_us INTEGER,    -- for which its main thread waited for a processor
  work_delay_us INTEGER,       -- the same from then on until its last iteration or turn has ended
  host_us INTEGER,             -- on the host between its later turns
  end_us INTEGER NOT NULL,     -- after its last iteration or turn
  end_turn_us INTEGER NOT NULL,  -- of end_us: it still had its turn, which no other job wanted
  end_cpu_us INTEGER,
  end_delay_us INTEGER,
  alone_us INTEGER NOT NULL,   -- turn time in which no other job slowed it, and iterations then
  alone_iterations INTEGER NOT NULL,
  beside_us INTEGER NOT NULL,  -- turn time beside others, and iterations then
  beside_iterations INTEGER NOT NULL
);
"""


class BreakdownRow(NamedTuple):
    """A row of the table `breakdowns`."""

    job: JobId
    startup_us: Micros | None
    startup_turn_us: Micros
    startup_iterations: int
    startup_cpu_us: Micros | None
    startup_delay_us: Micros | None
    work_delay_us: Micros | None
    host_us: Micros | None
    end_us: Micros
    end_turn_us: Micros
    end_cpu_us: Micros | None
    end_delay_us: Micros | None
    alone_us: Micros
    alone_iterations: int
    beside_us: Micros
    beside_iterations: int


_PUT = f"INSERT OR REPLACE INTO breakdowns VALUES ({', '.join('?' * len(BreakdownRow._fields))})"


def breakdown_statement(row: BreakdownRow) -> Statement:
    """Return the statement that records a row.  Jobs write their counters themselves: large ones are cut off."""
    return _PUT, [[None if value is None else min(value, LARGEST_NUMBER) for value in row]]
