"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from carpool.daemon.system.peer import peer_credentials, peer_groups

MOST = 256


def test_the_peer_is_this_process() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert peer_credentials(left) == (os.getpid(), os.geteuid(), os.getegid())
        assert sorted(peer_groups(left)) == sorted(os.getgroups())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to join groups")
@pytest.mark.parametrize(("joined", "seen"), [(MOST, MOST), (MOST + 1, 0)])
def test_many_groups(joined: int, seen: int) -> None:
    code = (
        "import os, socket; from carpool.daemon.system.peer import peer_groups;"
        f" os.setgroups(range(1000, {1000 + joined})); print(*peer_groups(socket.socketpair()[0]))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [int(word) for word in said.split()] == list(range(1000, 1000 + seen))
