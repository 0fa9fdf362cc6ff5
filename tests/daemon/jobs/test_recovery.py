"""Attempts in a real daemon: who is started again, with what logs, and what a kill of the daemon changes about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from carpool.daemon.jobs.oom_detection import last_error, ran_out
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.paths import Home
from carpool.protocol.seat import OutOf
from tests.daemon.daemon_harness import Daemon, Make, Refused, alive
from tests.daemon.failing import MESSAGE, WAITS, fails, let_go
from tests.tiers import RARER_WAY

SAID = "it tried to allocate 2.00 GiB"


ADVICE = (
    " GPU 0 has a total capacity of 79.15 GiB of which 1.94 GiB is free. Process 7 has 77.21 GiB memory in use. If"
    " reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)"
)
HOST_MEMORY = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
    " to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)"
)
TENSORFLOW = (
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node x}} OOM when allocating tensor"
    " with shape[64,512,112,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0"
)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (MESSAGE, SAID),
        (MESSAGE + ADVICE, SAID),
        ("RuntimeError: CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`", "CUDA error: out of memory"),
        (
            HOST_MEMORY,
            "it tried to allocate 8 GiB",
        ),
        (
            "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.",
            "it tried to allocate 1 GiB",
        ),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 4,194,304 bytes (allocated",
            "it tried to allocate 4 MiB",
        ),
        (
            TENSORFLOW,
            "{{function_node x}} OOM when allocating tensor with shape[64,512,112,112] and t…",
        ),
    ],
)
def test_a_log_that_ends_with_a_frameworks_own_message(last: str, said: str) -> None:
    """What ran out, without figures of another device and advice that does not hold here."""
    assert last_error(f'Traceback (most recent call last):\n  File "x", line 1\n{last}\n') == said


@pytest.mark.parametrize(
    "log",
    [
        "",
        "loading BLOOM\nOOM\nout of memory\n",
        f"it said: {MESSAGE}\n",
        f"  {MESSAGE}\n",
        f'{MESSAGE}\nsmaller batch\nTraceback (most recent call last):\n  File "x", line 1\nValueError: no\n',
        MESSAGE + "\n" + "going on\n" * 30,
        "MyError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    ],
)
def test_a_log_that_does_not(log: str) -> None:
    assert last_error(log) is None


def test_a_log_is_not_believed_where_the_runtime_knows_better(tmp_path: Path) -> None:
    files = Home(tmp_path).job(1, 1)
    files.log.parent.mkdir(parents=True)
    files.log.write_text(f"{MESSAGE}\n")
    mine = DirectPrivileges(Home(tmp_path))
    assert ran_out(mine, OutOf.NOTHING, files, os.getuid()) == ran_out(mine, OutOf.DEVICE, files, os.getuid()) == SAID
    assert ran_out(mine, OutOf.OTHER, files, os.getuid()) is None


def test_a_job_that_ran_out_of_memory_is_started_again_alone_and_once(
    daemon: Daemon, tmp_path: Path, pipe: Path
) -> None:
    neighbour = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0", line="here")
    job = fails(daemon, tmp_path / "starts", 1, MESSAGE)
    daemon.until("RetryJob", job)
    info = daemon.show(job)
    assert (info["phase"], info["attempt"], info["reason"]["code"]) == ("queued", 2, "exclusive")
    assert daemon.output(job) == f"start 1\n{MESSAGE}\n", "while it waits, the latest log is the first one"
    let_go(pipe)
    assert daemon.wait(neighbour)["outcome"] == "succeeded"
    info = daemon.wait(job)
    assert (info["outcome"], info["attempt"]) == ("succeeded", 2)
    first, second = info["attempts"]
    assert (first["exit_code"], first["text"], first["log"]) == (1, f"ran out of memory: {SAID}", "log")
    assert (second["exit_code"], second["log"]) == (0, "log.2")
    assert first["ended_us"] <= second["started_us"] and info["submitted_us"] < first["started_us"]
    assert daemon.output(job) == "start 2\n"
    assert daemon.get(f"/v1/jobs/{job}/logs?attempt=1").decode() == f"start 1\n{MESSAGE}\n"
    with pytest.raises(Refused, match="the latest is 2"):
        daemon.get(f"/v1/jobs/{job}/logs?attempt=3")


def test_alone_it_is_given_up_with_the_story(daemon: Daemon, tmp_path: Path) -> None:
    info = daemon.wait(fails(daemon, tmp_path / "starts", 9, MESSAGE))
    assert (info["outcome"], info["attempt"], info["exit_code"]) == ("failed", 2, 1)
    assert info["reason"]["code"] == "out_of_memory"
    assert (
        "it had exclusive use of host0" in info["reason"]["text"] and "; attempt 1 on host0" in info["reason"]["text"]
    )
    assert (tmp_path / "starts").read_text() == "xx"


def test_other_failures_are_not_started_again(daemon: Daemon, tmp_path: Path) -> None:
    """CARMA's manager relaunches a syntax error for ever, and whatever prints these letters."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text("print('BLOOM'\n")
    jobs = [
        daemon.submit(sys.executable, str(wrong)),
        daemon.python(f"print('OOM, out of memory'); print({MESSAGE!r}); print('went on'); raise ValueError('BLOOM')"),
        daemon.python("print('CUDA_ERROR_OUT_OF_MEMORY is a name')"),
    ]
    infos = [daemon.wait(job) for job in jobs]
    assert [(info["outcome"], info["attempt"], info["attempts"]) for info in infos] == [
        ("failed", 1, []),
        ("failed", 1, []),
        ("succeeded", 1, []),
    ]


