"""Jobs that are changed after their submission, or requeued, under a daemon and the one after it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import NOBODY, Daemon, Refused, as_nobody, refusal, until


def update(daemon: Daemon, job: int, **changes: Any) -> dict[str, Any]:
    return daemon.request("PATCH", f"/v1/jobs/{job}", changes)


def test_a_queued_job_is_changed_for_good(daemon: Daemon) -> None:
    first = daemon.submit("sleep", "60")
    job = daemon.submit("true", after=[first])
    changed = update(daemon, job, name="other", weight=300, after=[], after_notok=[first], iterations=7)
    assert (changed["name"], changed["weight"], changed["iterations_total"]) == ("other", 300, 7)
    assert changed["reason"]["text"] == f"waiting for job {first} to fail"
    daemon.restarted()
    again = daemon.show(job)
    assert all(again[name] == changed[name] for name in ("name", "weight", "after", "after_notok", "reason"))
    daemon.cancel(first)
    assert daemon.wait(job)["outcome"] == "succeeded"


def test_what_cannot_be_changed_says_why(daemon: Daemon) -> None:
    running = daemon.submit("sleep", "60", until="ProcessStarted")
    ended = daemon.submit("true", ended=True)
    queued = [daemon.submit("true", hold=True)]
    queued.append(daemon.submit("true", after=[queued[0]]))
    assert refusal(update, daemon, running, device="host0").code == "not_queued"
    assert refusal(update, daemon, ended, name="x").code == "ended"
    assert refusal(update, daemon, queued[0], device="gpu7").code == "unknown_device"
    assert refusal(update, daemon, queued[0], after=[777]).code == "unknown_dependency"
    assert refusal(update, daemon, queued[0], after_notok=[ended]).code == "failed_dependency"
    assert refusal(update, daemon, queued[0], after_any=[queued[1]]).code == "circular_dependency"
    assert refusal(update, daemon, queued[0], after=[queued[0]]).code == "circular_dependency"
    assert refusal(update, daemon, queued[0], gpus=2).code == "bad_request"
    assert update(daemon, running, name="renamed", device=None)["name"] == "renamed"
    for job, action, code in (
        *((running, "hold", "not_queued"), (running, "release", "not_held"), (running, "resume", "not_paused")),
        *((queued[0], "requeue", "not_running"), (ended, "requeue", "ended")),
        *((ended, "hold", "ended"), (ended, "pause", "ended")),
    ):
        assert refusal(daemon.post, f"/v1/jobs/{job}/{action}").answer == (409, code), (action, code)


def test_a_requeued_job_starts_again_and_keeps_its_retries(daemon: Daemon) -> None:
    job = daemon.python("import time; print('here', flush=True); time.sleep(60)", retries=1, line="here")
    assert daemon.post(f"/v1/jobs/{job}/requeue")["phase"] == "stopping"
    daemon.until_event(lambda event: event["kind"] == "ProcessStarted" and daemon.show(job)["attempt"] == 2)
    info = daemon.show(job)
    assert info["attempts"][0]["text"] == f"requeued by {user_name(os.getuid())}"
    daemon.restarted()
    until(lambda: daemon.show(job)["phase"] != "starting")  # its shim has said more
    info = daemon.show(job)
    assert (info["phase"], info["attempt"], info["retries"]) == ("running", 2, 1)
    assert daemon.cancelled(job)["outcome"] == "cancelled"


def test_a_job_is_requeued_though_the_daemon_dies_meanwhile(daemon: Daemon, fifo: Path) -> None:
    """The job ends while no daemon is there; the next one still knows that another attempt is to follow."""
    end = f"print('asked', flush=True), open({str(fifo)!r}).read(), sys.exit(4)"
    code = f"import signal, sys, time; signal.signal(15, lambda *_: ({end}))"
    job = daemon.python(f"{code}; print('here', flush=True); time.sleep(60)", line="here")
    daemon.post(f"/v1/jobs/{job}/requeue")
    daemon.until_line(job, "asked")
    daemon.kill()
    fifo.write_text("end")
    until((daemon.home / "jobs" / str(job) / "exit.json").exists)
    daemon.started()
    daemon.until_event(lambda event: event["kind"] == "ProcessStarted" and daemon.show(job)["attempt"] == 2)
    (first,) = daemon.show(job)["attempts"]
    assert first["exit_code"] == 4 and first["text"].startswith("requeued by ")


def test_a_job_is_requeued_only_so_often(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"max_requeues": 1}})
    job = daemon.submit("sleep", "60", until="ProcessStarted")
    daemon.post(f"/v1/jobs/{job}/requeue")
    daemon.until_event(lambda event: event["kind"] == "ProcessStarted" and daemon.show(job)["attempt"] == 2)
    with pytest.raises(Refused, match=r"requeued 1 times, the most .*carpool set max_requeues=3") as refused:
        daemon.post(f"/v1/jobs/{job}/requeue")
    assert (refused.value.status, refused.value.code) == (409, "too_many_requeues")
    assert daemon.show(job)["phase"] in ("starting", "running")


# Jobs that are held, that begin later, that wait for others: with a daemon, and with the one after it


ME = user_name(os.getuid())


def test_a_held_job_stays_held_by_the_next_daemon_and_a_released_one_released(daemon: Daemon) -> None:
    submitted = daemon.submit("true", hold=True)
    blocker = daemon.submit("sleep", "60", exclusive=True)
    queued, released = daemon.submit("true"), daemon.submit("true", hold=True)
    assert daemon.post(f"/v1/jobs/{queued}/hold")["held_by"] == os.getuid()
    daemon.post(f"/v1/jobs/{released}/release")
    daemon.restarted()
    assert daemon.show(released)["held_by"] is None and daemon.show(released)["phase"] == "queued"
    daemon.cancelled(blocker)
    assert daemon.wait(released)["outcome"] == "succeeded"
    for job in (submitted, queued):
        assert daemon.show(job)["reason"] == {
            "code": "held",
            "text": f"held by {ME}; carpool release {job} lets it start",
        }
        assert daemon.post(f"/v1/jobs/{job}/release")["held_by"] is None
        assert daemon.wait(job)["outcome"] == "succeeded"


@pytest.mark.parametrize(("verb", "back", "by"), [("hold", "release", "held_by"), ("pause", "resume", "paused_by")])
def test_what_an_administrator_holds_or_pauses_its_owner_does_not_let_go_on(
    daemon: Daemon, verb: str, back: str, by: str
) -> None:
    """Also where the owner was first."""
    mine = daemon.submit("sleep", "60", exclusive=True)
    job = as_nobody(daemon, "daemon.submit('true')")

    def theirs(action: str, job: int = job) -> object:
        return as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/jobs/{job}/{action}')['{by}'])")

    assert (theirs(verb), theirs(back), theirs(verb)) == (NOBODY, None, NOBODY)
    assert daemon.post(f"/v1/jobs/{job}/{verb}")[by] == 0
    assert (theirs(back), theirs(verb, mine)) == ("not_operator", "not_owner")
    assert daemon.post(f"/v1/jobs/{job}/{back}")[by] is None


def test_a_job_begins_at_its_time_under_the_next_daemon_too(daemon: Daemon) -> None:
    begin_us = time.time_ns() // 1000 + 3_600_000_000
    job = daemon.submit(sys.executable, "-c", "import time; print(time.time_ns() // 1000)", begin_us=begin_us)
    reason = daemon.show(job)["reason"]
    assert reason["code"] == "begin" and reason["text"].startswith("to start in ")
    assert ":" not in reason["text"], "the reader's zone need not be the daemon's"
    daemon.restarted()
    assert daemon.show(job)["reason"]["code"] == "begin"
    begin_us = time.time_ns() // 1000 + 500_000
    update(daemon, job, begin_us=begin_us)
    waits = daemon.submit("true", hold=True)
    update(daemon, waits, begin_us=1 << 60)
    daemon.post(f"/v1/jobs/{waits}/release")
    assert daemon.show(waits)["reason"]["code"] == "begin"
    daemon.restarted()
    assert daemon.wait(job)["outcome"] == "succeeded"
    assert int(daemon.output(job)) >= begin_us
    update(daemon, waits, begin_us=None)
    assert daemon.wait(waits)["outcome"] == "succeeded"


def test_dependencies_by_how_another_job_ends_outlive_the_daemon(daemon: Daemon) -> None:
    first = daemon.submit("sh", "-c", "sleep 60; exit 3")
    notok = daemon.submit("true", after_notok=[first])
    any_ = daemon.submit("true", after_any=[first, notok])
    never = daemon.submit("true", after_notok=[any_])
    assert daemon.show(any_)["reason"]["text"] == f"waiting for job {first} to end, job {notok} to end"
    daemon.restarted()
    assert daemon.show(never)["reason"]["text"] == f"waiting for job {any_} to fail"
    daemon.cancel(first)
    assert [daemon.wait(job)["outcome"] for job in (notok, any_, never)] == ["succeeded", "succeeded", "refused"]
    refused = refusal(daemon.submit, "true", after_notok=[any_])
    assert refused.code == "failed_dependency" and f"--after notok:{any_}" in refused.message
    assert daemon.wait(daemon.submit("true", after_any=[never]))["outcome"] == "succeeded"
