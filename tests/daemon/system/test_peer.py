"""Who is at the other end of a Unix socket: ranges of subordinate uids, and whom their uids count as."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.daemon.jobs.submissions import JobAmounts, SubmissionRate
from carpool.daemon.system import peer
from carpool.daemon.system.allowance import Allowances
from carpool.daemon.system.peer import Persons, peer_credentials, peer_groups, person_of

OWNER, FIRST, COUNT = 4397, 300_000, 65_536


@pytest.fixture(autouse=True)
def subuids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "subuid"
    monkeypatch.setattr(peer, "SUBUIDS", path)
    path.write_text(f"{OWNER}:{FIRST}:{COUNT}\n")
    return path


def test_a_range_is_its_owner() -> None:
    inside = (FIRST, FIRST + 1000, FIRST + COUNT - 1)
    outside = (0, OWNER, FIRST - 1, FIRST + COUNT, -1)
    assert {person_of(uid) for uid in inside} == {OWNER}
    assert [person_of(uid) for uid in outside] == list(outside)


def test_nobody_becomes_root_by_a_range(subuids: Path) -> None:
    """A range of root's is one person, who is not root; so is one of a user whom nobody knows."""
    subuids.write_text("root:200000:65536\nnobody-of-that-name:400000:10\n0:0:65536\n")
    found = Persons()
    assert [found.of(uid) for uid in (200_000, 265_535, 400_009, 0, 1000)] == [200_000, 200_000, 400_000, 0, 1000]


def test_lines_that_say_nothing_are_left_out(subuids: Path) -> None:
    subuids.write_text(f"# a comment\n\nx:y:z\n1:2\n:5:5\n-3:4:5:6\n5:-1:9\n{OWNER}:{FIRST}:{COUNT}\n")
    assert Persons().of(FIRST) == OWNER


def test_a_file_that_changes_is_read_again(subuids: Path) -> None:
    found = Persons()
    assert found.of(FIRST) == OWNER
    subuids.write_text(f"{OWNER + 1}:{FIRST}:{COUNT} \n")
    assert found.of(FIRST) == OWNER + 1
    subuids.unlink()
    assert found.of(FIRST) == FIRST


def test_what_is_no_file_is_not_waited_for(subuids: Path) -> None:
    subuids.unlink()
    os.mkfifo(subuids)
    assert Persons().of(FIRST) == FIRST


def test_limits_are_counted_once_for_a_person() -> None:
    amounts, rate, allowances = JobAmounts(), SubmissionRate(10, 1, lambda: 0.0), Allowances(1)
    for number in range(5):
        amounts.add(number, FIRST + number, 100)
    assert amounts.of(OWNER) == amounts.of(FIRST + 77) == (5, 500)
    assert rate.left(FIRST) == 10
    rate.spend(FIRST, 7)
    assert rate.left(FIRST + 1) == rate.left(OWNER) == 3
    assert allowances.of(FIRST) is allowances.of(FIRST + 1) is allowances.of(OWNER)


def test_what_was_counted_before_the_file_changed_is_taken_back(subuids: Path) -> None:
    amounts = JobAmounts()
    amounts.add(1, FIRST, 100)
    subuids.unlink()
    amounts.remove(1)
    assert amounts.users() == []


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
