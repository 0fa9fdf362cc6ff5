"""Many connections of one user."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from carpool.daemon.api.entrance import FOR_ROOT, SHARE_OF_NEWCOMERS, Connections
from carpool.daemon.system import peer
from carpool.daemon.system.peer import person_of
from tests.daemon.daemon_harness import Daemon, Refused, as_nobody

Make = Callable[..., Daemon]
MOST = 5
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


@pytest.fixture
def narrow(make_daemon: Make, home: Path) -> Daemon:
    home.mkdir(mode=0o711)
    (home / "limits.toml").write_text(f"connections = {MOST}\n")
    return make_daemon().started()


@contextmanager
def connected(path: Path, kind: socket.SocketKind) -> Iterator[list[socket.socket]]:
    """As many connections as are allowed, which say nothing."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket(socket.AF_UNIX, kind)) for _ in range(MOST)]
        for each in found:
            each.connect(str(path))
        yield found


def answered(daemon: Daemon) -> str:
    """The code of a refusal, or "" """
    try:
        daemon.get("/v1/version")
    except Refused as refused:
        assert refused.status == 429 and "limits.toml" in refused.hint
        return refused.code
    return ""


def test_a_user_has_only_so_many_connections(narrow: Daemon) -> None:
    with connected(narrow.socket, socket.SOCK_STREAM) as found:
        assert answered(narrow) == "too_many_connections"
        found[0].sendall(b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := found[0].recv(65536):
            answer += part
        assert json.loads(answer.rpartition(b"\r\n\r\n")[2]), "those that were let in are served"
        assert answered(narrow) == ""
    assert narrow.log().count("connections to the daemon already") >= 1


@needs_root
def test_others_are_let_in(narrow: Daemon) -> None:
    narrow.home.parent.chmod(0o711)
    with connected(narrow.socket, socket.SOCK_STREAM):
        assert as_nobody(narrow, "attempt(lambda: daemon.get('/v1/jobs')['jobs'])") == []


def test_sessions_that_never_register_are_dropped(narrow: Daemon) -> None:
    path = narrow.home / "session.sock"
    with connected(path, socket.SOCK_SEQPACKET), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as another:
        another.settimeout(30)
        another.connect(str(path))
        assert another.recv(1) == b""
    assert narrow.wait(narrow.submit("true"))["outcome"] == "succeeded"


def test_a_person_of_many_uids_has_the_limit_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("1000:300000:65536\n")
    monkeypatch.setattr(peer, "SUBUIDS", tmp_path / "subuid")
    found = Connections(MOST, Path("limits.toml"))
    for uid in range(300_000, 300_000 + MOST):
        assert found.refusal(uid) is None
        found.come(person_of(uid))
    assert all(found.refusal(uid) is not None for uid in (300_777, 1000))
    assert found.refusal(1001) is None
    found.go(1000)
    assert found.refusal(300_777) is None


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Uids from 1000 on have as many of 64 connections as are there for users who have some."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (128, 128))
    found = Connections(1000, Path("limits.toml"))
    uid = 1000
    while found.refusal(uid) is None:
        for _ in range(16):
            if found.refusal(uid) is None:
                found.come(uid)
        uid += 1
        found.come(uid)
    return found


def test_the_last_connections_are_for_users_who_have_none(full: Connections) -> None:
    strangers = []
    while full.refusal(uid := 2000 + len(strangers)) is None:
        full.come(uid)
        strangers.append(uid)
    assert 8 <= len(strangers) <= 64 // SHARE_OF_NEWCOMERS
    assert "users who have none" in getattr(full.refusal(strangers[0]), "message", "")


def test_root_comes_in_however_many_there_are(full: Connections) -> None:
    for uid in range(2000, 2100):
        if full.refusal(uid) is None:
            full.come(uid)
    for _ in range(FOR_ROOT):
        assert full.refusal(0) is None
        full.come(0)
    assert full.refusal(0) is not None, "descriptors come to an end"
