"""The shim's connection to the daemon, and the descriptors kept for the time without a daemon.

Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket

from carpool.protocol import packets
from carpool.protocol.packets import MAX_FDS

MOST_CHANNELS = 256  # channels of live processes: the daemon drops those of dead ones
HEADER_BYTES, SEAT_BYTES = 4096, 512  # as in carpool.protocol.seat


class DaemonLink:
    """The connection and the kept descriptors, which outlive it; the first is the daemon's end of the job channel."""

    def __init__(self, path: str, job: int, attempt: int = 1) -> None:
        self._path = path
        self._attempt = attempt
        self._job = job
        self.socket: socket.socket | None = None
        ours, jobs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel, self.job_fd = ours.detach(), jobs.detach()
        self._kept: dict[str, int] = {}
        self._attached_pid: int | None = None
        self._channels = 0
        self.child_pid: int | None = None

    def connect(self) -> bool:
        """Try once to reach a daemon and register."""
        try:
            self.socket = _connected(self._path)
        except OSError:
            return False
        names = list(self._kept)
        # The channel's end takes one place in the first message.
        parts = [names[: MAX_FDS - 1]]
        parts += [names[begin : begin + MAX_FDS] for begin in range(MAX_FDS - 1, len(names), MAX_FDS)]
        return all(self._register(part, first=part is parts[0], more=part is not parts[-1]) for part in parts)

    def _register(self, names: list[str], *, first: bool, more: bool) -> bool:
        message = {
            "type": "register",
            "job": self._job,
            "attempt": self._attempt,
            "shim_pid": os.getpid(),
            "child_pid": self.child_pid,
            "attached_pid": self._attached_pid,
            "kept": names,
            "more": more,
        }
        return self.send(message, [*([self._channel] if first else []), *(self._kept[name] for name in names)])

    def send(self, message: dict[str, object], fds: list[int] | None = None) -> bool:
        """Send a message; return False if there is no connection."""
        if self.socket is None:
            return False
        try:
            packets.send(self.socket, json.dumps(message).encode(), fds or [])
        except OSError:
            self._take_rest()
            self.close()
            return False
        return True

    def _take_rest(self) -> None:
        """Take what a daemon that is gone has sent before: the job may have the memory that the shim is to keep."""
        assert self.socket is not None
        with contextlib.suppress(OSError):
            while (received := packets.receive(self.socket, _decode, socket.MSG_DONTWAIT)) is not None:
                self._take(*received)

    def alive(self) -> bool:
        """Whether the daemon is still connected, without asking it anything."""
        if self.socket is None:
            return False
        poll = select.poll()
        poll.register(self.socket, 0)  # poll reports a hang-up in any case
        return not poll.poll(0)

    def receive(self) -> dict[str, object] | None:
        """Return the next message; None when the connection has ended.  Handles ``keep`` and ``drop`` itself."""
        assert self.socket is not None
        with contextlib.suppress(OSError):  # after reconnecting, the daemon repeats a message that was not understood
            received = packets.receive(self.socket, _decode)
            if received is not None:
                self._take(*received)
                return received[0]
        self.close()
        return None

    def _take(self, message: dict[str, object], fds: list[int]) -> None:
        """Apply the descriptors and names that come with a message.  Raises OSError."""
        _check_number(message, fds)
        if message["type"] == "keep":
            self._keep(message, fds)
        elif message["type"] == "drop":
            for name in message["names"]:  # type: ignore[attr-defined]
                self._forget(name)
        elif message["type"] == "start":
            with open(fds[0], "rb") as file:
                file.seek(0)
                message.update(json.load(file))

    def kept(self, name: str) -> int | None:
        """Return the descriptor that is kept under this name, or None."""
        return self._kept.get(name)

    def bring(self, channel: int) -> None:
        """Keep another process's channel, and tell the daemon, now or when there is one.

        A channel beyond `MOST_CHANNELS` is closed.
        """
        if sum(name.startswith("channel:") for name in self._kept) >= MOST_CHANNELS:
            os.close(channel)
            return
        self._channels += 1
        name = f"channel:{self._channels}"
        self._kept[name] = channel
        self.send({"type": "channel", "name": name}, [channel])

    def seat(self) -> bytes:
        """Return the job's seat as it is now; empty if the job never used its device, or the seat cannot be read."""
        with contextlib.suppress(OSError):
            for name, fd in self._kept.items():
                if name.startswith("board:"):
                    return os.pread(fd, SEAT_BYTES, HEADER_BYTES + int(name.split(":")[2]) * SEAT_BYTES)
        return b""

    def close(self) -> None:
        """Close the connection to the daemon."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def hang_up(self) -> None:
        """Close the channels for good: no daemon will answer the job's processes any more."""
        self.close()
        if self._channel >= 0:
            os.close(self._channel)
            self._channel = -1
        for name in [name for name in self._kept if name.startswith("channel:")]:
            self._forget(name)

    def _keep(self, message: dict[str, object], fds: list[int]) -> None:
        for name, fd in zip(message["names"], fds):  # type: ignore[call-overload]  # noqa: B905 - Python 3.9
            self._forget(name)
            self._kept[name] = fd
        self._attached_pid = message["attached_pid"]  # type: ignore[assignment]

    def _forget(self, name: str) -> None:
        fd = self._kept.pop(name, None)
        if fd is not None:
            os.close(fd)
        if name.startswith("board:"):
            self._attached_pid = None


def _connected(path: str) -> socket.socket:
    """Return a socket connected to ``path``.  Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _check_number(message: dict[str, object], fds: list[int]) -> None:
    """Check that a message came with its descriptors.

    Raises OSError: a process without free descriptors receives the message without them.
    """
    needed = {"keep": len(message.get("names", ())), "start": 1}  # type: ignore[arg-type]
    if len(fds) < needed.get(str(message["type"]), 0):
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _decode(data: bytes) -> dict[str, object]:
    message: dict[str, object] = json.loads(data)
    return message
