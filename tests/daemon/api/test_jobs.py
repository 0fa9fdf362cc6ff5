"""The life of a job through the API."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from carpool.core.events import PauseChanged
from carpool.daemon.api import job_control
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon, Make, Refused, alive, refusal, submission
from tests.daemon.failing import WAITS, let_go

PATIENCE_S = 60.0


def test_a_job_runs_in_its_directory_with_its_environment(daemon: Daemon, tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['COLOUR'], os.getsid(0) == os.getpid())"
    job = daemon.python(code, cwd=str(tmp_path), env={"COLOUR": "green"}, name="first")
    info = daemon.wait(job)
    assert (info["outcome"], info["exit_code"], info["signal"], info["name"]) == ("succeeded", 0, None, "first")
    assert daemon.output(job) == f"{tmp_path} green True\n"
    assert info["submitted_us"] <= info["started_us"] <= info["ended_us"]


def test_exit_codes_signals_and_commands_that_do_not_exist_are_told(daemon: Daemon) -> None:
    failed = daemon.wait(daemon.python("raise SystemExit(7)"))
    assert (failed["outcome"], failed["exit_code"]) == ("failed", 7)
    killed = daemon.wait(daemon.python("import os; os.kill(os.getpid(), 9)"))
    assert (killed["outcome"], killed["exit_code"], killed["signal"]) == ("failed", None, 9)
    info = daemon.wait(daemon.submit("/no/such/program"))
    assert info["outcome"] == "failed"
    assert "/no/such/program" in info["reason"]["text"] and "No such file" in info["reason"]["text"]


def test_output_is_followed_until_the_end(daemon: Daemon) -> None:
    job = daemon.python("import sys\nfor n in range(2000): print(n)\nprint('to stderr', file=sys.stderr)")
    assert list(daemon.lines(job)) == [*map(str, range(2000)), "to stderr"]
    assert daemon.request("GET", f"/v1/jobs/{job}/logs?offset=2") == daemon.output(job)[2:].encode()


def test_jobs_are_listed_by_phase_and_limit(daemon: Daemon) -> None:
    ended = [daemon.python("pass", ended=True) for _ in range(3)]
    waiting = daemon.python("import signal; signal.pause()", until="ProcessStarted")
    assert [job["id"] for job in daemon.get("/v1/jobs")["jobs"]] == [*ended, waiting]
    assert [job["id"] for job in daemon.get("/v1/jobs?phase=running")["jobs"]] == [waiting]
    assert [job["id"] for job in daemon.get("/v1/jobs?phase=ended&limit=2")["jobs"]] == ended[1:]
    assert [job["id"] for job in daemon.get(f"/v1/jobs?limit=2&before={waiting}")["jobs"]] == ended[1:]
    assert [job["id"] for job in daemon.get(f"/v1/jobs?limit=2&before={ended[1]}")["jobs"]] == ended[:1]
    with pytest.raises(Refused, match="known phases"):
        daemon.get("/v1/jobs?phase=sleeping")


def test_a_job_after_one_that_fails_is_refused(daemon: Daemon, pipe: Path) -> None:
    first = daemon.submit(sys.executable, "-c", WAITS, str(pipe), "1")
    second = daemon.python("pass", after=[first])
    let_go(pipe)
    assert daemon.wait(second)["outcome"] == "refused"
    assert refusal(daemon.python, "pass", after=[first]).code == "failed_dependency"


STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def say(what):
    os.write(1, f"{what}\\n".encode())  # whole lines: print() writes the end of a line by itself
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    say(os.getpid())
    signal.pause()
say(os.getpid())
say("ready")
signal.pause()
"""


def test_cancel_ends_a_stubborn_job_with_its_grandchildren(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"kill_after_us": 200_000}})
    job = daemon.python(STUBBORN)
    lines = daemon.lines(job)
    pids = [int(line) for line in (next(lines) for _ in range(4)) if line.isdigit()]
    assert len(pids) == 3 and all(alive(pid) for pid in pids)
    assert daemon.cancel(job)["phase"] in ("stopping", "ended")
    info = daemon.wait(job)
    assert (info["outcome"], info["signal"]) == ("cancelled", 9)
    assert not any(alive(pid) for pid in pids)
    signals = [event["data"]["signal"] for event in daemon.events() if event["kind"] == "SignalJob"]
    assert signals == [15, 9]


def test_what_a_job_leaves_behind_ends_with_it(daemon: Daemon) -> None:
    code = """if True:
        import os, signal
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            print(os.getpid())
            os.write(writer, b"printed")
            signal.pause()
        os.read(reader, 7)  # what is left behind may be ended as soon as this process is gone
    """
    job = daemon.python(code, ended=True)
    pid = next(int(line) for line in daemon.output(job).splitlines() if line.isdigit())
    assert not alive(pid)


#: A job that ends at once may have ended before its second cancellation.
ENDS_WHEN_TOLD = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


def test_cancelling_twice_changes_nothing_and_after_the_end_is_refused(daemon: Daemon, pipe: Path) -> None:
    daemon.put("/v1/policy", {"settings": {"kill_after_us": 600_000_000}})
    job = daemon.submit(sys.executable, "-c", ENDS_WHEN_TOLD, str(pipe), "0", line="here")
    assert [daemon.cancel(job)["phase"] for _ in range(2)] == ["stopping", "stopping"]
    let_go(pipe)
    assert daemon.wait(job)["outcome"] == "cancelled"
    with pytest.raises(Refused, match=f"job {job} has already ended: cancelled") as refused:
        daemon.cancel(job)
    assert (refused.value.status, refused.value.code) == (409, "already_ended")
    assert daemon.show(job)["outcome"] == "cancelled"


