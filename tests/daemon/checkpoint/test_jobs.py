"""Turns of suspended jobs: what goes wrong, and what follows.  Without processes, and without a driver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.core.events import Event, TraitsSeen, TurnReleased, TurnWanted
from carpool.core.model import MIB, Cause, Memory, Usage
from carpool.daemon.checkpoint import driver, jobs
from carpool.daemon.checkpoint.driver import Checkpointing
from carpool.daemon.checkpoint.jobs import CheckpointJob, CheckpointJobs, CheckpointRestart, Stage
from carpool.daemon.checkpoint.suspend import Note, Notes, Suspensions
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system import processes
from carpool.daemon.system.background import in_background
from carpool.daemon.system.processes import below, has_not_ended
from carpool.devices.base import DeviceError
from carpool.devices.cuda.checkpoint import Busy, CheckpointUnsupported, NotGuaranteed
from carpool.protocol.api import SubmitRequest
from tests.daemon.cuda_rig import until


class SuspendedJob:
    """One suspended job with 5 MiB; ``room`` and ``moves`` are what the device and the driver do, in order."""

    def __init__(self, home: Path) -> None:
        self.events: list[Event] = []
        self.killed: list[int] = []
        self.room: list[bool | Exception] = []
        self.moves: list[int | Exception] = []
        self.notes = Notes(home)
        jobs = JobTable()
        devices: Any = {"host0": device("host"), "cuda0": device("cuda", self)}
        shims: Any = SimpleNamespace(pid=lambda job: 1)
        processes: Any = SimpleNamespace(signal=lambda job, number: self.killed.append(job.id))
        suspensions: Any = Suspensions(self.notes, devices, shims)
        suspensions.of = lambda job: SimpleNamespace(resume=self._move, suspend=self._move)
        self.checkpoint_jobs = CheckpointJobs(jobs)
        self.why_not: str | None = None
        after = processes, lambda job: self.why_not, self.events.append
        self.parts = Checkpointing(self.checkpoint_jobs, self.notes, jobs, suspensions, *after)
        self.restart = CheckpointRestart(self.checkpoint_jobs, jobs, suspensions, shims, *after)
        spec = SubmitRequest(argv=["true"], cwd="/", env={}, checkpoint=True)
        self.job = jobs.live[7] = JobRecord(7, 1000, 1000, spec, None, 0, device="cuda0", pid=1)
        self.job.usage, self.job.granted = Usage(persistent_live=5 * MIB), Memory(8 * MIB)
        self.state = self.checkpoint_jobs.of[7] = CheckpointJob(Stage.OFF)

    def _move(self, *_: int) -> int:
        return answer(self.moves)


def answer(answers: list[Any]) -> Any:
    """The next one; the last one for ever."""
    one = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(one, Exception):
        raise one
    return one


def device(kind: str, rig: SuspendedJob | None = None) -> SimpleNamespace:
    able = rig is not None
    return SimpleNamespace(
        kind=kind,
        checkpoint=able,
        uuid="",
        capacity=8 * MIB,
        give_way=lambda: None,
        has_room=lambda size: rig is not None and answer(rig.room),
    )


@pytest.fixture
def rig(tmp_path: Path) -> SuspendedJob:
    return SuspendedJob(tmp_path)


async def test_an_agent_that_fails_is_no_loss(rig: SuspendedJob, caplog: pytest.LogCaptureFixture) -> None:
    error = DeviceError("the agent has died")
    rig.room, rig.moves = [error, error, True], [NotGuaranteed("too little"), 0]
    rig.notes.write(7, Note(5 * MIB, complete=True))
    rig.parts.turn(rig.job)
    await until(lambda: rig.state.stage is Stage.ON)
    assert not rig.killed and rig.job.grant_waits is None
    assert caplog.text.count("the agent has died") == 1
    assert rig.notes.read(7) == Note(5 * MIB), "it is not suspended any more"


async def test_what_the_driver_does_not_put_back_is_lost(rig: SuspendedJob) -> None:
    rig.room, rig.moves = [True], [DeviceError("broken")]
    rig.parts.turn(rig.job)
    await until(lambda: bool(rig.killed))
    assert rig.job.fault is not None and "broken" in rig.job.fault.text


async def test_a_turn_whose_memory_does_not_come_is_given_back(
    rig: SuspendedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PATIENCE_US", 0)
    rig.room = [False]
    rig.parts.turn(rig.job)
    await until(lambda: rig.job.grant_waits is not None)
    assert not rig.events
    rig.parts.request_yield(rig.job)
    await until(lambda: rig.state.stage is Stage.OFF)
    assert rig.events == [TurnReleased(7, Cause.FORCED, rig.job.usage), TurnWanted(7)]
    assert rig.job.grant_waits is None and not rig.killed


async def test_one_that_was_cancelled_while_it_was_suspended_comes_back_soon(rig: SuspendedJob) -> None:
    rig.state.stage, rig.moves, rig.job.cancelled = Stage.ON, [5 * MIB], True
    rig.parts.request_yield(rig.job)
    await until(lambda: rig.state.stage is Stage.OFF)
    assert rig.events[-1] == TurnWanted(7, urgent=True)


async def test_one_that_is_busy_at_a_restart_is_asked_again(rig: SuspendedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "RESTART_S", 0)
    rig.moves = [Busy("it computes")]
    await rig.restart.restart()
    assert rig.job.pinned_why is not None, "nobody else gets a turn before it"
    rig.parts.turn(rig.job)
    assert rig.events == [TraitsSeen(7)] and rig.job.pinned_why is None
    rig.moves = [5 * MIB]
    rig.parts.request_yield(rig.job)
    await until(lambda: rig.events[-1] == TurnWanted(7))


async def test_one_that_cannot_be_suspended_three_times_in_a_row_keeps_its_device(
    rig: SuspendedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BUSY_S", 0)
    rig.state.stage, rig.moves = Stage.ON, [Busy("1"), Busy("2"), 5 * MIB, Busy("3"), Busy("4"), Busy("5"), 5 * MIB]
    rig.parts.request_yield(rig.job)
    await until(lambda: TurnWanted(7) in rig.events)
    assert rig.job.pinned_why is None, "two failures are no rule"
    rig.state.stage, rig.state.yield_asked = Stage.ON, False
    rig.parts.request_yield(rig.job)
    await until(lambda: rig.job.pinned_why is not None)
    assert rig.events[-1] == TraitsSeen(7, alone="it cannot be suspended: 5 (3 attempts in a row have failed)")


async def test_one_that_cannot_be_suspended_is_not_asked_again(rig: SuspendedJob) -> None:
    rig.state.stage, rig.moves = Stage.ON, [CheckpointUnsupported("no"), 5 * MIB]
    rig.parts.request_yield(rig.job)
    await until(lambda: rig.job.pinned_why is not None)
    rig.parts.withdraw_yield(rig.job)
    rig.parts.request_yield(rig.job)
    assert rig.state.stage is Stage.ON


async def test_one_whose_command_has_ended_of_a_suspend_is_not_suspended_at_a_restart_either(rig: SuspendedJob) -> None:
    rig.why_not, rig.moves = "an earlier run ended", [5 * MIB]
    await rig.restart.restart()
    assert rig.job.pinned_why == "it cannot be suspended: an earlier run ended" and not rig.job.suspending
    rig.parts.request_yield(rig.job)
    assert rig.checkpoint_jobs.of[7].stage is Stage.ON and len(rig.moves) == 1


async def test_a_restart_finds_the_device_of_one_that_was_not_written_down(rig: SuspendedJob) -> None:
    rig.job.device, rig.moves = None, [5 * MIB]
    await rig.restart.restart()
    assert rig.job.device == "cuda0" and rig.checkpoint_jobs.of[7].stage is Stage.OFF


async def test_one_whose_device_is_gone_is_lost(rig: SuspendedJob) -> None:
    rig.job.device = "cuda1"
    await rig.restart.restart()
    assert rig.killed == [7] and rig.job.fault is not None and "no device here" in rig.job.fault.text
    assert rig.job.device is None


async def test_whatever_goes_wrong_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    answered: asyncio.Future[int | Exception] = asyncio.get_running_loop().create_future()
    in_background("sum", lambda: int("x"), answered.set_result)
    assert isinstance(await answered, ValueError) and "sum: unexpected error" in caplog.text


# Notes about suspended jobs, and the processes below another one


NESTED = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(0, flush=True); input()'])"


def test_notes_are_read_by_the_next_daemon(tmp_path: Path) -> None:
    Notes(tmp_path).write(7, Note(5))
    Notes(tmp_path).write(7, Note(6, complete=True))
    assert Notes(tmp_path).read(7) == Note(6, complete=True)
    assert Notes(tmp_path).read(8) == Note()
    Notes(tmp_path).forget(7)
    Notes(tmp_path).forget(7)
    assert Notes(tmp_path).read(7) == Note() and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", '{"needed": "much"}', '["x"]'])
def test_one_that_makes_no_sense_says_nothing(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "suspended-7").write_text(text)
    assert Notes(tmp_path).read(7) == Note()
    assert "cannot be read" in caplog.text


def test_processes_below_another() -> None:
    with subprocess.Popen([sys.executable, "-c", NESTED], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = below(os.getpid())
        grandchildren = below(process.pid)
        assert process.pid in found and len(grandchildren) == 1 and set(grandchildren) < set(found)
        process.stdin.close()
    assert below(process.pid) == []


def test_one_whose_state_is_empty_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "stat_fields", lambda _pid: [])
    assert not has_not_ended(os.getpid())


def test_the_daemon_is_not_below_a_job_that_has_started_it() -> None:
    assert os.getpid() not in below(os.getppid())
