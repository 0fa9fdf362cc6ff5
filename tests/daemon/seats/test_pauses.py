"""Pauses: asked for in the seat, answered by number, and not counted as time in which a job computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from carpool.core import commands
from carpool.core.events import TurnPassed, TurnPaused, TurnReleased
from carpool.daemon.jobs.watchlist import LOOK_S, Revocation
from carpool.daemon.seats.record import turn_us
from carpool.daemon.seats.services import is_paused
from carpool.daemon.seats.turns import MOST_ENDED
from carpool.daemon.system.clock import monotonic_us
from carpool.protocol.seat import PacketType, Yield
from tests.daemon.rig import Client, Rig

MINUTE_US = 60_000_000  # less than the machine has been up


@pytest.fixture
async def holder(rig: Rig) -> Client:
    client = rig.attach()
    rig.do(commands.GrantTurn(1, client.job.id))
    assert client.seat.get("turn") == 1
    return client


def pause(rig: Rig, client: Client) -> list[object]:
    """Ask for it, and play the job that does it."""
    rig.do(commands.PauseTurn(client.job.id))
    number = client.seat.get("pause_seq")
    client.seat.set("paused", number)
    return list(rig.says(client, PacketType.PAUSED, number))


async def test_it_is_asked_and_answered_and_then_the_job_is_made_to_let_go(rig: Rig, holder: Client) -> None:
    (event,) = pause(rig, holder)
    assert isinstance(event, TurnPaused) and event.job == holder.job.id
    assert is_paused(holder.seat.snapshot()) and rig.watched == [holder.job.id]
    rig.do(commands.RequestYield(holder.job.id, forced=True))
    assert holder.seat.get("yield") == Yield.NOW and not holder.seat.get("paused_us")


async def test_asked_more_firmly_it_is_the_same_pause(rig: Rig, holder: Client) -> None:
    rig.do(commands.PauseTurn(holder.job.id))
    number = holder.seat.get("pause_seq")
    rig.do(commands.PauseTurn(holder.job.id, forced=True))
    assert holder.seat.get("pause_seq") == number and holder.seat.get("yield") == Yield.PAUSE


async def test_an_answer_to_something_else_does_not_count(rig: Rig, holder: Client) -> None:
    rig.do(commands.PauseTurn(holder.job.id))
    number = holder.seat.get("pause_seq")
    assert rig.says(holder, PacketType.PAUSED, number - 1) == []
    rig.do(commands.WithdrawYield(holder.job.id))
    assert holder.seat.get("yield") == Yield.NO
    assert rig.says(holder, PacketType.PAUSED, number) == []


async def test_whoever_has_let_go_is_not_asked(rig: Rig, holder: Client) -> None:
    holder.seat.set("turn", 0)
    rig.do(commands.PauseTurn(holder.job.id))
    assert holder.seat.get("yield") == Yield.NO


async def test_the_time_of_a_pause_is_not_computed(rig: Rig, holder: Client) -> None:
    pause(rig, holder)
    began = holder.seat.get("turn_start_us")
    computed = turn_us(holder.seat.snapshot(), monotonic_us())
    assert turn_us(holder.seat.snapshot(), monotonic_us() + MINUTE_US) == computed
    since = holder.seat.get("paused_us")
    holder.seat.set("paused_us", since - MINUTE_US)
    holder.seat.set("turn_start_us", began - MINUTE_US)
    rig.do(commands.GrantTurn(1, holder.job.id))
    assert holder.seat.get("yield") == Yield.NO and not holder.seat.get("paused_us")
    assert holder.seat.get("turn_start_us") >= began
    assert holder.job.switches == 1  # going on is no switch


async def test_who_says_in_advance_to_have_paused_is_watched_all_the_same(rig: Rig, holder: Client) -> None:
    """The next number is no secret, and what the seat says ends no lease."""
    holder.seat.set("paused", holder.seat.get("pause_seq") + 1)
    rig.do(commands.PauseTurn(holder.job.id))
    assert owed(rig, holder) is Yield.PAUSE


async def test_who_says_to_have_paused_is_asked_anew(rig: Rig, holder: Client) -> None:
    rig.do(commands.PauseTurn(holder.job.id))
    number = holder.seat.get("pause_seq")
    holder.seat.set("paused", number)
    rig.do(commands.PauseTurn(holder.job.id, forced=True))
    assert holder.seat.get("pause_seq") == number + 1
    assert rig.says(holder, PacketType.PAUSED, number) == []
    assert owed(rig, holder) is Yield.PAUSE


@pytest.mark.parametrize("then", [commands.WithdrawYield, lambda job: commands.GrantTurn(1, job)])
async def test_requests_that_come_and_go_give_no_more_time(
    rig: Rig, holder: Client, then: Callable[[int], commands.Command]
) -> None:
    """Other jobs of the same user can make a service's demand come and go as often as they like."""
    holder.seat.set("paused", 1)  # or it would be no pause that it goes on from
    for looks in (30, 30, 39):
        rig.do(commands.PauseTurn(holder.job.id, forced=True))
        revocation(rig, holder).looked(looks)
        rig.do(then(holder.job.id))
        assert rig.watchlist.revocation(holder.job) is None
    rig.do(commands.PauseTurn(holder.job.id, forced=True))
    assert 95 < revocation(rig, holder).looks <= 99


