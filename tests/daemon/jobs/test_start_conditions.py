"""Jobs that are held, that begin later, that wait for others: with a daemon, and with the one after it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest

from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import Daemon, Refused, as_nobody

ME = user_name(os.getuid())


def test_a_held_job_stays_held_by_the_next_daemon(daemon: Daemon) -> None:
    submitted = daemon.submit("true", hold=True)
    blocker = daemon.submit("sleep", "60", exclusive=True)
    queued = daemon.submit("true")
    assert daemon.post(f"/v1/jobs/{queued}/hold")["held_by"] == os.getuid()
    daemon.kill()
    daemon.started()
    daemon.cancel(blocker)
    daemon.wait(blocker)
    for job in (submitted, queued):
        assert daemon.show(job)["reason"] == {
            "code": "held",
            "text": f"held by {ME}; carpool release {job} lets it start",
        }
        assert daemon.post(f"/v1/jobs/{job}/release")["held_by"] is None
        assert daemon.wait(job)["outcome"] == "succeeded"


def test_a_released_job_stays_released(daemon: Daemon) -> None:
    """Also one that was submitted as held, and before it could start."""
    blocker = daemon.submit("sleep", "60", exclusive=True)
    job = daemon.submit("true", hold=True)
    daemon.post(f"/v1/jobs/{job}/release")
    daemon.kill()
    daemon.started()
    assert daemon.show(job)["held_by"] is None
    daemon.cancel(blocker)
    assert daemon.wait(job)["outcome"] == "succeeded"


def test_what_can_not_be_held_or_released_says_why(daemon: Daemon) -> None:
    running = daemon.submit("sleep", "60")
    daemon.until("ProcessStarted", running)
    ended = daemon.submit("true")
    daemon.wait(ended)
    for job, action, code in (
        (running, "hold", "not_queued"),
        (running, "release", "not_held"),
        (ended, "hold", "ended"),
    ):
        with pytest.raises(Refused) as refused:
            daemon.post(f"/v1/jobs/{job}/{action}")
        assert (refused.value.status, refused.value.code) == (409, code)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: acts as another user")
def test_what_an_administrator_holds_its_owner_does_not_release(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon("--device", "host:64MiB").started()
    daemon.submit("sleep", "60", exclusive=True)
    daemon.home.parent.chmod(0o755)
    job = as_nobody(daemon, "daemon.submit('true')")
    assert as_nobody(daemon, f"daemon.post('/v1/jobs/{job}/hold')['phase']") == "queued"
    assert as_nobody(daemon, f"daemon.post('/v1/jobs/{job}/release')['held_by']") is None
    daemon.post(f"/v1/jobs/{job}/hold")
    assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/jobs/{job}/release'))") == "not_operator"
    assert as_nobody(daemon, "attempt(lambda: daemon.post('/v1/jobs/1/hold'))") == "not_owner"
    daemon.cancel(job)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: acts as another user")
@pytest.mark.parametrize(("verb", "back", "by"), [("hold", "release", "held_by"), ("pause", "resume", "paused_by")])
def test_an_administrator_outranks_the_owner_who_was_first(
    make_daemon: Callable[..., Daemon], verb: str, back: str, by: str
) -> None:
    daemon = make_daemon("--device", "host:64MiB").started()
    daemon.home.parent.chmod(0o755)
    job = as_nobody(daemon, "daemon.submit('true', hold=True)")
    as_nobody(daemon, f"daemon.post('/v1/jobs/{job}/{verb}')['id']")
    assert daemon.post(f"/v1/jobs/{job}/{verb}")[by] == 0
    assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/jobs/{job}/{back}'))") == "not_operator"
    assert daemon.post(f"/v1/jobs/{job}/{back}")[by] is None
    daemon.cancel_unless_ended(job)


def test_a_job_begins_at_its_time_under_the_next_daemon_too(daemon: Daemon) -> None:
    begin_us = time.time_ns() // 1000 + 3_600_000_000
    job = daemon.submit(sys.executable, "-c", "import time; print(time.time_ns() // 1000)", begin_us=begin_us)
    reason = daemon.show(job)["reason"]
    assert reason["code"] == "begin" and reason["text"].startswith("to start in ")
    assert ":" not in reason["text"], "the reader's zone need not be the daemon's"
    daemon.kill()
    daemon.started()
    assert daemon.show(job)["reason"]["code"] == "begin"
    begin_us = time.time_ns() // 1000 + 500_000
    daemon.request("PATCH", f"/v1/jobs/{job}", {"begin_us": begin_us})
    daemon.kill()
    daemon.started()
    assert daemon.wait(job)["outcome"] == "succeeded"
    assert int(daemon.output(job)) >= begin_us


def test_dependencies_by_how_another_job_ends_outlive_the_daemon(daemon: Daemon) -> None:
    first = daemon.submit("sh", "-c", "sleep 60; exit 3")
    notok = daemon.submit("true", after_notok=[first])
    any_ = daemon.submit("true", after_any=[first, notok])
    never = daemon.submit("true", after_notok=[any_])
    assert daemon.show(any_)["reason"]["text"] == f"waiting for job {first} to end, job {notok} to end"
    daemon.kill()
    daemon.started()
    assert daemon.show(never)["reason"]["text"] == f"waiting for job {any_} to fail"
    daemon.cancel(first)
    assert [daemon.wait(job)["outcome"] for job in (notok, any_, never)] == ["succeeded", "succeeded", "refused"]
    with pytest.raises(Refused) as refused:
        daemon.submit("true", after_notok=[any_])
    assert refused.value.code == "failed_dependency" and f"--after notok:{any_}" in refused.value.message
    assert daemon.wait(daemon.submit("true", after_any=[never]))["outcome"] == "succeeded"
