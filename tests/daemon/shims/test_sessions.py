"""The session socket of a real daemon, and peers that are no shims."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from carpool.daemon.shims.shim_table import Process
from carpool.daemon.system.listener import offer_to_containers, withdraw_from_containers
from tests.daemon.daemon_harness import Daemon, Make, as_nobody, until

MOST = 20_000


@contextmanager
def session(daemon: Daemon) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as connection:
        connection.settimeout(30)
        connection.connect(str(daemon.home / "session.sock"))
        yield connection


def register(connection: socket.socket, job: int, fds: list[int], **fields: object) -> None:
    message = {"type": "register", "job": job, "shim_pid": os.getpid(), "kept": [], "more": True, **fields}
    socket.send_fds(connection, [json.dumps(message).encode()], fds)


def flood(connection: socket.socket, job: int) -> int:
    """How many descriptors the daemon has taken before it ends the connection."""
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        for taken in range(0, MOST, 16):
            try:
                register(connection, job, [fd] * 16)
            except OSError:
                return taken
        return MOST
    finally:
        os.close(fd)


def opened(daemon: Daemon, path: str) -> int:
    """How many descriptors of this file the daemon has: others come and go with its requests."""
    assert daemon.process is not None
    return sum(link_of(fd) == path for fd in Path(f"/proc/{daemon.process.pid}/fd").iterdir())


def link_of(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except FileNotFoundError:
        return ""  # closed since it was listed


def test_what_is_no_shim_of_a_job_is_sent_away_before_anything_is_kept(daemon: Daemon) -> None:
    with session(daemon) as connection:
        register(connection, 1, [0])
        answer = json.loads(connection.recv(4096))
    assert answer["type"] == "refused" and "no such job" in answer["text"]
    before = opened(daemon, os.devnull)
    with session(daemon) as connection:
        assert flood(connection, job=1) < MOST
        assert daemon.get("/v1/version")  # it has dealt with what came before
        assert opened(daemon, os.devnull) == before


def test_the_owner_of_a_job_may_not_take_all_descriptors(daemon: Daemon) -> None:
    """A registration in as many messages as wanted, of a job that is one's own."""
    job = daemon.submit("true", foreground=True)
    assert daemon.process is not None
    pid = daemon.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (2000, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    with session(daemon) as connection:
        assert flood(connection, job) < MOST
        daemon.wait(daemon.submit("true"))
    assert "registers more than 500 descriptors at once" in daemon.log()


def test_a_session_over_the_rate_is_read_more_slowly_and_loses_nothing(make_daemon: Make, home: Path) -> None:
    daemon = make_daemon(limits="packets_per_s = 10\n").started()
    job, sent = daemon.submit("true", foreground=True), home.parent / "sent"
    count = 0
    with session(daemon) as connection, sent.open("w") as file:
        while "sessions of that user are read more slowly" not in daemon.log():
            register(connection, job, [file.fileno()])
            count += 1
        until(lambda: opened(daemon, str(sent)) == count)
    assert count > 100  # as much as ten seconds may bring comes at once
    assert daemon.log().count("sessions of that user are read more slowly") == 1


def test_the_owner_of_many_jobs_may_not_take_all_descriptors_by_channels_either(
    make_daemon: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARPOOL_TEST_DESCRIPTORS", "0")
    daemon = make_daemon().hurry("app.STOP_MARGIN_S").started()  # nobody ends these jobs
    assert daemon.process is not None
    pid = daemon.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with ours, theirs, ExitStack() as stack:
        for _ in range(2):
            job = daemon.submit("true", foreground=True)
            connection = stack.enter_context(session(daemon))
            register(connection, job, [theirs.fileno()], more=False)
            for number in range(200):
                message = json.dumps({"type": "channel", "name": f"channel:{number}"}).encode()
                socket.send_fds(connection, [message], [theirs.fileno()])
        daemon.wait(daemon.submit("true"))
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 150
    assert "than the 64 that processes of uid" in daemon.log()


def test_an_attempt_that_is_over_may_not_come_back(daemon: Daemon) -> None:
    job = daemon.submit("true", foreground=True)
    with session(daemon) as connection:
        register(connection, job, [0], attempt=2)
        assert "attempt 2 of the job is over" in json.loads(connection.recv(4096))["text"]


def test_of_a_long_reason_of_a_shim_only_the_beginning_is_kept(make_daemon: Make) -> None:
    daemon = make_daemon().hurry("hooks.control_groups.SHIMS_END_S").started()  # the shim is this process
    job, (ours, theirs) = daemon.submit("true", foreground=True), socket.socketpair(type=socket.SOCK_SEQPACKET)
    with session(daemon) as connection, ours, theirs:
        register(connection, job, [theirs.fileno()], more=False)
        assert json.loads(connection.recv(4096))["type"] == "start"
        connection.send(json.dumps({"type": "start_failed", "text": "no" * 30_000}).encode())
        info = daemon.wait(job)
    assert info["outcome"] == "failed" and 1000 <= len(info["reason"]["text"]) < 1100
    assert max(len(json.dumps(event)) for event in daemon.events()) < 4000, "the journal keeps no more either"


def test_another_user_may_not_register_for_a_job(daemon: Daemon) -> None:
    job = daemon.submit("true", foreground=True)
    message = json.dumps({"type": "register", "job": job, "shim_pid": 1, "kept": []})
    path = str(daemon.home / "session.sock")
    talk = f"[s.connect({path!r}), socket.send_fds(s, [{message!r}.encode()], [0]), s.recv(4096).decode()]"
    said = as_nobody(daemon, f"(lambda socket: [{talk}[2] for s in [socket.socket(1, 5)]])(__import__('socket'))")
    assert "the job belongs to another user" in str(said)


# The directory that containers mount: the session socket alone, under permissions that are the socket's own


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


# What is kept for a shim that has not come yet


def test_a_signal_is_kept_once_however_often_it_is_asked_for() -> None:
    """Users ask as often as they like, and a shim of theirs may never come."""
    process = Process()
    for _ in range(3):
        process.keep_signal(signal.SIGTERM)
        process.keep_signal(signal.SIGKILL)
    assert process.signals == [signal.SIGTERM, signal.SIGKILL]
