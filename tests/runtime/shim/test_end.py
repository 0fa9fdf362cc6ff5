"""The end of a job while its files cannot be written; what a shim writes down is whole, or not there."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carpool.runtime.shim import __main__ as module
from carpool.runtime.shim.__main__ import Shim, _write_file
from carpool.runtime.shim.oom_score import OomScore

EXITED: dict[str, object] = {"type": "exited", "code": 3, "signal": None}


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    """Of a job that has just ended, with a full disk; ``tries`` counts attempts to write."""
    monkeypatch.setattr(module, "RECONNECT_MS", 1)
    with closing(OomScore()) as score:
        made = Shim(str(tmp_path), 1, score, foreground=False)
        yield made
        made._link.hang_up()
        for fd in (made._link.job_fd, made._signals, made._wakeup):
            os.close(fd)


class FullDisk:
    """Counts what is tried, and does something at one of the attempts."""

    def __init__(self, shim: Shim) -> None:
        self.tries, self._shim = 0, shim
        self.daemon_comes_at, self.room_at = 1, 10_000
        self.daemon, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs: socket.socket | None = theirs

    def write(self, _name: str, _data: bytes) -> None:
        self.tries += 1
        assert self.tries < 1000, "the shim never ends"
        if self.tries >= self.daemon_comes_at and self._theirs is not None:
            self._shim._link.socket, self._theirs = self._theirs, None
        if self.tries < self.room_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> Iterator[FullDisk]:
    made = FullDisk(shim)
    monkeypatch.setattr(shim, "_write", made.write)
    monkeypatch.setattr(shim._link, "connect", lambda: False)
    with closing(made.daemon):
        yield made


@pytest.mark.parametrize("comes_at", [1, module.TRIES, 3 * module.TRIES])
def test_it_ends_once_the_daemon_knows_however_late(shim: Shim, disk: FullDisk, comes_at: int) -> None:
    disk.daemon_comes_at = comes_at
    shim._finish({"code": 3, "signal": None}, EXITED)
    assert disk.tries == max(comes_at, module.TRIES)
    assert b'"exited"' in disk.daemon.recv(1000)


def test_what_can_be_written_after_all_is_told_once(shim: Shim, disk: FullDisk) -> None:
    disk.room_at = 5
    shim._finish({"code": 3, "signal": None}, EXITED)
    assert disk.tries == 5 and b'"exited"' in disk.daemon.recv(1000)
    with pytest.raises(BlockingIOError):
        disk.daemon.recv(1000, socket.MSG_DONTWAIT)


def test_a_write_that_takes_a_part_only_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is almost full does that, and a half exit.json says nothing of the job's end."""
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:5]))
    _write_file(str(tmp_path), "exit.json", b'{"code": 3, "signal": null}')
    assert (tmp_path / "exit.json").read_bytes() == b'{"code": 3, "signal": null}'


@pytest.mark.parametrize("foreground", [False, True])
def test_a_signal_reaches_the_job_when_processes_cannot_be_listed(
    shim: Shim, monkeypatch: pytest.MonkeyPatch, foreground: bool
) -> None:
    def refuse(_path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    shim._child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, setpgroup=0)
    shim._in_our_group = foreground
    monkeypatch.setattr(os, "listdir", refuse)
    shim._pass_on(signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(shim._child, 0)[1]) == -signal.SIGKILL
    shim._status = 0
    shim._pass_on(signal.SIGKILL)  # the number may be another process's now
