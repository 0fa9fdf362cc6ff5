"""Seats, turns and memory, with jobs that speak the seat protocol from Python (`fakejob.py`)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from carpool.core import commands, events
from carpool.daemon.journal.events import encoded
from tests.daemon.daemon_harness import Daemon

MIB = 1 << 20


def test_two_jobs_take_turns(daemon: Daemon) -> None:
    jobs = [daemon.fake("attach", "rounds:200") for _ in range(2)]
    for job in jobs:
        info = daemon.wait(job)
        assert (info["outcome"], info["iterations"]) == ("succeeded", 200), daemon.output(job)
        assert info["device"] == "host0" and info["device_us"] >= 0 and info["switches"] >= 1


def test_memory_is_granted_and_touched(daemon: Daemon) -> None:
    steps = (f"grow:p:{8 * MIB}", f"grow:e:{16 * MIB}", f"touch:p:{8 * MIB}", f"touch:e:{16 * MIB}")
    job = daemon.fake("attach", "iterate:1", *steps, "say:ready", "pause", line="ready")
    (device,) = daemon.get("/v1/devices")["devices"]
    assert device["used_bytes"] == 24 * MIB
    assert device["granted_bytes"] >= 24 * MIB
    assert device["granted_bytes"] + device["free_bytes"] == device["capacity_bytes"]
    daemon.cancelled(job)
    (device,) = daemon.get("/v1/devices")["devices"]
    assert (device["used_bytes"], device["granted_bytes"]) == (0, 0)


def test_more_than_the_device_is_denied(daemon: Daemon) -> None:
    job = daemon.fake("attach", f"grow:p:{MIB}", f"grow:p:{1024 * MIB}", "say:alive")
    assert daemon.wait(job)["outcome"] == "succeeded"
    assert daemon.output(job).splitlines()[1:] == [f"granted p {MIB}", f"denied p {1024 * MIB}", "alive"]


def test_another_version_is_refused(daemon: Daemon) -> None:
    job = daemon.fake("attach:99", ended=True)
    assert daemon.output(job) == "refused 2\n"


def test_a_job_killed_in_its_turn_gives_it_back_at_once(daemon: Daemon, fifo: Path) -> None:
    victim = daemon.fake("attach", "turn", "say:mine", f"listen:{fifo}", "crash", line="mine")
    successor = daemon.fake("attach", "iterate:1", "say:mine", until="TurnWanted")
    fifo.write_bytes(b"go")
    died = daemon.wait(victim)
    assert (died["outcome"], died["signal"]) == ("failed", 9)
    assert daemon.wait(successor)["outcome"] == "succeeded"
    gone = daemon.until("Detached", victim)
    granted = daemon.until("GrantTurn", successor)
    assert granted["now_us"] == gone["now_us"]  # one follows from the other


def test_a_job_killed_after_handing_over(daemon: Daemon) -> None:
    """Its successor already computes, though nobody has told the daemon."""
    heir_steps = ("attach", "turn", "say:mine", "iterate:3")
    victim = daemon.fake("attach", "turn", "say:mine", "until_successor", "die_after_handover", line="mine")
    heirs = [daemon.fake(*heir_steps) for _ in range(2)]
    assert daemon.wait(victim)["signal"] == 9
    for successor in heirs:
        info = daemon.wait(successor)
        assert (info["outcome"], info["iterations"]) == ("succeeded", 3)
    passed = [event for event in daemon.events() if event["kind"] == "TurnPassed" and event["job"] == victim]
    assert len(passed) == 1 and passed[0]["data"]["to"] in heirs


def test_an_exclusive_job_waits_for_the_others_and_they_for_it(daemon: Daemon, fifo: Path) -> None:
    holder = daemon.fake("attach", "turn", "say:mine", f"listen:{fifo}", "release", line="mine")
    alone = daemon.fake("attach", "iterate:2", exclusive=True)
    assert daemon.show(alone)["reason"] == {
        "code": "exclusive",
        "text": f"waiting for exclusive use of host0: job {holder} there",
    }
    fifo.write_bytes(b"go")
    assert daemon.wait(alone)["outcome"] == daemon.wait(holder)["outcome"] == "succeeded"
    kinds = [(event["kind"], event["job"]) for event in daemon.events()]
    assert kinds.index(("EndJob", holder)) < kinds.index(("StartJob", alone))


def test_the_attached_process_dies_and_the_job_goes_on(daemon: Daemon) -> None:
    job = daemon.fake("fork_die", "say:still here", "attach", "iterate:2")
    info = daemon.wait(job)
    assert info["outcome"] == "succeeded"
    assert daemon.output(job).splitlines()[-2] == "still here"


def test_history_is_the_estimate_of_the_next_run(daemon: Daemon) -> None:
    steps = ("attach", f"grow:p:{8 * MIB}", f"grow:e:{4 * MIB}", "iterate:10")
    first = daemon.fake(*steps)
    assert daemon.show(first)["estimate_source"] is None
    daemon.wait(first)
    second = daemon.fake(*steps)
    info = daemon.wait(second)
    assert (info["estimate_source"], info["iterations_total"]) == ("history", 10)
    event = daemon.until("Submitted", second)
    assert event["data"]["spec"]["estimate"]["memory"] == {"persistent": 8 * MIB, "ephemeral": 4 * MIB}
    hinted = daemon.fake(*steps, persistent_bytes=MIB)
    assert daemon.wait(hinted)["estimate_source"] == "hint"
    rehearsed = daemon.fake(*steps, persistent_bytes=MIB, estimate_source="faketensor")
    assert daemon.wait(rehearsed)["estimate_source"] == "faketensor"
    shown = daemon.show(first)
    runs = daemon.post("/v1/history", {"argv": shown["command"], "cwd": shown["cwd"]})["runs"]
    assert runs == [{"persistent": 8 * MIB, "ephemeral": 4 * MIB}] * 4
    assert daemon.post("/v1/history", {"argv": ["other"], "cwd": shown["cwd"]})["runs"] == []


def test_everything_in_the_journal_can_be_rebuilt(daemon: Daemon) -> None:
    daemon.wait(daemon.fake("attach", f"grow:e:{MIB}", "iterate:5"))
    seen = daemon.events()
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    for event in seen:
        kind = getattr(events, event["kind"], None) or getattr(commands, event["kind"])
        again = msgspec.convert(event["data"], kind)
        assert msgspec.json.decode(encoded(again)) == event["data"]
    kinds = {event["kind"] for event in seen}
    assert {"Submitted", "StartJob", "Attached", "TurnWanted", "GrantTurn", "GrantMemory", "EndJob"} <= kinds


def test_a_restarted_daemon_takes_the_seats_over(daemon: Daemon, fifo: Path, tmp_path: Path) -> None:
    """One job holds its turn and asks for memory while no daemon lives, one waits for the turn."""
    steps = (f"grow:e:{8 * MIB}", "turn", "say:mine", f"listen:{fifo}", f"grow:p:{4 * MIB}", "iterate:2", "release")
    holder = daemon.fake("attach", *steps, line="mine")
    waiter = daemon.fake("attach", "iterate:3", until="TurnWanted")
    daemon.kill()
    fifo.write_bytes(b"go")
    daemon.started()
    for job, iterations in ((holder, 2), (waiter, 3)):
        info = daemon.wait(job)
        assert (info["outcome"], info["iterations"]) == ("succeeded", iterations), daemon.log()
    assert f"granted p {4 * MIB}" in daemon.output(holder)
    adopted = [event for event in daemon.events() if event["kind"] == "Adopted"]
    assert {event["job"] for event in adopted} == {holder, waiter}
