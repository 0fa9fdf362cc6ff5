"""Running jobs of which the journal has no record that can be read: they go on under a stand-in.

Without a record a daemon would refuse the job's shim, and the job would stop for ever at its next turn, with all of its
memory.  A running job needs little: its owner, which the directory says, and what it asked of its devices, which the
event of its submission says.  Its command and its environment are lost, so it is never started again.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterator

import msgspec

from carpool.core.events import Submitted
from carpool.core.model import JobId, JobSpec
from carpool.daemon.jobs.files import shim_lives
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.row_types import LARGEST_NUMBER
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.clock import wall_us
from carpool.options.requests import told_to_core
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
_SUBMITTED = "SELECT data FROM events WHERE kind = 'Submitted' AND job = ? ORDER BY seq DESC"


def stand_ins(
    connection: sqlite3.Connection, privileges: Privileges, home: Home, known: Collection[JobId]
) -> Iterator[JobRecord]:
    """Yield stand-ins for the jobs that run, and are not ``known``."""
    for path in sorted(home.jobs.iterdir()):
        name = path.name
        number = int(name) if name.isascii() and name.isdecimal() and len(name) < 20 else 0
        missing = 0 < number <= LARGEST_NUMBER and number not in known
        if missing and shim_lives(privileges, home.job(number)):
            log.error(
                "job %d runs, and the journal has no record of it: it goes on, and is never started again", number
            )
            status = path.stat()
            yield _stand_in(number, status.st_uid, status.st_gid, _spec(connection, number))


def _spec(connection: sqlite3.Connection, job: JobId) -> JobSpec:
    """Return what the core was told of the job, or the defaults if that cannot be found either."""
    for (data,) in connection.execute(_SUBMITTED, (job,)):
        try:
            return msgspec.json.decode(data, type=Submitted).spec
        except (msgspec.MsgspecError, TypeError):
            log.warning("the event of job %d's submission cannot be read", job)
    return JobSpec(owner=0)


def _stand_in(number: JobId, owner: int, gid: int, spec: JobSpec) -> JobRecord:
    devices = (spec.device,) if isinstance(spec.device, str) else spec.device
    told = told_to_core(spec) | {"name": spec.name or "(unknown)", "array": None, "index": None, "group": ""}
    request = SubmitRequest(
        argv=["(unknown)"],
        cwd="/",
        env={},
        device=None if devices is None else ",".join(devices),
        gpus=spec.gang,
        service=None if spec.service is None else spec.service.priority,
        **told,
    )
    return JobRecord(number, owner, gid, request, spec.estimate, wall_us(), startable=False)
