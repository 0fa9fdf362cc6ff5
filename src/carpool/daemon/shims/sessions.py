"""The session socket: one SOCK_SEQPACKET connection per shim."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carpool.daemon.jobs.joined_process import JoinedProcess
from carpool.daemon.system.allowance import Allowances
from carpool.daemon.system.in_flight import InFlightTable
from carpool.daemon.system.listener import SocketListener, offer_to_containers, withdraw_from_containers
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.outbox import Outbox
from carpool.daemon.system.peer import peer_credentials, peer_pidfd, person_of
from carpool.daemon.system.processes import start_time
from carpool.protocol import packets
from carpool.protocol.session import Channel, FromShim, Join, Refused, Register, Rejoin, ToShim, decode_from_shim

if TYPE_CHECKING:
    from carpool.daemon.shims.supervisor import Processes

log = logging.getLogger(__name__)
#: Time for a shim to register, which it does as soon as it has connected.
REGISTER_S = 10.0
#: Incomplete registrations of one user may hold one in this many of the daemon's descriptors.
PENDING_SHARE = 4


class Session:
    """One connection of a shim.  ``job`` is None until the shim registers; ``ended`` is called when it is closed."""

    def __init__(self, connection: socket.socket, ended: Callable[[Session], None], in_flight: InFlightTable) -> None:
        self.connection = connection
        self._ended = ended
        self.pid, self.uid, _ = peer_credentials(connection)
        self.person = person_of(self.uid)
        self.job: int | None = None
        self.joining = False  # the process is about to become a job
        self.process: JoinedProcess | None = None  # of a session without a shim, once identified
        self.closed = False
        self._in_flight = in_flight
        self.outbox = Outbox(connection, in_flight.of(self.uid), self._overfull)
        self._kept: list[str] = []  # the part of a registration in several messages that has arrived so far
        self._fds: list[int] = []

    def send(self, message: ToShim, fds: Sequence[int] = ()) -> None:
        """Send to the shim, in order, as soon as it reads.  If the shim is gone, its pidfd reports that."""
        if self.closed:
            return
        try:
            self.outbox.send(msgspec.json.encode(message), fds)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the shim has just ended
        except OSError as error:
            kind = type(message).__name__
            log.warning("cannot send %s to the shim of job %s: %s", kind, self.job, error, extra=caused_by(self.uid))

    def registered(self, message: Register, fds: list[int]) -> tuple[Register, list[int]] | None:
        """Add a part of a registration; return the whole with its descriptors, or None while more is to come."""
        self._kept += message.kept
        self._fds += fds
        if message.more:
            return None
        (kept, self._kept), (fds, self._fds) = (self._kept, []), (self._fds, [])
        return msgspec.structs.replace(message, kept=kept), fds

    @property
    def pending(self) -> int:
        """Number of descriptors of a registration that is not complete."""
        return len(self._fds)

    def refuse(self, why: str) -> None:
        """Refuse the peer for good, and close the session."""
        self.send(Refused(why))
        self.close()

    def identify(self) -> JoinedProcess:
        """Return the process at the other end, which joins.  Raises OSError if it has ended or is not visible here."""
        if self.process is None:
            if not self.pid:
                raise ProcessLookupError(errno.ESRCH, "its PID namespace is not below the daemon's")
            pidfd = peer_pidfd(self.connection)
            self.process = JoinedProcess(self.pid, start_time(self.pid), pidfd)
        return self.process

    def expire(self) -> None:
        """Close the session if it has not registered in time."""
        if self.job is None and not self.closed and not self.joining:
            text = "dropping a session of pid %d (uid %d): it has not registered in time"
            log.warning(text, self.pid, self.uid, extra=caused_by(self.uid))
            self.close()

    def begin_joining(self) -> None:
        """Mark that the process is about to become a job."""
        self.joining = True

    def close(self) -> None:
        """Close the session: no more reading or sending.  Repeated calls do no harm."""
        if self.closed:
            return
        self.closed = True
        asyncio.get_running_loop().remove_reader(self.connection)
        self.outbox.close()
        self._hang_up()
        if self.process is not None and self.job is None:
            self.process.close()
        for fd in self._fds:
            os.close(fd)
        self._ended(self)

    def _hang_up(self) -> None:
        """Shut the connection down: the peer sees the end even where a duplicate of the socket stays open to count."""
        with suppress(OSError):  # the peer has hung up itself
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def _overfull(self, why: str) -> None:
        if not self.closed:
            self.close()
            if self.job is not None:
                self._in_flight.tell(self.job, why)

    def receive(self) -> tuple[FromShim, list[int]] | None:
        """Return the next message; None at the end of the connection.  Raises BlockingIOError, MalformedPacket."""
        return packets.receive(self.connection, decode_from_shim, socket.MSG_DONTWAIT)


class SessionServer:
    """Accepts shims and passes their messages on; makes no decisions: ``supervisor`` does."""

    def __init__(
        self,
        path: Path,
        mode: int,
        supervisor: Processes,
        allowances: Allowances,
        in_flight: InFlightTable,
        most_new: int,
    ) -> None:
        """``most_new``: the most sessions of one user that have not registered yet."""
        self._path = path
        self._mode = mode
        self._supervisor = supervisor
        self._allowances = allowances
        self._in_flight = in_flight
        self._most_new = most_new
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener = SocketListener(self._socket, self._accepted)
        self._sessions: set[Session] = set()

    def start(self) -> None:
        """Accept shims from now on."""
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        self._path.chmod(self._mode)
        self._socket.listen(512)
        offer_to_containers(self._path)
        self._listener.start()

    def close(self) -> None:
        """Close everything as the daemon ends; shims look for the next daemon."""
        self._listener.close()
        for session in tuple(self._sessions):
            session.close()
        withdraw_from_containers(self._path)
        self._path.unlink(missing_ok=True)

    def _accepted(self, connection: socket.socket) -> None:
        try:
            session = Session(connection, self._sessions.discard, self._in_flight)
        except OSError as error:
            log.error("cannot tell who has connected: %s", error)
            connection.close()  # the shim connects again
            return
        if sum(other.job is None and other.person == session.person for other in self._sessions) >= self._most_new:
            text = "uid %d has %d sessions that have not registered: another one (pid %d) is dropped"
            log.warning(text, session.uid, self._most_new, session.pid, extra=caused_by(session.uid))
            session.close()
            return
        self._sessions.add(session)
        asyncio.get_running_loop().add_reader(connection, self._readable, session)
        asyncio.get_running_loop().call_later(REGISTER_S, session.expire)

    def _readable(self, session: Session) -> None:
        if self._rests(session):
            return
        try:
            received = session.receive()
        except BlockingIOError:
            return
        except ConnectionResetError:
            received = None  # the peer ended without reading the daemon's last message
        except (ValueError, OSError) as error:
            log.warning("dropping a session of pid %d: %s", session.pid, error, extra=caused_by(session.uid))
            received = None
        if received is None:
            session.close()
            return
        self._heard(session, *received)

    def _heard(self, session: Session, message: FromShim, fds: list[int]) -> None:
        if isinstance(message, Join | Rejoin):
            self._without_shim(session, message, fds)
            return
        if isinstance(message, Register):
            self._register(session, message, fds)
            return
        if isinstance(message, Channel) and fds and session.job is not None:
            self._supervisor.channel(session, message, fds.pop())
        for fd in fds:
            os.close(fd)
        if session.job is not None and not isinstance(message, Channel):
            self._supervisor.message(session, message)

    def _without_shim(self, session: Session, message: Join | Rejoin, fds: list[int]) -> None:
        """Handle a process without a shim.  A session belongs to one process and one job, so a process joins once."""
        try:
            if session.job is not None or session.joining:
                raise OSError(errno.EISCONN, "it has joined already")
            session.identify()
        except OSError as error:
            text = "dropping a session of pid %d (uid %d) that joins: %s"
            log.warning(text, session.pid, session.uid, error, extra=caused_by(session.uid))
            _close(fds)
            session.close()
            return
        if isinstance(message, Rejoin):
            whole = Register(message.job, session.pid, kept=message.kept, attempt=message.attempt, more=message.more)
            self._register(session, whole, fds)
        elif len(fds) != 1:
            _close(fds)
            session.refuse("a process that joins brings the daemon's end of its channel, and nothing else")
        else:
            session.begin_joining()
            self._supervisor.join(session, message, fds[0])

    def _rests(self, session: Session) -> bool:
        """Return whether the user is over the rate, so that this session is not read for a moment.

        A shim that was disconnected instead would lose what has been sent to it, and could not keep it for its job.
        """
        allowance = self._allowances.of(session.uid)
        pause_s = 0.0 if allowance.spend() else allowance.pause_s()
        if not pause_s:
            return False
        _rest(session.connection, pause_s, self._readable, session)
        if allowance.newly_over():
            text = "pid %d (uid %d) sends faster than packets_per_s allows: sessions of that user are read more slowly"
            log.warning(text, session.pid, session.uid, extra=caused_by(session.uid))
        return True

    def _register(self, session: Session, message: Register, fds: list[int]) -> None:
        """Check each part of a registration before anything of it is kept."""
        refusal = self._supervisor.refusal(session, message) or self._too_many(session, fds)
        if not refusal and len(fds) < len(message.kept) + (not session.pending):
            text = "the shim of job %d (pid %d) registers without all of its descriptors; it may come again"
            log.warning(text, message.job, session.pid, extra=caused_by(session.uid))
            _close(fds)
            session.close()
            return
        if refusal:
            text = "refusing the shim of job %d (pid %d, uid %d): %s"
            log.warning(text, message.job, session.pid, session.uid, refusal, extra=caused_by(session.uid))
            _close(fds)
            session.refuse(refusal)
            return
        whole = session.registered(message, fds)
        if whole is not None:
            self._supervisor.registered(session, *whole)

    def _too_many(self, session: Session, fds: list[int]) -> str:
        pending = len(fds) + sum(other.pending for other in self._sessions if other.person == session.person)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // PENDING_SHARE
        return f"uid {session.uid} registers more than {most} descriptors at once" if pending > most else ""


def _rest(source: socket.socket, pause_s: float, readable: Callable[..., None], *arguments: object) -> None:
    """Do not read a socket for ``pause_s``; then ``readable`` reads again, unless the socket has been closed."""

    def go_on() -> None:
        if source.fileno() >= 0:
            loop.add_reader(source, readable, *arguments)

    loop = asyncio.get_running_loop()
    loop.remove_reader(source)
    loop.call_later(pause_s, go_on)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