@pytest.fixture
def brisk(make_daemon: Make) -> Daemon:
    """A daemon that hardly pauses before it starts a job again."""
    return make_daemon(limits='retry_pause = "10ms"\n').started()


def test_retries_are_made_as_often_as_was_asked(brisk: Daemon, tmp_path: Path) -> None:
    good = brisk.wait(fails(brisk, tmp_path / "good", 2, retries=3))
    assert (good["outcome"], good["attempt"], good["retries"]) == ("succeeded", 3, 3)
    bad = brisk.wait(fails(brisk, tmp_path / "bad", 9, retries=2))
    assert (bad["outcome"], bad["attempt"], (tmp_path / "bad").read_text()) == ("failed", 3, "xxx")
    assert [attempt["text"] for attempt in bad["attempts"]] == ["exited with code 1"] * 3
    with pytest.raises(Refused, match="at least 0"):
        brisk.python("pass", retries=-1)


def test_dependents_wait_for_the_last_attempt(brisk: Daemon, tmp_path: Path) -> None:
    first = fails(brisk, tmp_path / "starts", 1, retries=1)
    second = brisk.python("pass", after=[first])
    assert brisk.wait(second)["started_us"] >= brisk.wait(first)["ended_us"]


@pytest.fixture
def patient(make_daemon: Make) -> Daemon:
    """A daemon that starts nothing again before this test is over."""
    return make_daemon(limits='retry_pause = "5m"\n').started()


def test_a_pause_between_two_attempts_is_told_and_outlives_a_kill(patient: Daemon, tmp_path: Path) -> None:
    job = fails(patient, tmp_path / "starts", 9, retries=9)
    patient.until("RetryJob", job)
    for _ in range(2):
        info = patient.show(job)
        assert (info["phase"], info["attempt"], info["reason"]["code"]) == ("queued", 2, "pause")
        assert "attempt 1 failed" in info["reason"]["text"] and "pause of" in info["reason"]["text"]
        assert patient.wait(patient.submit("true"))["outcome"] == "succeeded", "nobody waits for it"
        patient.restarted()
    assert patient.cancelled(job)["outcome"] == "cancelled" and (tmp_path / "starts").read_text() == "x"


