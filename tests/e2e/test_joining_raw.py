"""What a process gains by speaking the messages of joining itself: nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import ClientError
from carpool.protocol.environment import token
from tests.e2e.watching import process_state, until
from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons

#: Sends each line of its input, with as many ends of channels as the first word says, and prints the answer.
SPEAKER = """
import array, json, socket, sys
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
session.connect(sys.argv[1])
pairs = []
for line in sys.stdin:
    count, _, text = line.partition(" ")
    pairs += [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(int(count))]
    fds = array.array("i", [pair[0].fileno() for pair in pairs[len(pairs) - int(count):]])
    try:
        session.sendmsg([text.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else [])
        answer = session.recv(65536).decode()
    except OSError as error:
        answer = str(error)
    print(answer or "closed", flush=True)
"""


class Speaker:
    def __init__(self, daemon: Daemon) -> None:
        command = [sys.executable, "-ISc", SPEAKER, str(daemon.home / "session.sock")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._token = token(daemon.home)
        self.job = 0  # once it has joined

    def say(self, fds: int, **message: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(fds, json.dumps(message), file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def join(self, fds: int = 1, **others: Any) -> str:
        about = {"argv": ["raw"], "directory": "/", "token": self._token}
        answer = self.say(fds, type="join", **about | others)
        if '"joined"' in answer:
            self.job = json.loads(answer)["job"]
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def speakers() -> Iterator[Any]:
    made: list[Speaker] = []

    def make(daemon: Daemon) -> Speaker:
        made.append(Speaker(daemon))
        return made[-1]

    yield make
    for speaker in made:
        speaker.end()


def test_a_process_is_one_job(daemon: Daemon, speakers: Any) -> None:
    speaker = speakers(daemon)
    before = {job.id for job in daemon.client.jobs()}
    assert json.loads(speaker.join()) == {"type": "joined", "job": speaker.job, "attempt": 1}
    assert speaker.join() == "closed"
    assert {job.id for job in daemon.client.jobs()} - before == {speaker.job}


def test_nobody_else_is_that_job(daemon: Daemon, speakers: Any) -> None:
    speaker = speakers(daemon)
    speaker.join()
    about = {"job": speaker.job, "attempt": 1, "kept": ["board:host0:0"]}
    for kind, more in (("rejoin", {}), ("register", {"shim_pid": 1, "child_pid": 1, "attached_pid": 1})):
        answer = speakers(daemon).say(2, type=kind, **about, **more)
        assert "the job has another process" in answer
    assert daemon.client.job(speaker.job).outcome is None


def test_nobody_comes_back_as_a_job_that_has_a_shim(daemon: Daemon, speakers: Any) -> None:
    job = daemon.client.submit(SubmitRequest(argv=["sleep", "600"], cwd="/", env={}))
    answer = speakers(daemon).say(1, type="rejoin", job=job, attempt=1, kept=[])
    assert "the job has another process" in answer


@pytest.mark.parametrize(
    ("fds", "others", "why"),
    [
        (0, {}, "end of its channel"),
        (2, {}, "end of its channel"),
        (1, {"token": "x"}, "another daemon or machine"),
        (1, {"options": {"service": 5}}, "service"),
        (1, {"options": {"foreground": False}}, "foreground"),
        (1, {"options": []}, "CARPOOL_JOIN_OPTIONS"),
        (1, {"options": {"device": "none"}}, "there is no device"),
        (1, {"directory": "there"}, "not absolute"),
    ],
)
def test_refusals(daemon: Daemon, speakers: Any, fds: int, others: dict[str, Any], why: str) -> None:
    before = daemon.client.jobs()
    answer = json.loads(speakers(daemon).join(fds, **others))
    assert answer["type"] == "refused"
    assert why in answer["text"]
    assert daemon.client.jobs() == before


def test_limits_of_jobs_count_them(daemons: Daemons, speakers: Any) -> None:
    daemons.next_home.mkdir()
    (daemons.next_home / "limits.toml").write_text("jobs = 1\n")
    daemon = daemons()
    assert "joined" in speakers(daemon).join()
    assert "1 are allowed" in json.loads(speakers(daemon).join())["text"]


def test_the_rate_of_submissions_counts_them(daemons: Daemons, speakers: Any) -> None:
    daemons.next_home.mkdir()
    (daemons.next_home / "limits.toml").write_text("submissions_at_once = 1\nsubmissions_per_s = 1\n")
    daemon = daemons()
    ready = [speakers(daemon) for _ in range(10)]  # the rate is one a second, and starting one takes a while
    assert any("may submit" in speaker.join() for speaker in ready)


def test_its_end_is_that_of_its_job(daemon: Daemon, speakers: Any) -> None:
    speaker = speakers(daemon)
    speaker.join()
    speaker.end()
    info = daemon.client.wait(speaker.job, PATIENCE_S)
    assert info.outcome in ("failed", "cancelled")


def test_only_processes_make_such_jobs(daemon: Daemon) -> None:
    with pytest.raises(ClientError, match="only a process that joins"):
        daemon.client.submit(SubmitRequest(argv=["sleep", "1"], cwd="/", env={}, joined=True))


HOUR_US = 3_600_000_000
#: In which the daemon looks twice whether processes are stopped.
LOOKS_US = 500_000


@pytest.mark.parametrize(
    ("options", "number", "outcome", "why"),
    [
        ({"launcher": "slurm 12"}, signal.SIGTERM, "cancelled", "which slurm 12 had started"),
        ({"launcher": "slurm 12"}, signal.SIGKILL, "failed", "killed by signal 9"),
        ({"launcher": "slurm 12"}, signal.SIGUSR1, "failed", "killed by signal 10"),
        ({"launcher": "slurm 12", "launcher_ends_us": 1}, signal.SIGTERM, "timed_out", "slurm 12 has reached its"),
        ({"launcher": "slurm 12", "launcher_ends_us": 1}, signal.SIGKILL, "timed_out", "slurm 12 has reached its"),
        ({"launcher": "slurm 12", "launcher_ends_us": 1}, signal.SIGUSR1, "failed", "killed by signal 10"),
        ({}, signal.SIGTERM, "failed", "killed by signal 15"),
    ],
)
def test_what_a_launcher_ends_is_no_failure(
    daemon: Daemon, speakers: Any, options: dict[str, Any], number: int, outcome: str, why: str
) -> None:
    speaker = speakers(daemon)
    speaker.join(options=options)
    until(lambda: daemon.client.job(speaker.job).phase == "running", daemon)
    assert daemon.client.job(speaker.job).launcher == options.get("launcher", "")
    speaker.signal(number)
    info = daemon.client.wait(speaker.job, PATIENCE_S)
    assert (info.outcome, info.signal) == (outcome, number)
    assert info.reason is not None and why in info.reason.text


def stop(daemon: Daemon, speaker: Any) -> None:
    """Its process, and wait until the job is paused."""
    until(lambda: daemon.client.job(speaker.job).phase == "running", daemon)
    speaker.signal(signal.SIGSTOP)
    until(lambda: paused_by(daemon, speaker).startswith("its process has been stopped"), daemon)


@pytest.mark.parametrize(("launcher", "outcome"), [("slurm 12", "cancelled"), ("", "failed")])
def test_a_launcher_that_kills_what_it_has_stopped_cancels_it(
    daemon: Daemon, speakers: Any, launcher: str, outcome: str
) -> None:
    speaker = speakers(daemon)
    speaker.join(options={"launcher": launcher})
    stop(daemon, speaker)
    speaker.signal(signal.SIGKILL)
    info = daemon.client.wait(speaker.job, PATIENCE_S)
    assert (info.outcome, info.signal) == (outcome, signal.SIGKILL)


def test_only_a_process_that_joins_has_a_launcher(daemon: Daemon) -> None:
    with pytest.raises(ClientError, match="only a process that joins has a launcher"):
        daemon.client.submit(SubmitRequest(argv=["true"], cwd="/", env={}, launcher="slurm 12"))


def test_a_stopped_process_is_paused_until_it_goes_on(daemons: Daemons, speakers: Any) -> None:
    """The time in which it was stopped counts for no limit."""
    daemon = daemons()
    speaker = speakers(daemon)
    speaker.join(options={"time_us": HOUR_US})
    stop(daemon, speaker)
    with pytest.raises(ClientError, match="stopped by a signal, and not by carpool pause"):
        daemon.client.resume(speaker.job)
    daemon.client.pause(speaker.job)
    until(lambda: paused_by(daemon, speaker).startswith("paused by "), daemon)
    daemon.client.resume(speaker.job)
    until(lambda: paused_by(daemon, speaker).startswith("its process has been stopped"), daemon)
    before_us = daemon.client.job(speaker.job).paused_us
    assert before_us > 0
    speaker.signal(signal.SIGCONT)
    until(lambda: not paused_by(daemon, speaker), daemon)
    assert HOUR_US > daemon.client.job(speaker.job).paused_us >= before_us


def test_what_a_user_has_paused_stays_paused_when_it_goes_on(daemon: Daemon, speakers: Any) -> None:
    speaker = speakers(daemon)
    speaker.join()
    until(lambda: daemon.client.job(speaker.job).phase == "running", daemon)
    daemon.client.pause(speaker.job)
    speaker.signal(signal.SIGSTOP)
    until(lambda: process_state(speaker.pid) == "T", daemon)
    paused_on(daemon, speaker, LOOKS_US)  # the daemon has seen that it was stopped
    speaker.signal(signal.SIGCONT)
    paused_on(daemon, speaker, 2 * LOOKS_US)
    assert paused_by(daemon, speaker).startswith("paused by ")
    daemon.client.resume(speaker.job)
    assert not paused_by(daemon, speaker)


def paused_on(daemon: Daemon, speaker: Any, time_us: int) -> None:
    """It has been paused for so long from now on."""
    seen = daemon.client.job(speaker.job).paused_us
    until(lambda: daemon.client.job(speaker.job).paused_us > seen + time_us, daemon)


def paused_by(daemon: Daemon, speaker: Any) -> str:
    reason = daemon.client.job(speaker.job).reason
    return reason.text if reason is not None and reason.code == "paused_by_user" else ""