def test_refusals_name_elements_of_arrays_as_ls_does(daemon: Daemon) -> None:
    elements = [submission("true", index=index) for index in (4, 7)]
    first, second = daemon.post("/v1/submissions", {"jobs": elements, "arrays": [[0, 1]]})["ids"]
    daemon.wait(second)
    with pytest.raises(Refused, match=f"job {first}_7 has already ended: succeeded") as refused:
        daemon.cancel(second)
    assert refused.value.hint == f"carpool show {first}_7 says more"
    with pytest.raises(Refused, match=f"job {first}_7 has ended: succeeded"):
        daemon.post(f"/v1/jobs/{second}/hold", {})


def test_a_queued_job_is_cancelled_at_once(daemon: Daemon) -> None:
    first = daemon.python("import signal; signal.pause()")
    second = daemon.python("pass", after=[first])
    assert daemon.cancel(second)["outcome"] == "cancelled"


def test_large_environments_arrive_and_are_never_shown(daemon: Daemon) -> None:
    secret = "value-that-nobody-may-see"
    env = {"TOKEN": secret} | {f"NAME_{n}": "x" * 100_000 for n in range(12)}
    job = daemon.python("import os; print(sum(len(v) for k, v in os.environ.items() if k[:5] == 'NAME_'))", env=env)
    info = daemon.wait(job)
    assert info["outcome"] == "succeeded" and daemon.output(job) == "1200000\n"
    assert secret not in json.dumps(info) and secret not in json.dumps(daemon.events())
    assert secret not in daemon.log()
    assert (daemon.home / "journal.sqlite").stat().st_mode & 0o777 == 0o600


def test_wait_times_out_with_the_job_as_it_is(daemon: Daemon) -> None:
    job = daemon.python("import signal; signal.pause()", until="ProcessStarted")
    begun = time.monotonic()
    assert daemon.get(f"/v1/jobs/{job}/wait?timeout_s=0.2")["phase"] == "running"
    assert time.monotonic() - begun > 0.15


def test_private_memory_is_reported(make_daemon: Make) -> None:
    daemon = make_daemon().hurry("telemetry.host_memory.INTERVAL_S").started()
    job = daemon.python("data = b'x' * (64 << 20)\nprint('ready')\nimport signal; signal.pause()", line="ready")
    deadline = time.monotonic() + PATIENCE_S
    while (size := daemon.show(job)["scratch_bytes"]) < 64 << 20:
        assert time.monotonic() < deadline, size
        daemon.get(f"/v1/jobs/{job}/wait?timeout_s=0.1")


def test_the_job_has_no_descriptors_of_ours(daemon: Daemon) -> None:
    job = daemon.submit("ls", "-l", "/proc/self/fd", ended=True)
    names = daemon.output(job)
    assert "lock" not in names and "session" not in names and "pidfd" not in names
    assert names.count("socket:") == 1, names  # the job's own end of its channel
    assert Path(sys.executable).name not in names


# Two requests that change one job at the same time, of which one cannot be recorded


FULL = JournalFull("disk_full", "full", "make room")


class Store:
    """The test says when, and how, something is recorded."""

    def __init__(self) -> None:
        self.writing: list[asyncio.Future[None]] = []

    def changed(self, job: JobRecord) -> asyncio.Future[None]:
        self.writing.append(asyncio.get_running_loop().create_future())
        return self.writing[-1]

    control = changed


@pytest.fixture
def job() -> JobRecord:
    return JobRecord(7, 0, 0, SubmitRequest(["true"], "/", {}), None, 0)


@pytest.fixture
def context(job: JobRecord, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(job_control, "core_spec", lambda context, job: job.spec)
    told: list[Any] = []
    return SimpleNamespace(jobs=SimpleNamespace(live={7: job}), store=Store(), told=told, post=told.append)


async def refused(task: asyncio.Task[None]) -> None:
    with pytest.raises(JournalFull):
        await task


async def test_what_the_daemon_has_decided_meanwhile_stays(context: Any, job: JobRecord) -> None:
    pausing = asyncio.create_task(job_control._change(context, job, job_control._pause_event, paused_by=0))
    await asyncio.sleep(0)
    job.control = msgspec.structs.replace(job.control, timed_out="reached its time limit")
    context.store.writing[0].set_exception(FULL)
    await refused(pausing)
    assert (job.control.paused_by, job.control.timed_out) == (None, "reached its time limit")
    assert context.told[-1] == PauseChanged(7, None)


async def test_what_is_taken_back_is_taken_back_of_the_present_attempt(context: Any, job: JobRecord) -> None:
    spec = msgspec.structs.replace(job.spec, weight=7)
    changing = asyncio.create_task(job_control._changed_spec(context, job, spec))
    await asyncio.sleep(0)
    again = context.jobs.live[7] = JobRecord(7, 0, 0, job.spec, None, 0, changing=job.changing)
    assert again.spec.weight == 7
    context.store.writing[0].set_exception(FULL)
    await refused(changing)
    assert again.spec.weight == 100


async def test_requests_for_one_job_come_one_after_the_other(
    context: Any, job: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the second one stays, whatever becomes of the first."""
    monkeypatch.setattr(job_control, "_own_job", lambda request, what: (context, job))

    async def change(**changes: Any) -> None:
        async with job_control.own_job(SimpleNamespace(), "change it") as (_, found):  # type: ignore[arg-type]
            await job_control._changed_spec(context, found, msgspec.structs.replace(found.spec, **changes))

    first, second = asyncio.create_task(change(weight=7)), asyncio.create_task(change(name="other"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    context.store.writing[0].set_exception(FULL)
    await refused(first)
    await asyncio.sleep(0)
    context.store.writing[1].set_result(None)
    await second
    assert (job.spec.weight, job.spec.name) == (100, "other")
