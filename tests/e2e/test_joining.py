"""Processes that no shim has started join as jobs: bit-identical, over kills of the daemon, until their ends.

Those of whom no results are compared only take memory, as PyTorch does (`stand_in`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from carpool.protocol.api import JobInfo
from carpool.protocol.environment import token
from carpool.protocol.session import JoinOptions
from carpool.runtime.launch import joining_variables
from tests.e2e import watching
from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload

NOTHING: Mapping[str, str] = {}
TAKES = "import sys, torch; torch.ones(100000)"
SUMS = "import torch; print(float(torch.ones(100000).sum()))"
#: Until its input ends; it uses its device all the time, or only once.
COMPUTES, STAYS = "import torch\nwhile True: torch.ones(100000)", f"{TAKES}; sys.stdin.read()"
#: As a job.
HOLDS = "import signal, torch; torch.ones(100000); signal.pause()"


class Joiner:
    """A process that a test has started, as a launcher would; ``since`` is the latest event until then."""

    def __init__(self, daemon: Daemon, process: subprocess.Popen[str], out: Path, name: str, since: int) -> None:
        self._daemon, self.process, self.out, self.name, self._since = daemon, process, out, name, since

    def end(self) -> str:
        """What it wrote to standard error, once it has ended."""
        return self.process.communicate(timeout=PATIENCE_S)[1]

    def result(self) -> dict[str, Any]:
        errors = self.end()
        assert self.process.returncode == 0, f"{errors}\n{self._daemon.story()}"
        assert "carpool: " not in errors, f"{errors}\n{self._daemon.story()}"
        result: dict[str, Any] = json.loads(self.out.read_text())
        return result

    def job(self, daemon: Daemon) -> JobInfo:
        """Once the daemon knows of it."""
        return watching.joined(daemon, self.name, self._since)


class Joiners:
    """``stand_in``: what those have in their environment that only take memory."""

    def __init__(self, environment: dict[str, str], directory: Path, stand_in: Mapping[str, str] = NOTHING) -> None:
        self._environment, self._directory, self._stand_in = environment, directory, stand_in
        self._started: list[Joiner] = []

    def variables(self, daemon: Daemon, environment: dict[str, str] | None = None, **options: Any) -> dict[str, str]:
        text = msgspec.json.encode(JoinOptions(**options)).decode()
        about = {"socket": str(daemon.home / "session.sock"), "options": text, "token": token(daemon.home)}
        return joining_variables(environment or self._environment, **about, threads=1)  # type: ignore[arg-type]

    def takes(self, daemon: Daemon, script: str, **others: str) -> Joiner:
        """``script``: it only takes memory."""
        return self._start(daemon, [sys.executable, "-c", script], self._environment | self._stand_in, others)

    def start(self, daemon: Daemon, command: Workload, **others: str) -> Joiner:
        return self._start(daemon, command.command(self._next), self._environment, others)

    @property
    def _next(self) -> Path:
        return self._directory / f"joiner{len(self._started)}"

    def _start(self, daemon: Daemon, words: list[str], environment: dict[str, str], others: dict[str, str]) -> Joiner:
        out, since = self._next, watching.last_event(daemon)
        env = environment | self.variables(daemon, environment, name=out.name) | others
        env |= {"MEETING_POINT": str(daemon.meeting.path)} if others.pop("meet", "") else {}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)  # the tests' own input may be at its end
        process = subprocess.Popen(words, env=env, text=True, **pipes)
        self._started.append(Joiner(daemon, process, out, out.name, since))
        return self._started[-1]

    def end(self) -> None:
        for joiner in self._started:
            joiner.process.kill()
            joiner.process.communicate()


@pytest.fixture
def joiners(jobs_environment: dict[str, str], stand_in: dict[str, str], tmp_path: Path) -> Iterator[Joiners]:
    made = Joiners(jobs_environment | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"), tmp_path, stand_in)
    yield made
    made.end()


def held(daemon: Daemon, script: str = HOLDS) -> Running:
    """By a job, which has the device to itself."""
    holder = daemon.submit_taking(script, exclusive=True)
    until(daemon, "GrantTurn", holder.id)
    return holder


def until(daemon: Daemon, kind: str, job: int) -> None:
    with closing(daemon.client.events(follow=True)) as events:
        assert any(event.kind == kind and event.job == job for event in events)


def ended(daemon: Daemon, job: int) -> JobInfo:
    info = daemon.client.wait(job, PATIENCE_S)
    assert info.phase == "ended", daemon.story()
    return info


def test_a_process_is_a_job_beside_a_submitted_one(
    bare: Bare, daemon: Daemon, workload: type[Workload], joiners: Joiners
) -> None:
    submitted = daemon.submit(workload("adam"), meet=True)
    options = {"CARPOOL_JOIN_OPTIONS": b'{"name":"joiner0","weight":200}'.hex()}  # as for Apptainer
    joiner = joiners.start(daemon, workload("sgd"), meet="1", **options)
    daemon.meeting.begin(2)
    assert [joiner.result(), submitted.result()] == bare([workload("sgd"), workload("adam")])
    job = joiner.job(daemon)
    info = ended(daemon, job.id)
    assert (info.outcome, info.exit_code, info.joined, info.weight) == ("succeeded", 0, True, 200)
    assert info.pid == joiner.process.pid
    assert info.iterations > 0


def test_it_goes_on_after_kills_of_the_daemon(
    bare: Bare, daemons: Daemons, workload: type[Workload], joiners: Joiners, tmp_path: Path
) -> None:
    """Both train until after the last kill: how a process has ended while no daemon ran is not always known."""
    daemon, release = daemons(), tmp_path / "release"
    running = [joiners.start(daemon, workload("steady", ("until", str(release)))) for _ in range(2)]
    for joiner in running:
        until(daemon, "Attached", joiner.job(daemon).id)
    for _ in running:
        daemon.kill()
        daemon.start()
    daemon.client.jobs()  # answered when both have come back
    release.touch()
    results = [joiner.result() for joiner in running]
    assert results == bare([workload("steady", ("count", str(result["count"]))) for result in results])
    outcomes = {ended(daemon, joiner.job(daemon).id).outcome for joiner in running}
    assert outcomes == {"succeeded"}


def test_one_that_is_stopped_comes_back_to_the_next_daemon(
    bare: Bare, daemons: Daemons, workload: type[Workload], joiners: Joiners, tmp_path: Path
) -> None:
    """It may have a turn, and nobody is to compute beside it; it is stopped again, and off its device."""
    daemon, release = daemons("host:96MiB"), tmp_path / "release"
    running = [joiners.start(daemon, workload("steady", ("until", str(release))), BALLAST_MIB="49") for _ in range(2)]
    jobs = [joiner.job(daemon).id for joiner in running]
    for job in jobs:
        watching.until(lambda job=job: daemon.client.job(job).iterations > 5, daemon)  # type: ignore[misc]
    daemon.kill()
    os.kill(running[0].process.pid, signal.SIGSTOP)
    daemon.start()
    watching.until(lambda: daemon.client.job(jobs[0]).offloaded, daemon)
    watching.until(lambda: watching.process_state(running[0].process.pid) == "T", daemon)
    done = [daemon.client.job(job).iterations for job in jobs]
    watching.until(lambda: daemon.client.job(jobs[1]).iterations > done[1] + 20, daemon)
    assert daemon.client.job(jobs[0]).iterations == done[0]
    os.kill(running[0].process.pid, signal.SIGCONT)
    watching.until(lambda: daemon.client.job(jobs[0]).iterations > done[0] + 5, daemon)
    release.touch()
    results = [joiner.result() for joiner in running]
    assert results == bare([workload("steady", ("count", str(result["count"]))) for result in results])


def test_it_waits_at_its_first_touch_and_is_placed_then(daemon: Daemon, joiners: Joiners, tmp_path: Path) -> None:
    release = tmp_path / "release"
    os.mkfifo(release)
    holder = held(daemon, f"import torch; torch.ones(100000); open({str(release)!r}).read()")
    joiner = joiners.takes(daemon, "import torch; print('imported', flush=True); torch.ones(100000)")
    assert joiner.process.stdout is not None
    assert joiner.process.stdout.readline() == "imported\n"
    job = joiner.job(daemon)
    assert job.phase == "queued"
    daemon.kill()
    daemon.start()
    assert daemon.client.job(job.id).phase == "queued"
    release.write_text("")
    assert ended(daemon, job.id).outcome == "succeeded"
    assert not joiner.end()
    assert holder.wait().outcome == "succeeded"


def test_a_killed_one_frees_the_lane(daemons: Daemons, joiners: Joiners) -> None:
    daemon = daemons(policy="fifo")
    joiner = joiners.takes(daemon, COMPUTES)
    job = joiner.job(daemon)
    until(daemon, "GrantTurn", job.id)
    neighbour = daemon.submit_taking(TAKES)
    until(daemon, "TurnWanted", neighbour.id)
    joiner.process.kill()
    assert neighbour.wait().outcome == "succeeded"
    info = ended(daemon, job.id)
    assert (info.outcome, info.signal) == ("failed", signal.SIGKILL)


def test_cancelling_ends_the_process(daemon: Daemon, joiners: Joiners) -> None:
    joiner = joiners.takes(daemon, COMPUTES)
    job = joiner.job(daemon)
    until(daemon, "GrantTurn", job.id)
    daemon.client.cancel(job.id)
    assert ended(daemon, job.id).outcome == "cancelled"
    joiner.end()
    assert joiner.process.returncode == -signal.SIGTERM


def test_cancelling_ends_one_that_waits(daemon: Daemon, joiners: Joiners) -> None:
    held(daemon)
    joiner = joiners.takes(daemon, TAKES)
    job = joiner.job(daemon)
    daemon.client.cancel(job.id)
    assert ended(daemon, job.id).outcome == "cancelled"
    joiner.end()
    assert joiner.process.returncode == -signal.SIGTERM


def test_exit_codes_are_known_without_being_its_parent(daemon: Daemon, joiners: Joiners) -> None:
    joiner = joiners.takes(daemon, f"{TAKES}; import os; os._exit(7)")  # nothing is said at the end
    info = ended(daemon, joiner.job(daemon).id)
    assert (info.outcome, info.exit_code) == ("failed", 7)


def test_one_that_ends_without_a_daemon_has_ended(daemon: Daemon, joiners: Joiners) -> None:
    joiner = joiners.takes(daemon, STAYS)
    job = joiner.job(daemon)
    until(daemon, "Attached", job.id)
    daemon.kill()
    joiner.process.kill()
    joiner.end()
    daemon.start()
    assert ended(daemon, job.id).outcome == "ended"


def test_a_daemon_with_other_devices_does_not_start_beside_it(daemon: Daemon, joiners: Joiners) -> None:
    joiner = joiners.takes(daemon, STAYS)
    until(daemon, "Attached", joiner.job(daemon).id)
    daemon.kill()
    other = [sys.executable, "-m", "carpool.daemon", "--home", str(daemon.home), "--device=host:128MiB"]
    done = subprocess.run(other, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert "running jobs use other devices" in done.stderr + (daemon.home / "daemon.log").read_text()
    joiner.process.kill()
    daemon.start()


def test_ctrl_c_ends_the_wait(daemon: Daemon, joiners: Joiners) -> None:
    held(daemon)
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's `&` ignores it
    joiner = joiners.takes(daemon, f"{heard}; {TAKES}")
    job = joiner.job(daemon)
    joiner.process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in joiner.end()
    assert ended(daemon, job.id).outcome == "cancelled"


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("CARPOOL_JOIN", "/nonexistent/session.sock", "no daemon answers"),
        ("CARPOOL_JOIN_TOKEN", "another", "another daemon or machine"),
        ("CARPOOL_JOIN_OPTIONS", '{"wieght": 3}', "wieght"),
        ("CARPOOL_JOIN_OPTIONS", "{", "not a JSON object"),
        ("LD_PRELOAD", "", "not preloaded"),
    ],
)
def test_variables_that_lead_nowhere(daemon: Daemon, joiners: Joiners, variable: str, value: str, why: str) -> None:
    before = daemon.client.jobs()
    joiner = joiners.takes(daemon, SUMS, **{variable: value})
    out, errors = joiner.process.communicate(timeout=PATIENCE_S)
    assert out == "100000.0\n"
    assert len(errors.splitlines()) == 1
    assert why in errors
    assert "runs without Carpool" in errors
    assert daemon.client.jobs() == before


def test_processes_without_torch_do_not_join(daemon: Daemon, joiners: Joiners) -> None:
    before = daemon.client.jobs()
    joiner = joiners.takes(daemon, "print(1)")
    assert joiner.end() == ""
    assert daemon.client.jobs() == before


def test_forks_and_children_of_a_job_do_not_join(daemon: Daemon, joiners: Joiners) -> None:
    before = len(daemon.client.jobs())
    script = (
        "import os, subprocess, sys, torch; torch.ones(100000)\n"
        "sockets = lambda: sum('socket' in os.readlink(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{f}') or os.path.islink(f'/proc/self/fd/{f}'))\n"
        "pid = os.fork()\n"
        "if pid == 0: torch.ones(100000); os._exit(sockets())\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        f"sys.exit(subprocess.call([sys.executable, '-c', {TAKES!r}]))"
    )
    joiner = joiners.takes(daemon, script)
    errors = joiner.end()
    assert joiner.process.returncode == 0, errors
    assert errors.count("carpool: ") == 1
    assert "belongs to job" in errors
    assert len(daemon.client.jobs()) == before + 1


def test_a_submitted_job_with_the_variables_is_one_job(daemon: Daemon, joiners: Joiners) -> None:
    before = len(daemon.client.jobs())
    job = daemon.submit_taking(TAKES, joiners.variables(daemon, name="old"))
    assert job.wait().outcome == "succeeded"
    assert len(daemon.client.jobs()) == before + 1


def test_the_command_prints_them(daemon: Daemon, workload: type[Workload], bare: Bare, tmp_path: Path) -> None:
    out, before = tmp_path / "out", daemon.client.jobs()
    words = " ".join(workload("adam").command(out)[1:])
    carpool = f"{sys.executable} -m carpool.cli"
    text = f'eval "$({carpool} env --home {daemon.home} --name "it\'s")"; {sys.executable} {words}'
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    subprocess.run(["bash", "-c", text], check=True, env=environment, timeout=PATIENCE_S)
    (job,) = daemon.client.jobs()[len(before) :]
    assert ended(daemon, job.id).name == "it's"
    assert json.loads(out.read_text()) == bare([workload("adam")])[0]
    logs = [sys.executable, "-m", "carpool.cli", "logs", "--home", str(daemon.home), str(job.id)]
    done = subprocess.run(logs, capture_output=True, text=True, check=False)
    assert done.returncode == 5 or "has joined" in done.stderr
    assert "has joined" in done.stderr


def test_another_program_in_its_place_is_the_same_job(daemon: Daemon, joiners: Joiners) -> None:
    before = daemon.client.jobs()
    joiner = joiners.takes(daemon, f"{TAKES}\nimport os; os.execv(sys.executable, [sys.executable, '-c', {SUMS!r}])")
    out, errors = joiner.process.communicate(timeout=PATIENCE_S)
    assert (out, errors) == ("100000.0\n", "")
    (job,) = daemon.client.jobs()[len(before) :]
    assert ended(daemon, job.id).outcome == "succeeded"


def test_one_whose_daemon_will_not_come_back_does_not_wait_for_ever(daemons: Daemons, joiners: Joiners) -> None:
    daemon = daemons()
    main = held(daemon).info().pid
    assert main is not None
    joiner = joiners.takes(daemon, SUMS)
    joiner.job(daemon)
    daemon.kill()
    hidden = daemon.home.with_name("hidden")
    daemon.home.rename(hidden)
    try:
        out, errors = joiner.process.communicate(timeout=PATIENCE_S)
    finally:
        hidden.rename(daemon.home)
        os.kill(main, signal.SIGKILL)  # its shim expects no daemon any more, too
    assert out == "100000.0\n"
    assert "runs without Carpool" in errors
    daemon.start()
