"""One job takes none of the descriptors that the daemon needs for everybody: every queue towards it has a bound."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from tests.adversary.users import User
from tests.daemon.daemon_harness import Daemon

#: A daemon wholly of root's, and one with a user of its own (``carpool up --user``).
BOTH = pytest.mark.parametrize("daemon", ["whole", "separated"], indirect=True)
MOST = 120


def opened(daemon: Daemon) -> int:
    """How many descriptors the daemon has."""
    return len(list(Path(f"/proc/{pid_of(daemon)}/fd").iterdir()))


def pid_of(daemon: Daemon) -> int:
    return int((daemon.home / "daemon.pid").read_text())


@pytest.fixture
def few(daemon: Daemon) -> None:
    """A daemon that may have `MOST` descriptors on their way to one user."""
    daemon.kill()
    share = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // MOST
    daemon.hurry("system.in_flight.SHARE", to=share).started()


@BOTH
@pytest.mark.usefixtures("few")
def test_who_asks_for_its_descriptors_without_end_gets_them_once(daemon: Daemon, victim: User, attacker: User) -> None:
    attack = attacker.start("ask_again")
    before = opened(daemon)
    daemon.until_line(attack, "asked")
    assert victim.end(victim.start("hold")) == "intact"
    assert opened(daemon) < before + MOST
    assert daemon.show(attack)["phase"] == "running"
    attacker.end(attack)


@BOTH
@pytest.mark.usefixtures("few")
def test_a_job_whose_stopped_shim_is_to_keep_ever_more_is_ended(daemon: Daemon, victim: User, attacker: User) -> None:
    before = opened(daemon)
    attack = attacker.submit("reseat")
    ended = daemon.wait(attack)
    assert (ended["signal"], ended["reason"]["code"]) == (signal.SIGKILL, "unread"), ended
    assert "a process of it does not read" in ended["reason"]["text"]
    assert opened(daemon) < before + MOST
    assert victim.end(victim.start("hold")) == "intact"
