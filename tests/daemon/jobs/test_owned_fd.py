"""Descriptors of memory leave the daemon in one way, and for processes of their owner only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from carpool.core.model import JobId
from carpool.daemon.jobs.seat_table import OwnedFd, WrongOwner, release
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.shims.shim_table import ShimLinks
from carpool.protocol.seat import Packet, PacketType
from tests.daemon.rig import Rig

DAEMON = Path(__file__).parents[3] / "src/carpool/daemon"
#: Whoever hands descriptors to a socket, and what they are: of memory, by `release`; or the text of a job's start.
SENDERS = {
    "channels/connections.py": ["line.outbox.send(packet.encode(), descriptors)"],
    "privileges/by_helper.py": ["socket.send_fds(self._connection, [request], list(fds))"],  # pidfds, to root
    "privileges/helper.py": ["socket.send_fds(core, [json.dumps(answer).encode()], found)"],  # files of jobs and pidfds
    "shims/shim_table.py": ["session.send(messages.Keep(names[some], attached_pid), descriptors[some])"],
    "shims/sessions.py": ["self.outbox.send(msgspec.json.encode(message), fds)"],
    "shims/spawn.py": ["session.send(messages.Start(), [fd])"],
    "system/outbox.py": ["packets.send(self._socket, data, fds, socket.MSG_DONTWAIT)"],
}
SOCKETS = {"line.outbox", "self.outbox", "session", "packets", "socket", "self._socket", "connection"}


def test_what_is_the_receivers_own_is_let_out() -> None:
    assert release([OwnedFd(1000, 7), OwnedFd(1000, 8)], 1000) == [7, 8]
    assert release([], None) == []


@pytest.mark.parametrize("to", [1001, 0, None])
def test_another_users_memory_is_not(to: int | None) -> None:
    with pytest.raises(WrongOwner, match="memory of uid 1000 is not sent to a process of uid"):
        release([OwnedFd(1000, 7)], to)


async def test_a_channel_refuses_memory_of_another_user(rig: Rig) -> None:
    client, other = rig.attach(), rig.attach(1001)
    assert other.job.lane is not None
    memory = [rig.seating.lane_memory(other.job.lane)]
    with pytest.raises(WrongOwner):
        rig.lines.send(client.job.id, Packet(PacketType.LANE, a=other.job.lane), memory)
    assert client.silent()
    rig.lines.send(other.job.id, Packet(PacketType.LANE, a=other.job.lane), memory)
    packet, fds = other.receive()
    assert (packet.type, len(fds)) == (PacketType.LANE, 1)


class Session:
    """Of a shim."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []

    def send(self, message: object, fds: list[int]) -> None:
        self.sent.append(fds)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("owner", "sent"), [(1000, [[0]]), (1001, [])])
def test_a_shim_keeps_memory_of_its_jobs_owner_only(owner: int, sent: list[list[int]]) -> None:
    session, links, job = Session(), ShimLinks(GrantLedger(), lambda _job: 1000), JobId(3)
    links.connect(job, session)  # type: ignore[arg-type]
    try:
        links.keep(job, {"lane:1": OwnedFd(owner, 0)}, None)
    except WrongOwner:
        assert links.ledger.of(job).files == {}
    assert session.sent == sent


def sends(path: Path) -> list[str]:
    """Calls that hand more than a text to a socket or to what leads to one."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target, name = ast.unparse(node.func.value), node.func.attr
            more = name == "send" and target in SOCKETS and len(node.args) + len(node.keywords) > 1
            if more or name in ("sendmsg", "send_fds"):
                found.append(ast.unparse(node))
    return found


def test_nothing_else_sends_descriptors() -> None:
    found = {str(path.relative_to(DAEMON)): sends(path) for path in sorted(DAEMON.rglob("*.py"))}
    assert {path: calls for path, calls in found.items() if calls} == SENDERS
