"""One try to deliver a notice, by a process of the job's owner: a daemon of root makes no connections for its users."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from carpool.daemon.cgroups.job_groups import JobGroups
from carpool.daemon.jobs.notice import Notice
from carpool.daemon.privileges.base import Child, Privileges
from carpool.daemon.privileges.children import ended_within
from carpool.daemon.system.log_limit import caused_by

log = logging.getLogger(__name__)

#: Limit for a whole run of a notifier, which has shorter limits of its own and is a process of its user.
PATIENCE_S = 90.0
LARGEST_ANSWER = 1000
READY = b"+"  # what `carpool.runtime.notifier` says first


async def deliver(privileges: Privileges, groups: JobGroups, notice: Notice, patience_s: float = PATIENCE_S) -> str:
    """Try to deliver a notice; return what went wrong, or an empty text.  Raises OSError if no process can be started.

    Processes that the notifier leaves running are killed, where there are control groups.
    """
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        child = await asyncio.to_thread(_spawned, privileges, theirs, notice)
        try:
            talk = asyncio.create_task(_talk(ours, notice, partial(_enter, groups, notice, child.pid)))
            try:
                return await _outcome(privileges, child, notice.owner, talk, patience_s)
            finally:
                talk.cancel()
        finally:
            await _logged(notice, partial(groups.end_notifier, notice.owner, child.pid))


def _spawned(privileges: Privileges, theirs: socket.socket, notice: Notice) -> Child:
    """Spawn the notifier, in a thread because a user's groups may come from a server; close its end of the socket."""
    with theirs:
        return privileges.spawn_notifier(theirs.fileno(), notice.owner, notice.gid)


async def _outcome(
    privileges: Privileges, child: Child, owner: int, talk: asyncio.Task[bytes], patience_s: float
) -> str:
    if not await ended_within(privileges, child, owner, patience_s):
        return f"no answer within {patience_s:.0f} s"
    answer = (await talk).decode(errors="replace")
    return answer.removeprefix("ok") if answer.startswith("ok") else answer or "the process that sends it was killed"


async def _enter(groups: JobGroups, notice: Notice, pid: int) -> str:
    """Put the process into its control group; return why it may not run, or an empty text if it may.

    Without its group the process would have no limit.
    """
    problems = await _logged(notice, partial(groups.enter_notifier, notice.owner, pid))
    return problems[0] if problems and groups.limited else ""


async def _talk(ours: socket.socket, notice: Notice, enter: Callable[[], Awaitable[str]]) -> bytes:
    """Send the process its request, after the process has reported that it runs as its user and has its control group.

    If the process has ended, nothing more is sent, and what it has said can still be read.
    """
    loop, answer = asyncio.get_running_loop(), b""
    try:
        if not await loop.sock_recv(ours, len(READY)):
            return b""
        if refused := await enter():
            ours.shutdown(socket.SHUT_RDWR)  # the process ends
            return refused.encode()[:LARGEST_ANSWER]
        await loop.sock_sendall(ours, msgspec.json.encode(_request(notice)))
        ours.shutdown(socket.SHUT_WR)
        while len(answer) < LARGEST_ANSWER and (piece := await loop.sock_recv(ours, LARGEST_ANSWER)):
            answer += piece
    except ConnectionError:
        pass
    return answer[:LARGEST_ANSWER]


async def _logged(notice: Notice, work: Callable[[], list[str]]) -> list[str]:
    problems = await asyncio.to_thread(work)
    for problem in problems:
        log.warning("%s", problem, extra=caused_by(notice.owner))
    return problems


def _request(notice: Notice) -> dict[str, object]:
    """Return the request that `carpool.runtime.notifier` reads."""
    target, body = notice.target, msgspec.json.encode(notice.body).decode()
    if target.webhook:
        return {"webhook": target.webhook, "body": body}
    return {"command": target.command, "cwd": notice.cwd, "variables": _variables(notice)}


def _variables(notice: Notice) -> dict[str, str]:
    """Return ``CARPOOL_EVENT`` and ``CARPOOL_JOB_...`` for the rest; no ``CARPOOL_JOB``, as a command is no job."""
    fields = msgspec.structs.asdict(notice.body)
    event, job = fields.pop("event"), fields.pop("job")
    rest = {f"CARPOOL_JOB_{name.upper()}": "" if value is None else str(value) for name, value in fields.items()}
    return {"CARPOOL_EVENT": event, "CARPOOL_JOB_ID": str(job)} | rest
