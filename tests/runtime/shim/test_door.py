"""The shim's door and the channels that have come through it, where not everything is well."""

from __future__ import annotations

import gc
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from carpool.runtime.shim.__main__ import Shim
from carpool.runtime.shim.attach_socket import AttachSocket
from carpool.runtime.shim.oom_score import OomScore


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
