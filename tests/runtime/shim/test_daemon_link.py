"""The shim's connection to the daemon: what it keeps, and how it gives it back."""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from carpool.protocol.packets import MAX_FDS
from carpool.runtime.shim.__main__ import Shim
from carpool.runtime.shim.attach_socket import AttachSocket
from carpool.runtime.shim.daemon_link import DaemonLink
from carpool.runtime.shim.oom_score import OomScore


@pytest.fixture
def listener() -> Iterator[tuple[str, socket.socket]]:
    """A daemon's end; a short path, since sockets allow 107 bytes."""
    with TemporaryDirectory(prefix="cp-") as directory:
        path = str(Path(directory) / "session.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
            made.bind(path)
            made.listen()
            yield path, made


def keep(daemon: socket.socket, link: DaemonLink, names: list[str]) -> None:
    """Descriptors that can be told apart: files as long as their place in the list."""
    for begin in range(0, len(names), MAX_FDS):
        some = names[begin : begin + MAX_FDS]
        fds = [os.memfd_create(name) for name in some]
        for place, fd in enumerate(fds):
            os.ftruncate(fd, begin + place)
        message = {"type": "keep", "names": some, "attached_pid": 5}
        socket.send_fds(daemon, [json.dumps(message).encode()], fds)
        link.receive()
        for fd in fds:
            os.close(fd)


def registered(daemon: socket.socket) -> list[tuple[dict[str, Any], list[int]]]:
    """All messages of a registration, with the sizes of what has come along."""
    found = []
    while not found or found[-1][0]["more"]:
        data, fds, _, _ = socket.recv_fds(daemon, 1 << 16, MAX_FDS)
        found.append((json.loads(data), [os.fstat(fd).st_size for fd in fds]))
        for fd in fds:
            os.close(fd)
    return found


def connected(link: DaemonLink, server: socket.socket) -> socket.socket:
    """The daemon's end."""
    assert link.connect()
    return server.accept()[0]


@pytest.mark.parametrize("count", [0, 1, MAX_FDS - 1, MAX_FDS, 3 * MAX_FDS])
def test_everything_that_is_kept_is_given_back(listener: tuple[str, socket.socket], count: int) -> None:
    path, server = listener
    link = DaemonLink(path, 3)
    daemon = connected(link, server)
    assert [len(fds) for _, fds in registered(daemon)] == [1]
    names = [f"lane:1:{place}:1" for place in range(count)]
    keep(daemon, link, names)
    link.close()
    daemon.close()
    daemon = connected(link, server)
    messages = registered(daemon)
    assert all(message["job"] == 3 and len(fds) <= MAX_FDS for message, fds in messages)
    assert [name for message, _ in messages for name in message["kept"]] == names
    sizes = [size for _, fds in messages for size in fds]
    assert sizes[1:] == list(range(count))  # after the channel's end
    daemon.close()
    link.close()


def test_a_message_without_its_descriptors_ends_the_connection(listener: tuple[str, socket.socket]) -> None:
    """As it comes to a process that has no free descriptors: the daemon says it again to a shim that comes anew."""
    path, server = listener
    link = DaemonLink(path, 3)
    daemon = connected(link, server)
    for message in ({"type": "keep", "names": ["lane:1"], "attached_pid": 5}, {"type": "start"}):
        daemon.send(json.dumps(message).encode())
        assert link.receive() is None and link.socket is None
        daemon.close()
        daemon = connected(link, server)
    assert link.kept("lane:1") is None
    daemon.close()
    link.hang_up()


# The shim's door and the channels that have come through it, where not everything is well


@pytest.fixture
def shim() -> Iterator[Shim]:
    """Its job runs, and it has no daemon; a short path, since sockets allow 107 bytes."""
    with TemporaryDirectory(prefix="cp-") as home:
        directory = Path(home) / "jobs" / "1"
        directory.mkdir(parents=True)
        made = Shim(home, 1, OomScore(), foreground=False)
        made._door, made._child = AttachSocket(str(directory)), os.getpid()
        yield made
        made._orphan()
        made._score.close()
    for fd in (made._signals, made._wakeup, made._link.job_fd):
        os.close(fd)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """For this process."""
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # else what earlier tests have left may be closed in between
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)


def knock(shim: Shim) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(f"{shim._directory}/door")
    return made


def kept(shim: Shim) -> list[str]:
    return list(shim._link._kept)


def test_a_door_that_cannot_be_opened_is_left_alone_for_a_moment(shim: Shim) -> None:
    assert shim._door is not None
    with knock(shim):
        with no_descriptor_left():
            assert shim._door.admit() is None
        assert shim._door.jammed
        shim._wait()
        assert kept(shim) == [], "not even looked at"
        shim._wait()
        assert kept(shim) == ["channel:1"]


def test_nobody_waits_for_a_daemon_that_will_not_come(shim: Shim) -> None:
    main = socket.socket(fileno=os.dup(shim._link.job_fd))
    with knock(shim) as other, main:
        shim._wait()
        shim._message({"type": "refused", "text": "unknown"})
        assert kept(shim) == []
        assert (other.recv(1), main.recv(1)) == (b"", b"")
        with pytest.raises(FileNotFoundError):
            knock(shim)


def test_what_a_daemon_sent_before_it_ended_is_kept(listener: tuple[str, socket.socket]) -> None:
    """The job may have the memory; the shim hears of the daemon's end by a message of its own that does not arrive."""
    path, server = listener
    link = DaemonLink(path, 1)
    daemon = connected(link, server)
    registered(daemon)
    fd = os.memfd_create("board")
    message = {"type": "keep", "names": ["board:host0:0"], "attached_pid": 5}
    socket.send_fds(daemon, [json.dumps(message).encode()], [fd])
    os.close(fd)
    daemon.close()
    assert not link.send({"type": "started", "pid": 5}) and link.socket is None
    daemon = connected(link, server)
    ((message, sizes),) = registered(daemon)
    assert (message["kept"], message["attached_pid"], len(sizes)) == (["board:host0:0"], 5, 2)
    daemon.close()
    link.hang_up()
    os.close(link.job_fd)
