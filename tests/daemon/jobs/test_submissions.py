"""How much of what users have submitted has not ended."""

from __future__ import annotations

from carpool.daemon.jobs.info import LONGEST_COMMAND, shortened
from carpool.daemon.jobs.submissions import JobAmounts, size_of
from carpool.protocol.api import SubmitRequest

SMALL = SubmitRequest(argv=["true"], cwd="/", env={})
LARGE = SubmitRequest(argv=["true"], cwd="/", env={"A": "x" * 10_000})


def test_the_environment_counts() -> None:
    assert size_of(LARGE) - size_of(SMALL) > 10_000


def test_jobs_count_until_they_have_ended() -> None:
    held = JobAmounts()
    held.add(1, 1000, size_of(SMALL))
    held.add(2, 1000, size_of(LARGE))
    held.add(3, 1001, size_of(LARGE))
    assert held.of(1000) == (2, size_of(SMALL) + size_of(LARGE))
    held.remove(2)
    assert held.of(1000) == (1, size_of(SMALL)) and held.of(1001) == (1, size_of(LARGE))
    held.remove(2)
    held.remove(1)
    assert held.of(1000) == (0, 0)


def test_of_a_long_command_the_beginning_is_shown() -> None:
    assert shortened(["a", "b c"]) == ["a", "b c"]
    cut = shortened(["python", "x" * 10_000, "y"])
    assert cut[0] == "python" and cut[1].startswith("xxx") and "the rest" in cut[1] and len(cut) == 2
    assert sum(map(len, shortened(["x"] * 10_000))) < LONGEST_COMMAND + 50
