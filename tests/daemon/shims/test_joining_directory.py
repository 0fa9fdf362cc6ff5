"""The directory that containers mount: the session socket alone, under permissions that are the socket's own."""

from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path

import pytest

from carpool.daemon.system.listener import offer_to_containers, withdraw_from_containers


def listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(str(path))
    made.listen()
    return made


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        return peer.connect_ex(str(path)) == 0


def test_it_has_the_socket_of_the_daemon_that_runs(tmp_path: Path) -> None:
    path, name = tmp_path / "session.sock", tmp_path / "joining" / "session.sock"
    place = None
    for _ in range(2):
        with listening(path):
            offer_to_containers(path)
            assert connects(name)
            assert [*name.parent.iterdir()] == [name]
            place = place or name.parent.stat().st_ino
        assert not connects(name)
    assert name.parent.stat().st_ino == place  # containers that run have it
    withdraw_from_containers(path)
    assert [*name.parent.iterdir()] == []


def test_permissions_are_those_of_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "session.sock"
    with listening(path):
        path.chmod(0o600)
        old = os.umask(0o077)
        try:
            offer_to_containers(path)
        finally:
            os.umask(old)
    directory = tmp_path / "joining"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o711
    assert stat.S_IMODE((directory / "session.sock").stat().st_mode) == 0o600


def test_a_failure_is_no_end_of_the_daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "joining").touch()
    with listening(tmp_path / "session.sock"), caplog.at_level(logging.WARNING):
        offer_to_containers(tmp_path / "session.sock")
        withdraw_from_containers(tmp_path / "session.sock")
    assert "processes in containers cannot join" in caplog.text