def test_a_job_that_pauses_when_the_daemon_is_stopped_waits_for_the_next(patient: Daemon, tmp_path: Path) -> None:
    job = fails(patient, tmp_path / "starts", 9, retries=9)
    patient.until("RetryJob", job)
    patient.stop()
    patient.started()
    assert patient.show(job)["phase"] == "queued" and (tmp_path / "starts").read_text() == "x"


def test_a_failure_while_no_daemon_lived_is_judged_by_the_next(daemon: Daemon, tmp_path: Path, pipe: Path) -> None:
    code = f"{WAITS.rpartition(';')[0]}; n = len(open(sys.argv[2]).read()); open(sys.argv[2], 'a').write('x')"
    (tmp_path / "starts").write_text("")
    job = daemon.submit(
        *(sys.executable, "-u", "-c", f"{code}; sys.exit({MESSAGE!r} if n == 0 else 0)"),
        *(str(pipe), str(tmp_path / "starts")),
        line="here",
        until="StartJob",
    )
    pid = daemon.show(job)["pid"]
    daemon.kill()
    let_go(pipe)
    while alive(pid):
        os.sched_yield()
    daemon.started()
    daemon.until("RetryJob", job)
    daemon.until_line(job, "here")
    let_go(pipe)
    info = daemon.wait(job)
    assert (info["outcome"], info["attempt"], (tmp_path / "starts").read_text()) == ("succeeded", 2, "xx")
    ends = [daemon.wait(daemon.python("raise SystemExit(3)")), info]
    daemon.restarted()
    assert [daemon.show(end["id"])["attempts"] for end in ends] == [end["attempts"] for end in ends]
    starts = [event for event in daemon.events() if event["kind"] == "StartJob" and event["job"] in (1, 2)]
    assert len(starts) == 3, "what has ended stays ended, whatever its log says"


def test_a_retry_that_waits_survives_a_kill(daemon: Daemon, tmp_path: Path, pipe: Path) -> None:
    neighbour = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "0", line="here")
    job = fails(daemon, tmp_path / "starts", 1, MESSAGE, persistent_bytes=10 << 20)
    retry = daemon.until("RetryJob", job)
    daemon.python("pass")  # acknowledged when it is on the disk, and so when all that came before is
    daemon.restarted()
    info = daemon.show(job)
    assert (info["phase"], info["attempt"], info["estimate_source"]) == ("queued", 2, "recovery")
    last = daemon.until_event(lambda event: event["kind"] == "Submitted" and bool(event["data"]["past"]))
    assert last["data"]["spec"]["estimate"] == retry["data"]["estimate"]
    assert last["data"]["spec"]["estimate"]["memory"]["persistent"] == 15 << 20
    let_go(pipe)
    assert daemon.wait(neighbour)["outcome"] == "succeeded"
    assert daemon.wait(job)["outcome"] == "succeeded"
    assert (tmp_path / "starts").read_text() == "xx"


@pytest.mark.nightly(RARER_WAY, stays="test_a_retry_that_waits_survives_a_kill")
def test_killed_again_and_again_each_attempt_is_made_once(daemon: Daemon, tmp_path: Path) -> None:
    jobs = [fails(daemon, tmp_path / f"starts{number}", 3, retries=3) for number in range(3)]
    for kind in ("RetryJob", "StartJob", "ProcessExited", "RetryJob"):
        seen = daemon.events()[-1]["seq"]
        if any(daemon.show(job)["phase"] != "ended" for job in jobs):  # then one of the two is still to come
            daemon.until_event(lambda event, kind=kind: event["kind"] in (kind, "EndJob"), seen)
        daemon.restarted()
    for number, job in enumerate(jobs):
        info = daemon.wait(job)
        starts = (tmp_path / f"starts{number}").read_text()
        assert (info["outcome"], info["attempt"], starts) == ("succeeded", 4, "xxxx"), info
