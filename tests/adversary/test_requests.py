"""Many connections and many requests of one user: others are answered, whatever uids they come from."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from carpool.daemon.config.limits import UserLimits
from carpool.daemon.system.peer import person_of
from tests.adversary.test_boundary import BOTH, restart
from tests.adversary.users import ATTACKER
from tests.daemon.daemon_harness import Daemon, as_nobody
from tests.tiers import all_but_first

MOST = UserLimits().connections
#: Of nobody, unless a test says whose it is.
FIRST = 3_000_000_000
CONNECTIONS = """
import socket, sys
path, count, request = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
found = [socket.socket(socket.AF_UNIX) for _ in range(count)]
for each in found:
    each.connect(path)
    each.sendall(request)
print("there", flush=True)
sys.stdin.read()
"""
LISTED = "len(daemon.get('/v1/jobs')['jobs'])"


@contextmanager
def connected(daemon: Daemon, python: str, uid: int, count: int, path: str = "") -> Iterator[None]:
    """Connections of a user's that ask for ``path``, or for nothing, and whose answers nobody takes."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" if path else ""
    command = [python, "-I", "-c", CONNECTIONS, str(daemon.socket), str(count), request]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, user=uid, group=uid, extra_groups=[], cwd="/", **pipes)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline() == b"there\n"
        yield
    finally:
        process.communicate()


@BOTH
def test_a_user_with_a_range_of_uids_has_the_connections_of_one(daemon: Daemon, python: str) -> None:
    assert person_of(FIRST) == FIRST
    ranges = daemon.home.parent / "subuid"
    ranges.write_text(f"{ATTACKER}:{FIRST}:65536\n")
    ranges.chmod(0o644)
    daemon.hurry("system.peer.SUBUIDS", to=str(ranges))
    restart(daemon)
    attempt = f"attempt(lambda: {LISTED})"
    with connected(daemon, python, FIRST, MOST // 2), connected(daemon, python, FIRST + 1, MOST // 2):
        assert [as_nobody(daemon, attempt, uid) for uid in (FIRST + 2, ATTACKER)] == ["too_many_connections"] * 2
        assert as_nobody(daemon, LISTED, ATTACKER - 1) == 0 and daemon.get("/v1/jobs")["jobs"] == []


@BOTH
@pytest.mark.parametrize(
    "path", all_but_first(["/v1/jobs", "/v1/events?limit=10000", "/v1/events?follow=1", "/metrics"])
)
def test_many_reads_of_one_user_leave_others_their_answers(daemon: Daemon, python: str, path: str) -> None:
    held = "daemon.submit('true', hold=True)"
    for _ in range(3):
        as_nobody(daemon, held, ATTACKER)
    with connected(daemon, python, ATTACKER, 100, path):
        job = as_nobody(daemon, held, ATTACKER - 1)
        assert as_nobody(daemon, LISTED, ATTACKER - 1) == 4
        daemon.cancel(job)
        assert daemon.wait(job)["outcome"] == "cancelled"
    assert as_nobody(daemon, LISTED, ATTACKER) == 4
