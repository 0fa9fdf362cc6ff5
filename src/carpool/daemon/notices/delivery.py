"""One try to deliver a notice, by a process of the job's owner: root's daemon connects to nothing for its users."""

from __future__ import annotations

import asyncio
import socket

import msgspec

from carpool.daemon.jobs.notice import Notice
from carpool.daemon.privileges.base import Child, Privileges
from carpool.daemon.privileges.children import ended_within

#: For all that a notifier does; it has shorter limits of its own, and is its user's process.
PATIENCE_S = 90.0
LARGEST_ANSWER = 1000


async def deliver(privileges: Privileges, notice: Notice, patience_s: float = PATIENCE_S) -> str:
    """What went wrong, for people; empty: the target has it.  Raises OSError where no process can be started."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = privileges.spawn_notifier(theirs.fileno(), notice.owner, notice.gid)
        ours.setblocking(False)
        talk = asyncio.create_task(_talk(ours, msgspec.json.encode(_request(notice))))
        try:
            return await _outcome(privileges, child, notice.owner, talk, patience_s)
        finally:
            talk.cancel()


async def _outcome(
    privileges: Privileges, child: Child, owner: int, talk: asyncio.Task[bytes], patience_s: float
) -> str:
    if not await ended_within(privileges, child, owner, patience_s):
        return f"no answer within {patience_s:.0f} s"
    answer = (await talk).decode(errors="replace")
    return answer.removeprefix("ok") if answer.startswith("ok") else answer or "the process that sends it was killed"


async def _talk(ours: socket.socket, request: bytes) -> bytes:
    """A process that has ended reads no more, and what it has said can still be read."""
    loop, answer = asyncio.get_running_loop(), b""
    try:
        await loop.sock_sendall(ours, request)
        ours.shutdown(socket.SHUT_WR)
        while len(answer) < LARGEST_ANSWER and (piece := await loop.sock_recv(ours, LARGEST_ANSWER)):
            answer += piece
    except ConnectionError:
        pass
    return answer[:LARGEST_ANSWER]


def _request(notice: Notice) -> dict[str, object]:
    """What `carpool.runtime.notifier` reads."""
    target, body = notice.target, msgspec.json.encode(notice.body).decode()
    if target.webhook:
        return {"webhook": target.webhook, "body": body}
    return {"command": target.command, "cwd": notice.cwd, "variables": _variables(notice)}


def _variables(notice: Notice) -> dict[str, str]:
    """``CARPOOL_EVENT``, and ``CARPOOL_JOB_...`` for the rest; a command is no job, so it has no ``CARPOOL_JOB``."""
    fields = msgspec.structs.asdict(notice.body)
    event, job = fields.pop("event"), fields.pop("job")
    rest = {f"CARPOOL_JOB_{name.upper()}": "" if value is None else str(value) for name, value in fields.items()}
    return {"CARPOOL_EVENT": event, "CARPOOL_JOB_ID": str(job)} | rest
