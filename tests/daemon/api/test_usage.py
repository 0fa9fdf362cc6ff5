"""GET /v1/usage: real jobs of two users, by day; what remains of them, and who sees it."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from carpool.protocol.api import TurnsOfBin
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, as_nobody, until

DAY_US = 86_400_000_000
DEVICE = ("--device", "host:64MiB", "--telemetry-interval=0.1s")
ROUNDS = ("attach", "rounds:50")


def today() -> str:
    return time.strftime("%Y-%m-%d")


def by_user(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert all(day["day"] == today() for day in found["days"]), "unless midnight was a moment ago"
    return {day["user"]: day for day in found["days"]}


def usage(daemon: Daemon, query: str = "") -> dict[str, dict[str, Any]]:
    return by_user(daemon.get(f"/v1/usage{query}"))


def clean(daemon: Daemon, *jobs: int) -> None:
    """Jobs stay for a moment after their end."""
    left = set(jobs)
    until(lambda: not left.difference_update(daemon.post("/v1/clean", {"jobs": sorted(left)})["removed"]) and not left)


def test_jobs_of_two_users_count_for_each_and_stay_counted(make_daemon: Make) -> None:
    daemon = make_daemon(*DEVICE).hurry("hooks.retention.JUST_ENDED", to=20_000).started()
    jobs = [daemon.fake(*ROUNDS), daemon.fake(*ROUNDS), daemon.submit("false")]
    jobs.append(as_nobody(daemon, f"daemon.fake(*{ROUNDS!r})"))
    infos = [daemon.wait(job) for job in jobs]
    newest = daemon.submit("true", ended=True)
    before = usage(daemon)
    root, nobody = before[user_name(0)], before[user_name(NOBODY)]
    assert (root["uid"], root["jobs"], root["ended"]) == (0, 4, {"failed": 1, "succeeded": 3})
    assert root["device_us"] == sum(info["device_us"] for info in infos[:3]) > 0
    assert root["waited_us"] == sum(
        info["started_us"] - info["submitted_us"] for info in [*infos[:3], daemon.show(newest)]
    )
    assert (nobody["jobs"], nobody["device_us"]) == (1, infos[3]["device_us"])
    assert [info["used_us"] for info in infos] == [info["device_us"] for info in infos], "as `carpool history` says"
    clean(daemon, *jobs)
    daemon.restarted()
    assert usage(daemon) == before


def test_who_may_not_see_others_sees_the_own_use(make_daemon: Make) -> None:
    daemon = make_daemon(*DEVICE, limits='visibility = "own"\n').started()
    daemon.wait(daemon.submit("true"))
    daemon.wait(as_nobody(daemon, "daemon.submit('true')"))
    seen = as_nobody(daemon, "daemon.get('/v1/usage')")
    assert set(by_user(seen)) == {user_name(NOBODY)} and seen["devices"], "sums over a device stay"
    assert set(usage(daemon)) == {user_name(0), user_name(NOBODY)}


def test_jobs_that_run_count_and_devices_say_how_busy_they_are(make_daemon: Make) -> None:
    daemon = make_daemon(*DEVICE).started()
    daemon.fake("attach", "rounds:100000", until="GrantTurn")
    until(lambda: any(day["device_us"] for day in usage(daemon).values()))
    running = usage(daemon)[user_name(os.getuid())]
    assert (running["jobs"], running["ended"], running["waited_us"]) == (0, {}, 0)
    until(lambda: any(device["busy_ppm"] for device in daemon.get("/v1/usage")["devices"]))
    devices = daemon.get("/v1/usage")["devices"]
    assert len(devices) == 14 and [each["busy_ppm"] for each in devices[:13]] == [None] * 13
    assert devices[13]["day"] == today() and devices[13]["device"] == daemon.get("/v1/devices")["devices"][0]["id"]


def test_a_device_without_jobs_is_not_busy_whatever_else_the_machine_does(make_daemon: Make) -> None:
    """This test and the daemon compute meanwhile, at least."""
    daemon = make_daemon(*DEVICE).started()
    until(lambda: daemon.get("/v1/devices")["devices"][0]["telemetry"]["busy_ppm"])
    until(lambda: daemon.get("/v1/usage")["devices"][-1]["busy_ppm"] is not None)
    assert daemon.get("/v1/usage")["devices"][-1]["busy_ppm"] == 0


def test_a_job_that_has_its_device_to_itself_uses_it_for_as_long_as_it_holds_it(
    make_daemon: Make,
) -> None:
    """And both commands say the same, also of an attempt that came to nothing, and after a restart."""
    daemon = make_daemon(*DEVICE).started()
    infos = [daemon.wait(daemon.submit("sleep", "0.2", exclusive=True)), daemon.wait(daemon.submit("false", retries=1))]
    alone, again = infos
    assert alone["device_us"] == 0 < alone["used_us"] == alone["ended_us"] - alone["started_us"]
    assert again["used_us"] == 0 and len(again["attempts"]) == 2
    assert usage(daemon)[user_name(os.getuid())]["device_us"] == alone["used_us"]
    daemon.restarted()
    assert [daemon.show(info["id"])["used_us"] for info in infos] == [info["used_us"] for info in infos]


def test_days_are_whole(make_daemon: Make) -> None:
    daemon = make_daemon(*DEVICE).started()
    daemon.wait(daemon.submit("true"))
    now = time.time_ns() // 1000
    found = daemon.get(f"/v1/usage?since={now - 1}&until={now}")
    assert len(found["days"]) == 1 and found["until_us"] == now
    assert time.localtime(found["since_us"] / 1e6)[3:6] == (0, 0, 0) and found["since_us"] <= now
    assert daemon.get(f"/v1/usage?since={now - 9 * DAY_US}&until={now - 2 * DAY_US}")["days"] == []
    assert len(daemon.get("/v1/usage?since=0")["devices"]) == 400, "no more is kept"


# GET /v1/turns: what the events say, over restarts, and as far as a user may see it


def of_events(events: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    """Length, job and cause of each turn that has ended, in order."""
    found, begun = [], dict[int, int]()
    for event in events:
        job, now = event["job"], event["now_us"]
        if event["kind"] == "GrantTurn":
            begun[job] = now
        elif event["kind"] in ("TurnPassed", "TurnReleased"):
            found.append((now - begun.pop(job), job, event["data"]["cause"]))
            if event["kind"] == "TurnPassed":
                begun[event["data"]["to"]] = now
    return found


def answered(daemon: Daemon, **asked: Any) -> list[TurnsOfBin]:
    """Turns of all lanes."""
    found = DaemonClient(daemon.home).turns(**asked)
    return [turn for lane in found.lanes for turn in lane.turns]


def exact(daemon: Daemon) -> list[TurnsOfBin]:
    """Every turn by itself: bins are so short that no two begin in one."""
    whole = answered(daemon, bins=1)
    found: list[TurnsOfBin] = []
    for since in range(whole[0].begin_us, whole[-1].end_us + 1, 40_000):
        part = answered(daemon, since_us=since, until_us=since + 40_000, bins=4000)
        found += [turn for turn in part if turn.begin_us >= since]
    return found


def two_that_take_turns(daemon: Daemon) -> tuple[int, int]:
    first, second = (daemon.fake("attach", "rounds:20", "say:done", "pause") for _ in range(2))
    for job in (first, second):
        daemon.until_line(job, "done")
    return first, second


def test_the_answer_is_what_the_events_say(daemon: Daemon) -> None:
    jobs = two_that_take_turns(daemon)
    expected = of_events(daemon.events())
    turns = exact(daemon)
    assert len(turns) == 40 and {turn.job for turn in turns} == set(jobs)
    assert sorted((turn.end_us - turn.begin_us, turn.job, turn.cause) for turn in turns) == sorted(expected)
    assert all(turn.turns == 1 and turn.busy_us == turn.end_us - turn.begin_us for turn in turns)
    (merged,) = answered(daemon, bins=1)
    assert (merged.turns, merged.busy_us) == (40, sum(length for length, _, _ in expected))
    assert answered(daemon, device="host0", bins=1) == [merged]


def test_a_turn_that_goes_on_has_no_cause(daemon: Daemon) -> None:
    job = daemon.fake("attach", "turn", "say:mine", "pause", line="mine")
    (turn,) = answered(daemon)
    assert (turn.job, turn.turns, turn.cause) == (job, 1, "") and turn.busy_us == turn.end_us - turn.begin_us
    (later,) = answered(daemon)
    assert later.begin_us == turn.begin_us and later.end_us > turn.end_us
    daemon.cancelled(job)
    (turn,) = answered(daemon)
    assert turn.begin_us == later.begin_us and turn.cause in ("exit", "left", "ended")


def test_turns_outlive_the_daemon_and_what_a_kill_takes_is_not_invented(daemon: Daemon) -> None:
    two_that_take_turns(daemon)
    before = exact(daemon)
    daemon.terminate()
    daemon.started()
    assert exact(daemon) == before
    more = daemon.fake("attach", "rounds:5", "say:done", "turn", "say:again", "pause", line="again")
    daemon.restarted()
    found = exact(daemon)
    assert found[: len(before)] == before
    assert {(turn.job, turn.cause) for turn in found[len(before) :]} <= {(more, "")}, "adopted, and it goes on"


@pytest.mark.parametrize("visibility", ["names", "own"])
def test_others_see_as_much_as_of_lanes(make_daemon: Any, visibility: str) -> None:
    daemon = make_daemon(limits=f'visibility = "{visibility}"\n').started()
    two_that_take_turns(daemon)
    mine = daemon.get("/v1/turns?bins=1")
    theirs: Any = as_nobody(daemon, "daemon.get('/v1/turns?bins=1')")
    assert len(mine["lanes"]) == 1 and mine["kept_from_us"] is not None
    if visibility == "names":
        assert [lane["turns"][0][2:] for lane in theirs["lanes"]] == [lane["turns"][0][2:] for lane in mine["lanes"]]
    else:
        assert (theirs["lanes"], theirs["kept_from_us"]) == ([], None)
