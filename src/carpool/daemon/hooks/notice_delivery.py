"""The delivery of a notice by a process of the job's owner: a daemon of root makes no connections for its users."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial

import msgspec

from carpool.daemon.cgroups.job_groups import JobGroups
from carpool.daemon.journal.notices import Notice
from carpool.daemon.privileges.base import Child, Privileges, ended_within
from carpool.daemon.system.log_limit import log_problems

#: Limit for a whole run of a notifier, which has shorter limits of its own and is a process of its user.
PATIENCE_S = 90.0
LARGEST_ANSWER = 1000
READY = b"+"  # what `carpool.runtime.notifier` says first


async def deliver(privileges: Privileges, groups: JobGroups, notice: Notice, patience_s: float = PATIENCE_S) -> str:
    """Deliver a notice; return what went wrong, or an empty text.  Raises OSError if no process can be started.

    Processes that the notifier leaves running are killed, where there are control groups.
    """
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        child = await asyncio.to_thread(_spawned, privileges, theirs, notice)
        talk = asyncio.create_task(_talk(ours, notice, groups, child.pid))
        try:
            if not await ended_within(privileges, child, notice.owner, patience_s):
                return f"no answer within {patience_s:.0f} s"
            answer = (await talk).decode(errors="replace")
            return answer.removeprefix("ok") if answer.startswith("ok") else answer or "its process was killed"
        finally:
            talk.cancel()
            await _logged(notice, partial(groups.end_notifier, notice.owner, child.pid))


def _spawned(privileges: Privileges, theirs: socket.socket, notice: Notice) -> Child:
    """Spawn the notifier, in a thread because a user's groups may come from a server; close its end of the socket."""
    with theirs:
        return privileges.spawn_notifier(theirs.fileno(), notice.owner, notice.gid)


async def _talk(ours: socket.socket, notice: Notice, groups: JobGroups, pid: int) -> bytes:
    """Send the process its request, after it has reported that it runs as its user and has its control group.

    Without its group the process would have no limit.  What a process says before it ends is read in any case.
    """
    loop, answer = asyncio.get_running_loop(), b""
    try:
        if not await loop.sock_recv(ours, len(READY)):
            return b""
        problems = await _logged(notice, partial(groups.enter_notifier, notice.owner, pid))
        if problems and groups.limited:
            ours.shutdown(socket.SHUT_RDWR)  # the process ends
            return problems[0].encode()[:LARGEST_ANSWER]
        await loop.sock_sendall(ours, msgspec.json.encode(_request(notice)))
        ours.shutdown(socket.SHUT_WR)
        while len(answer) < LARGEST_ANSWER and (piece := await loop.sock_recv(ours, LARGEST_ANSWER)):
            answer += piece
    except ConnectionError:
        pass
    return answer[:LARGEST_ANSWER]


async def _logged(notice: Notice, work: Callable[[], list[str]]) -> list[str]:
    problems = await asyncio.to_thread(work)
    log_problems(notice.owner, problems)
    return problems


def _request(notice: Notice) -> dict[str, object]:
    """Return the request that `carpool.runtime.notifier` reads."""
    target = notice.target
    if target.webhook:
        return {"webhook": target.webhook, "body": msgspec.json.encode(notice.body).decode()}
    return {"command": target.command, "cwd": notice.cwd, "variables": _variables(notice)}


def _variables(notice: Notice) -> dict[str, str]:
    """Return ``CARPOOL_EVENT`` and ``CARPOOL_JOB_...`` for the rest; no ``CARPOOL_JOB``, as a command is no job."""
    named = {"event": "CARPOOL_EVENT", "job": "CARPOOL_JOB_ID"}
    texts = {name: "" if value is None else str(value) for name, value in notice.body.items()}
    return {named.get(name, f"CARPOOL_JOB_{name.upper()}"): text for name, text in texts.items()}
