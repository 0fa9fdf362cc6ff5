"""Time limits under a daemon: what a job hears, how it ends, and that the next daemon goes on with it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from carpool.core.model import Attempt, Usage
from carpool.daemon.jobs.control import NEVER_ALONE, AloneTime, attempt_us, used_us
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon, as_nobody, refusal, until

TIME = {"code": "time_limit", "text": "reached its time limit of 0.3s"}
SHORT_US = 300_000
#: Says which signals come, and ends at the last one or ignores it.
LISTENER = """
import signal, sys, time
def hear(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM and {polite}:
        sys.exit(0)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, hear)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def listener(polite: bool = True) -> str:
    return LISTENER.format(polite=polite)


#: A limit that is far away, and a time before that at which its signal is due as soon as it is set.
LONG = {"time_us": 600_000_000, "limit_signal": 10}
NOW_US = 599_900_000


def ready(daemon: Daemon, code: str, **fields: Any) -> int:
    """A job that hears signals already: an interpreter may take longer to start than the limits here."""
    return daemon.python(code, **fields, line="ready")


def soon_us(daemon: Daemon, job: int) -> int:
    """A limit that is half a second away."""
    return time.time_ns() // 1000 - int(daemon.show(job)["started_us"]) + 500_000


def change(daemon: Daemon, job: int, **changes: int | None) -> dict[str, Any]:
    changed: dict[str, Any] = daemon.request("PATCH", f"/v1/jobs/{job}", changes)
    return changed


def test_a_job_that_ignores_the_limit_is_killed_also_by_the_next_daemon(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"kill_after_us": 600_000_000}})
    job = ready(daemon, listener(polite=False), retries=3)
    change(daemon, job, time_us=SHORT_US)
    daemon.until_line(job, "SIGTERM")
    daemon.until("TimeOut", job)
    shown = daemon.show(job)
    assert (shown["phase"], shown["reason"]["code"]) == ("stopping", "stopping")
    daemon.put("/v1/policy", {"settings": {"kill_after_us": 500_000}})  # that of the next daemon
    daemon.restarted()
    info = daemon.wait(job)
    assert (info["outcome"], info["signal"], info["reason"], info["attempt"]) == ("timed_out", 9, TIME, 1)


def test_a_limit_is_changed_while_the_job_runs_and_its_clock_goes_on_under_the_next_daemon(daemon: Daemon) -> None:
    job = ready(daemon, listener(), time_us=600_000_000)
    assert change(daemon, job, time_us=None)["time_us"] is None
    limit_us = soon_us(daemon, job)
    change(daemon, job, time_us=limit_us)
    daemon.restarted()
    assert daemon.show(job)["time_us"] == limit_us, "it is on the disk"
    info = daemon.wait(job)
    assert info["outcome"] == "timed_out"
    assert info["ended_us"] - info["started_us"] > limit_us - 100_000


def test_a_signal_before_the_limit_of_device_time_comes_once_under_two_daemons(daemon: Daemon) -> None:
    job = ready(daemon, listener(), device_time_us=600_000_000)
    change(daemon, job, limit_signal=10, limit_signal_us=600_000_000)
    daemon.until_line(job, "SIGUSR1")
    daemon.restarted()
    restart = max(event["seq"] for event in daemon.events() if event["kind"] == "RestartEnded")
    daemon.until_event(lambda event: event["kind"] == "Tick", since=restart)  # the limit has been looked at
    change(daemon, job, time_us=1000)  # has passed: of such a limit nobody is warned
    daemon.wait(job)
    assert daemon.output(job).split() == ["ready", "SIGUSR1", "SIGTERM"]


