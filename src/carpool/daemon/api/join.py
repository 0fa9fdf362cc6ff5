"""Jobs of processes that join over the session socket: checked and counted like submissions."""

from __future__ import annotations

from carpool.daemon.api.context import Caller, Context
from carpool.daemon.api.middleware import check_user
from carpool.daemon.api.submit import submit_one
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import SubmitRequest


async def join(context: Context, who: Caller, asked: SubmitRequest) -> JobRecord:
    """Submit a job for a process that joins, as soon as the daemon has restarted.  Raises RequestError, JournalFull."""
    check_user(who.uid, context)
    await context.ready.wait()
    return await submit_one(context, asked, who, joined=True)
