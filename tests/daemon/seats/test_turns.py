"""Turns as the seats tell them, and seats that tell nonsense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from carpool.core import commands
from carpool.core.events import TurnPassed, TurnReleased
from carpool.daemon.seats.turns import MOST_ENDED
from tests.daemon.rig import Client, Rig

MANY = 200


def passes(client: Client, to: Client) -> None:
    """The job ends its turn, by the words of its seat."""
    client.seat.set("passed_to", to.seat.slot + 1)
    client.seat.set("passed_seq", client.seat.get("passed_seq") + 1)


def at_each_hand_over(rig: Rig, monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Jobs run on while the daemon looks: it never sees a hand-over that no other one has followed, `MANY` times."""
    give_turn, left = rig.seating.give_turn, iter(range(MANY))

    def gives(lane: int, job: int, predecessor: int | None = None) -> None:
        give_turn(lane, job, predecessor=predecessor)
        if next(left, None) is not None:
            action()

    monkeypatch.setattr(rig.seating, "give_turn", gives)


async def test_a_hand_over_is_told(rig: Rig) -> None:
    first, second = rig.attach(), rig.attach()
    rig.do(commands.GrantTurn(first.job.id, 1))
    passes(first, second)
    rig.turns.sync(1)
    (event,) = rig.events
    assert isinstance(event, TurnPassed) and (event.job, event.to) == (first.job.id, second.job.id)


async def test_a_job_that_names_itself_has_named_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.attach()
    at_each_hand_over(rig, monkeypatch, lambda: passes(client, client))
    rig.do(commands.GrantTurn(client.job.id, 1))
    rig.turns.sync(1)
    (event,) = rig.events
    assert isinstance(event, TurnReleased) and event.job == client.job.id


async def test_jobs_that_go_on_naming_each_other_do_not_keep_the_daemon(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = rig.attach(), rig.attach()
    rig.do(commands.GrantTurn(first.job.id, 1))

    def both() -> None:
        passes(first, second)
        passes(second, first)

    at_each_hand_over(rig, monkeypatch, both)
    both()
    rig.turns.sync(1)
    assert len(rig.events) == MOST_ENDED