#: Says with each signal what the journal knows of the job by then.
READER = """
import signal, sqlite3, sys, time
def hear(number, _):
    ((value,),) = sqlite3.connect("file:{journal}?mode=ro", uri=True).execute(
        "SELECT value FROM meta WHERE key LIKE 'control:%'")
    print(signal.Signals(number).name, value, flush=True)
    if number == signal.SIGTERM:
        sys.exit(0)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, hear)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def test_a_job_times_out_after_its_signal_and_each_is_on_the_disk_before_the_job_hears_it(daemon: Daemon) -> None:
    """A daemon that ends in between knows that the job has been signalled, and why."""
    code = READER.format(journal=daemon.home / "journal.sqlite")
    job = ready(daemon, code, **LONG)
    change(daemon, job, limit_signal_us=NOW_US)
    daemon.until_line(job, 'SIGUSR1 {"warned":[600000000,10,599900000]}')
    change(daemon, job, time_us=SHORT_US, limit_signal=0, limit_signal_us=0)
    info = daemon.wait(job)
    assert (info["outcome"], info["exit_code"], info["reason"]) == ("timed_out", 0, TIME)
    assert info["ended_us"] - info["started_us"] > 0.9 * SHORT_US
    _, _, stopped = daemon.output(job).splitlines()
    assert stopped.startswith("SIGTERM ") and '"timed_out":"reached its time limit of 0.3s"' in stopped


def test_a_signal_before_the_limit_comes_once_under_two_daemons_and_again_before_another_limit(daemon: Daemon) -> None:
    job = ready(daemon, listener(), **LONG)
    change(daemon, job, limit_signal_us=NOW_US)
    daemon.until_line(job, "SIGUSR1")
    daemon.restarted()
    assert daemon.show(job)["phase"] == "running"
    change(daemon, job, weight=7)
    assert daemon.output(job).split() == ["ready", "SIGUSR1"]
    change(daemon, job, limit_signal_us=NOW_US - 100_000)
    until(lambda: daemon.output(job).split() == ["ready", "SIGUSR1", "SIGUSR1"])
    change(daemon, job, time_us=SHORT_US, limit_signal=0, limit_signal_us=0)
    assert daemon.wait(job)["outcome"] == "timed_out"
    assert daemon.output(job).split() == ["ready", "SIGUSR1", "SIGUSR1", "SIGTERM"]


def test_device_time_is_what_counts(daemon: Daemon) -> None:
    """A job that sleeps beside its device has all the time in the world."""
    busy = daemon.fake("attach", "turn", "pause", device_time_us=200_000)
    idle = daemon.python("import time; time.sleep(0.6)", device_time_us=1)
    info = daemon.wait(busy)
    assert (info["outcome"], info["reason"]["text"]) == ("timed_out", "reached its limit of 0.2s device time")
    assert daemon.wait(idle)["outcome"] == "succeeded"


def test_administrators_set_the_usual_and_the_longest_limit(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"default_time_us": SHORT_US, "max_time_us": 5_000_000}})
    job = daemon.python(listener())
    assert daemon.show(job)["time_us"] == SHORT_US
    assert daemon.show(daemon.submit("true", time_us=60_000_000))["time_us"] == 60_000_000, "an administrator may"
    assert daemon.wait(job)["outcome"] == "timed_out"
    daemon.put("/v1/policy", {"settings": {"default_time_us": None}})
    assert daemon.show(daemon.submit("true"))["time_us"] == 5_000_000


def test_users_ask_for_no_more_than_the_longest_limit(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"max_time_us": 5_000_000}})
    assert as_nobody(daemon, "attempt(lambda: daemon.submit('true', time_us=6000000))") == "time_limit"
    job = as_nobody(daemon, "daemon.submit('true', time_us=5000000, begin_us=1 << 60)")
    for value, answer in (("6000000", "time_limit"), ("None", "time_limit"), ("4000000", 4_000_000)):
        call = f"daemon.request('PATCH', '/v1/jobs/{job}', {{'time_us': {value}}})['time_us']"
        assert as_nobody(daemon, f"attempt(lambda: {call})") == answer
    daemon.put("/v1/policy", {"settings": {"max_time_us": 1_000_000}})
    call = f"daemon.request('PATCH', '/v1/jobs/{job}', {{'weight': 7}})['weight']"
    assert as_nobody(daemon, f"attempt(lambda: {call})") == 7, "the limit was allowed when it was asked for"


@pytest.mark.parametrize(("field", "value"), [("time_us", 0), ("device_time_us", -1), ("limit_signal", 65)])
def test_limits_that_make_no_sense_are_refused(daemon: Daemon, field: str, value: int) -> None:
    job = daemon.submit("sleep", "60")
    for call in (
        lambda: daemon.submit("true", **{field: value}),
        lambda: daemon.request("PATCH", f"/v1/jobs/{job}", {field: value}),
    ):
        assert refusal(call).answer == (400, f"bad_{field}")


# Device time: turns, and of jobs that have their device to themselves the time for which they hold it


SECOND = 1_000_000


def job(turn_s: int, past: tuple[Ended, ...] = (), **spec: Any) -> JobRecord:
    """It has run since the tenth second."""
    made = JobRecord(1, 0, 0, SubmitRequest(["true"], "/", {}, **spec), None, 0, past=past, started_us=10 * SECOND)
    made.usage = Usage(device_us=turn_s * SECOND)
    return made


def test_turns_count_and_no_more_than_the_time_for_which_the_job_ran() -> None:
    assert used_us(job(4), 20 * SECOND) == 4 * SECOND
    assert used_us(job(2**40), 20 * SECOND) == 10 * SECOND
    waiting = job(4)
    waiting.started_us = None
    assert used_us(waiting, 20 * SECOND) == 0


def test_a_job_that_was_submitted_as_exclusive_holds_its_devices_all_the_time() -> None:
    assert used_us(job(4, exclusive=True), 20 * SECOND) == 10 * SECOND
    assert used_us(job(4, gpus=3), 20 * SECOND) == 30 * SECOND
    memory = Ended(Attempt("no memory", "host0", out_of_memory=True), 1, 2, device_us=SECOND)
    assert used_us(job(4, (memory,)), 20 * SECOND) == 11 * SECOND, "the attempt after it has run out of memory"


def test_a_job_that_turns_out_to_be_exclusive_holds_its_device_from_then_on() -> None:
    found = job(2)
    found.alone = found.alone.told(True, 14 * SECOND, 2 * SECOND)
    found.usage = Usage(device_us=3 * SECOND)
    assert attempt_us(found, 20 * SECOND) == 8 * SECOND, "two seconds of turns, then six of holding it"
    found.alone = found.alone.told(False, 20 * SECOND, 3 * SECOND)
    found.usage = Usage(device_us=4 * SECOND)
    assert attempt_us(found, 30 * SECOND) == 9 * SECOND
    assert found.alone.told(False, 40 * SECOND, 0) is found.alone and NEVER_ALONE.told(False, 1, 1) is NEVER_ALONE
    assert AloneTime(10 * SECOND, 0).until(12 * SECOND, 5 * SECOND) == 0
