"""Connections to a daemon that has no descriptors left."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from carpool.daemon.system import listener
from carpool.daemon.system.listener import SocketListener
from tests.daemon.cuda_rig import until
from tests.descriptors import descriptors

Accepted = list[socket.socket]


def refuse(connection: socket.socket) -> None:
    connection.send(b"no")


@pytest.fixture
async def accepted(tmp_path: Path) -> AsyncIterator[Accepted]:
    """What a listener has accepted at ``tmp_path / "socket"``; the end closes everything."""
    found: Accepted = []
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(tmp_path / "socket"))
    bound.listen()
    made = SocketListener(bound, found.append, refuse)
    made.start()
    yield found
    made.close()
    for connection in found:
        connection.close()


@pytest.fixture
def full() -> Iterator[ExitStack]:
    """What ends before the process of the tests has descriptors again (`take_all`)."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        yield stack
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def take_all(stack: ExitStack) -> None:
    """From now on this process has no descriptors left."""
    most = max(int(name) for name in descriptors()) + 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with suppress(OSError):
        while True:
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))


async def test_without_descriptors_root_gets_in_and_all_others_are_told(
    accepted: Accepted,
    full: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Root's connection is behind all of them."""
    uids = iter([1000] * 40 + [0] * 10)
    monkeypatch.setattr(listener, "peer_credentials", lambda _connection: (1, next(uids), 1))
    clients = [full.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(41)]
    with ExitStack() as taken:
        take_all(taken)
        for client in clients:
            client.connect(str(tmp_path / "socket"))
        await until(lambda: accepted)
        assert [client.recv(2) for client in clients[:40]] == [b"no"] * 40
    clients[40].sendall(b"hello")
    assert len(accepted) == 1 and accepted[0].recv(5) == b"hello"
    assert [record.message.partition(":")[0] for record in caplog.records] == ["connections cannot be accepted"]


async def test_it_goes_on_once_there_are_descriptors(
    accepted: Accepted,
    full: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listener, "peer_credentials", lambda _connection: (1, 1000, 1))
    first, second = (full.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
    with ExitStack() as taken:
        take_all(taken)
        first.connect(str(tmp_path / "socket"))
        await until(lambda: caplog.records)
    second.connect(str(tmp_path / "socket"))
    await until(lambda: accepted)
    assert first.recv(2) == b"no"
