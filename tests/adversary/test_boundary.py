"""One user's jobs neither read nor write what belongs to another user, and hold nobody up.

The victim keeps a secret in its device buffer and in its lane; the attacker's job speaks the protocol itself.  Whatever
descriptors the attacker is sent are searched for the secret, and in the end the victim looks whether it is intact.
"""

from __future__ import annotations

import random
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.adversary.users import User
from tests.daemon.daemon_harness import Daemon, until
from tests.tiers import all_but_first

#: A daemon wholly of root's, and one with a user of its own (``carpool up --user``).
BOTH = pytest.mark.parametrize("daemon", ["whole", "separated"], indirect=True)
SCRIPTED = Path(__file__).parents[2] / "benchmarks" / "workloads" / "scripted.py"
GRANTED = 4 << 20  # bytes that the victim has in its bank, and in its lane


def nothing_found(said: str) -> bool:
    """Whether the attacker got descriptors, its own at least, and none had the secret."""
    found = re.fullmatch(r"descriptors (\d+), secrets (\d+)", said)
    assert found is not None, said
    return int(found[1]) >= 4 and int(found[2]) == 0


def restart(daemon: Daemon) -> None:
    daemon.kill()
    daemon.started()


def test_the_search_finds_what_is_there(victim: User) -> None:
    """Of what is one's own: the other tests would pass if the search found nothing."""
    said = victim.end(victim.start("own"))
    assert int(said.rpartition(" ")[2]) == len(("bank", "lane")), said


@BOTH
def test_banks_of_others(daemon: Daemon, victim: User, attacker: User) -> None:
    job = victim.start("hold")
    assert nothing_found(attacker.end(attacker.start("steal")))
    assert victim.end(job) == "intact"


@BOTH
def test_the_lane_of_others_at_a_restart(daemon: Daemon, victim: User, attacker: User) -> None:
    job = victim.start("hold")
    attack = attacker.start("name_lane", daemon.show(job)["lane"])
    restart(daemon)
    assert daemon.show(attack)["lane"] != daemon.show(job)["lane"]
    assert nothing_found(attacker.end(attack))
    assert victim.end(job) == "intact"


def test_limits_claimed_before_a_restart(daemon: Daemon, victim: User, attacker: User) -> None:
    """Others get memory as before."""
    attack = attacker.start("claim")
    restart(daemon)
    assert victim.end(victim.start("hold")) == "intact"
    assert nothing_found(attacker.end(attack))


@BOTH
def test_no_file_changes_its_size(victim: User, attacker: User) -> None:
    """Of seats, lanes, banks and stores: whoever has one mapped would die, and the daemon with it."""
    job = victim.start("hold")
    assert attacker.end(attacker.start("resize")) == "changed 0"
    assert victim.end(job) == "intact"


def test_who_takes_more_than_was_granted_is_ended(daemon: Daemon, victim: User, attacker: User) -> None:
    job = victim.start("hold")
    another = replace(attacker, uid=attacker.uid - 2)
    hogs = [attacker.submit("hog", "bank", 32), another.submit("hog", "lane", 16)]
    for hog, what in zip(hogs, ("device buffer", "lane"), strict=True):
        ended = daemon.wait(hog)
        assert (ended["signal"], ended["reason"]["code"]) == (signal.SIGKILL, "overuse"), ended
        assert what in ended["reason"]["text"] and daemon.log().count(f"job {hog} is killed") == 1
    (device,) = daemon.get("/v1/devices")["devices"]
    assert device["used_bytes"] <= 2 * GRANTED
    assert victim.end(job) == "intact"


@pytest.mark.parametrize("rounds", all_but_first([1, 30], "random words and packets for a minute"))
def test_any_words_and_packets(
    daemon: Daemon, victim: User, attacker: User, rounds: int, moments: random.Random
) -> None:
    """While the daemon follows them, and at restarts, when what it reads is new to it."""
    job = victim.start("hold")
    attack = attacker.start("fuzz", moments.randrange(1 << 32))
    for _ in range(rounds):
        assert victim.end(victim.start("hold")) == "intact", "others get turns and memory"
        restart(daemon)
    assert nothing_found(attacker.end(attack))
    assert victim.end(job) == "intact"


def test_who_claims_the_device_for_itself_stops_no_other_user(daemon: Daemon, attacker: User) -> None:
    """The claim is a word in the job's own seat."""
    training = daemon.submit(sys.executable, str(SCRIPTED))

    def goes_on() -> None:
        before: int = daemon.show(training)["iterations"]
        until(lambda: daemon.show(training)["iterations"] > before)

    goes_on()
    attack = attacker.start("alone")
    until(lambda: daemon.show(attack)["alone"])
    for _ in range(3):
        goes_on()
    assert daemon.show(training)["reason"] is None
    daemon.cancel_unless_ended(training)


def test_two_that_say_to_have_one_turn_end_no_restart(daemon: Daemon, attacker: User) -> None:
    keeper = attacker.start("keep")
    liar = attacker.start("lie")
    assert daemon.show(keeper)["lane"] == daemon.show(liar)["lane"]
    daemon.hurry("restart.DOUBT_S", to=0.2)
    restart(daemon)
    ended = daemon.wait(liar)
    assert ended["reason"]["code"] == "two_holders" and f"job {keeper} has" in ended["reason"]["text"]
    assert daemon.show(keeper)["phase"] == "running" and "Traceback" not in daemon.log()
    daemon.cancel_unless_ended(keeper)