async def test_who_has_paused_has_its_whole_time_at_the_next_request(rig: Rig, holder: Client) -> None:
    rig.do(commands.PauseTurn(holder.job.id))
    revocation(rig, holder).looked(90)
    pause(rig, holder)
    assert owed(rig, holder) is None
    rig.do(commands.WithdrawYield(holder.job.id))
    rig.do(commands.PauseTurn(holder.job.id))
    assert revocation(rig, holder).looks == 0


def owed(rig: Rig, client: Client) -> Yield | None:
    """What the daemon, and not the seat, says that the job has been asked for."""
    revoked = rig.watchlist.revocation(client.job)
    return None if revoked is None else revoked.how


def revocation(rig: Rig, client: Client) -> Revocation:
    revoked = rig.watchlist.revocation(client.job)
    assert revoked is not None
    return revoked


# Turns as the seats tell them, and seats that tell nonsense


MANY = 200


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
    first.passes(second)
    rig.turns.sync(1)
    (event,) = rig.events
    assert isinstance(event, TurnPassed) and (event.job, event.to) == (first.job.id, second.job.id)


async def test_a_job_that_names_itself_has_named_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.attach()
    at_each_hand_over(rig, monkeypatch, lambda: client.passes(client))
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
        first.passes(second)
        second.passes(first)

    at_each_hand_over(rig, monkeypatch, both)
    both()
    rig.turns.sync(1)
    assert len(rig.events) == MOST_ENDED


# What a job owes of its turn, and how much of its time is left when it is asked again


@pytest.mark.parametrize(
    ("asked", "again", "passed_s", "looks"),
    [
        (Yield.PAUSE, Yield.PAUSE, 0.0, 40),
        (Yield.PAUSE, Yield.NOW, 0.0, 40),
        (Yield.NOW, Yield.PAUSE, 0.0, 40),
        (Yield.NOW, Yield.BOUNDARY, 0.0, 40),
        (Yield.BOUNDARY, Yield.BOUNDARY, 0.0, 40),
        (Yield.BOUNDARY, Yield.NOW, 0.0, 0),  # it could go on to its boundary until now
        (Yield.PAUSE, Yield.PAUSE, 10 * LOOK_S, 30),
        (Yield.PAUSE, Yield.PAUSE, 100 * LOOK_S, 0),
    ],
)
def test_looks_that_count_when_a_turn_is_asked_back_again(
    asked: Yield, again: Yield, passed_s: float, looks: int
) -> None:
    assert Revocation(asked, looks=40).carried(again, passed_s) == looks
