"""The parts of a recorded job as it would take them alone, from its row and the journal's table of breakdowns.

Turn time is not work: beside other jobs each iteration took longer, and the simulator slows it again.  So iterations
beside others count as long as those alone, of the job itself or of other runs of its command.  Start-up, iterations and
end count without the time for which the process waited for a processor.  What a first turn took beyond an iteration is
start-up.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from carpool.core.model import Micros

#: Iterations alone from which the pace of a job counts.
LEAST_ITERATIONS = 2
_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'breakdowns'"
_BREAKDOWNS = "SELECT * FROM breakdowns"
#: An iteration's time as a sum, which is not rounded: turn time, and iterations.
Pace = tuple[Micros, int]


class RecordedParts(NamedTuple):
    """Sums over the job, microseconds.

    ``known``: its pace alone is known, or it has always computed alone; ``whole``: its times on the host are known.
    """

    work_us: Micros
    startup_us: Micros = 0
    startup_cpu_us: Micros | None = None
    host_us: Micros = 0
    end_us: Micros = 0
    end_cpu_us: Micros | None = None
    known: bool = True
    whole: bool = True


@dataclass(frozen=True, slots=True)
class JournalBreakdowns:
    """The breakdowns of jobs, by their numbers, and the paces of commands that have computed alone."""

    rows: Mapping[int, sqlite3.Row]
    paces: Mapping[Hashable, Pace]

    def parts(self, job: sqlite3.Row, startup_us: Micros) -> RecordedParts:
        """Return the parts of a job.  ``startup_us``: its time up to the first use of the framework; 0: not known."""
        row = self.rows.get(job["id"])
        if row is None:
            return RecordedParts(max(1, job["device_us"]), startup_us, known=False, whole=False)
        return _parts(job, row, _pace(row) or self.paces.get(_command(job)), startup_us)


def read_breakdowns(connection: sqlite3.Connection, jobs: Iterable[sqlite3.Row]) -> JournalBreakdowns:
    """Read the breakdowns of the jobs; a journal of an earlier Carpool has none."""
    found = connection.execute(_BREAKDOWNS).fetchall() if connection.execute(_TABLE).fetchone() else []
    rows = {row["job"]: row for row in found}
    sums: dict[Hashable, Pace] = defaultdict(lambda: (0, 0))
    for job in jobs:
        if row := rows.get(job["id"]):
            total_us, iterations = sums[_command(job)]
            sums[_command(job)] = total_us + row["alone_us"], iterations + row["alone_iterations"]
    return JournalBreakdowns(rows, {command: pace for command, pace in sums.items() if pace[1] >= LEAST_ITERATIONS})


def _command(job: sqlite3.Row) -> Hashable:
    """Return what runs of one command on one device have in common."""
    spec: dict[str, Any] = json.loads(job["spec"])
    return job["owner"], job["device"], spec.get("cwd"), tuple(spec["argv"]), spec.get("gpus", 1)


def _pace(row: sqlite3.Row) -> Pace | None:
    return (row["alone_us"], row["alone_iterations"]) if row["alone_iterations"] >= LEAST_ITERATIONS else None


def _parts(job: sqlite3.Row, row: sqlite3.Row, alone: Pace | None, startup_us: Micros) -> RecordedParts:
    work_us = _later_work_us(job, row, alone)
    later = job["iterations"] - row["startup_iterations"]
    first = row["startup_turn_us"], max(1, row["startup_iterations"])
    pace = (work_us, later) if later > 0 else alone or first
    warm_up_us = min(first[0], _takes(pace, row["startup_iterations"]))
    whole = row["startup_us"] is not None
    before_us = (row["startup_us"] if whole else startup_us) + row["startup_turn_us"] - warm_up_us
    return RecordedParts(
        work_us=max(1, work_us + warm_up_us),
        startup_us=max(0, before_us - (row["startup_delay_us"] or 0)),
        startup_cpu_us=None if row["startup_cpu_us"] is None else max(0, row["startup_cpu_us"] - warm_up_us),
        host_us=row["host_us"] or 0,
        end_us=max(0, row["end_us"] - (row["end_delay_us"] or 0)),
        end_cpu_us=row["end_cpu_us"],
        known=alone is not None or (row["alone_iterations"] > 0 and not row["beside_iterations"]),
        whole=whole,
    )


def _later_work_us(job: sqlite3.Row, row: sqlite3.Row, alone: Pace | None) -> Micros:
    """Return what its iterations after start-up would take alone: less what others on its device or its cores took."""
    turn_us: Micros = max(0, job["device_us"] - row["end_turn_us"] - row["startup_turn_us"])
    slowed_us = max(0, row["beside_us"] - _takes(alone, row["beside_iterations"])) if alone else 0
    delay_us: Micros = row["work_delay_us"] or 0
    return max(0, turn_us - max(slowed_us, delay_us))


def _takes(pace: Pace, iterations: int) -> Micros:
    return pace[0] * iterations // pace[1]
