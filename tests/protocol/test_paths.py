"""Which daemon a command talks to when nobody says: one's own, or that of the server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carpool.protocol import paths
from carpool.protocol.paths import LOG_FLAGS, default_home, made_by_root, open_regular, read_regular
from tests.descriptors import descriptors

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a directory of root's")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server's home, below directories that are root's alone."""
    home = Path("/var/lib") / f"carpool-test-{os.getpid()}"
    monkeypatch.setattr(paths, "SYSTEM_HOME", home)
    home.mkdir(mode=0o711)
    yield home
    home.rmdir()


@contextmanager
def listening(home: Path) -> Iterator[Path]:
    """A daemon's socket; the file stays, as when the daemon is killed."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "carpool.sock"))
        listener.listen()
        yield home / "carpool.sock"


def test_without_a_server_s_home_it_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "SYSTEM_HOME", tmp_path / "none")
    assert default_home({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "carpool"


@as_root
def test_explicit_before_own_before_the_servers(system: Path, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    assert default_home(env) == system
    assert default_home(env | {"CARPOOL_HOME": "/x"}) == Path("/x")
    (tmp_path / "carpool").mkdir()
    assert default_home(env) == system, "no daemon of one's own has run there"
    with listening(tmp_path / "carpool"):
        assert default_home(env) == tmp_path / "carpool"
    assert (tmp_path / "carpool" / "carpool.sock").exists() and default_home(env) == system, "it was killed"


@as_root
def test_a_socket_in_the_home_of_another_user_is_not_trusted(system: Path, tmp_path: Path) -> None:
    """As for root with the HOME of somebody."""
    (tmp_path / "carpool").mkdir()
    with listening(tmp_path / "carpool") as path:
        os.chown(path, 64001, 64001)
        assert default_home({"XDG_STATE_HOME": str(tmp_path)}) == system


@as_root
def test_a_daemons_user_may_own_the_servers_home_and_nobody_else_may_write_there(system: Path) -> None:
    os.chown(system, 64001, 64001)
    assert made_by_root(system)
    for mode in (0o777, 0o771):
        system.chmod(mode)
        assert not made_by_root(system)


@as_root
def test_what_others_can_have_made_is_not_trusted(tmp_path: Path, system: Path) -> None:
    fake = Path("/tmp") / f"carpool-fake-{os.getpid()}"
    fake.mkdir(mode=0o711)
    link = Path("/var/lib") / f"carpool-link-{os.getpid()}"
    link.symlink_to(fake)
    try:
        assert not made_by_root(fake), "everybody may make directories in /tmp"
        assert not made_by_root(link)
    finally:
        link.unlink()
        fake.rmdir()


def test_a_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"x" * 100_000
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "directory", "socket", "device"])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, LOG_FLAGS])
def test_nothing_else_is_waited_for(tmp_path: Path, kind: str, flags: int) -> None:
    path = Path("/dev/null") if kind == "device" else tmp_path / "place"
    if "fifo" in kind:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo") if "link" in kind else (tmp_path / "fifo").rename(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    before = descriptors()
    with pytest.raises(OSError) as refused:
        open_regular(path, flags)
    assert refused.value.filename == str(path) and refused.value.strerror
    assert descriptors() == before


def test_a_log_may_be_a_device_and_is_made_for_its_owner(tmp_path: Path) -> None:
    os.close(open_regular(Path("/dev/null"), LOG_FLAGS, device=True))
    os.close(open_regular(tmp_path / "log", LOG_FLAGS, device=True))
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
