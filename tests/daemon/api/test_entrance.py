"""Many connections of one user."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

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
