"""Stopped processes: real ones, whose seats the test plays."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carpool.core import commands
from carpool.core.events import TurnReleased
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.memory.movers import JobsShim
from carpool.daemon.privileges.base import signal_process
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.sigstop import watchdog
from carpool.daemon.sigstop.stopped import StopMarkers
from carpool.daemon.sigstop.watchdog import Watchdog
from carpool.daemon.system.processes import state_of
from carpool.protocol.paths import Home
from carpool.protocol.seat import PacketType, Yield
from tests.daemon.cuda_rig import until
from tests.daemon.rig import Client, Rig

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
ME = os.getuid()
_ptrace = ctypes.CDLL(None, use_errno=True).ptrace


class Scene:
    """A job whose attached process sleeps, or does what ``code`` says."""

    def __init__(self, directory: Path, rig: Rig, code: str) -> None:
        self.rig = rig
        self.directory = directory
        self.process = subprocess.Popen([sys.executable, "-c", f"print(1, flush=True); {code}"], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.pid = self.process.pid
        self.client = rig.attach()
        self.job, self.seat = self.client.job, self.client.seat
        self.job.owner = ME
        assert self.job.seated is not None
        self.job.seated = replace(self.job.seated, pid=self.pid)
        self.shim_runs = True
        self.taken: list[tuple[int, str, str]] = []
        self.by_shim = JobsShim(self)
        self.privileges = DirectPrivileges(Home(directory))
        self.kept = StopMarkers(directory, self.privileges)
        self.given_up: list[int] = []
        self.signals: list[int] = []
        self.watchdog = Watchdog(rig.jobs, self.kept, rig.watchlist, rig.turns, self, self, self.privileges)
        self._running = asyncio.create_task(self.watchdog.run())

    def take(self, *asked: Any) -> bool:
        self.taken.append(asked)
        return self.shim_runs

    def kill_process(self, pid: int, owner: int) -> None:
        signal_process(self.privileges, pid, owner, signal.SIGKILL)

    def signal(self, job: JobRecord, number: int) -> None:
        self.signals.append(number)

    def unanswered(self, job: JobRecord) -> None:
        self.given_up.append(job.id)
        job.offloading = False

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def grant(self) -> None:
        self.rig.do(commands.GrantTurn(1, self.job.id))

    def owe_turn(self) -> None:
        self.grant()
        self.ask(forced=True)

    def ask(self, *, forced: bool) -> None:
        """For its turn."""
        self.rig.do(commands.RequestYield(self.job.id, forced))

    def count(self, to: Client | None = None) -> None:
        """The next step of its hand-over: from here on it counts."""
        self.client.passes(to)

    def let_go(self, to: Client | None = None) -> None:
        """All of its hand-over."""
        self.seat.set("turn", 0)
        self.count(to)

    def owe_memory(self) -> None:
        self.job.offloading = True
        self.watchdog.watch(self.job)

    @property
    def state(self) -> str:
        return state_of(self.pid, ME)

    @property
    def notes(self) -> list[str]:
        return [path.name for path in self.directory.glob("continued-*")]

    async def close(self) -> None:
        self._running.cancel()
        await self.watchdog.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Scene]]:
    monkeypatch.setattr(watchdog, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(watchdog, "LOOK_S", 0.01)
    monkeypatch.setattr(watchdog, "POLLS", 100)
    rig, made = Rig(), []

    def scene(code: str = "import signal; signal.pause()") -> Scene:
        made.append(Scene(tmp_path, rig, code))
        return made[-1]

    yield scene
    for each in made:
        await each.close()
    rig.close()


@pytest.fixture
async def scene(make: Callable[..., Scene]) -> Scene:
    return make()


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0
        self._looks = 0

    def __call__(self) -> float:
        self._looks += 1
        return self.now

    async def looked_at(self) -> None:
        """Return when somebody has, after now, and has done what follows from it."""
        enough = self._looks + 2
        await until(lambda: self._looks >= enough)


async def test_who_runs_is_left_alone(scene: Scene) -> None:
    scene.owe_memory()
    scene.owe_turn()
    await asyncio.sleep(0.1)
    assert scene.state != "T" and not scene.taken


async def test_without_a_turn_the_shim_is_asked(scene: Scene) -> None:
    scene.stop()
    scene.owe_memory()
    await until(lambda: scene.taken)
    assert scene.taken[0] == (scene.job.id, f"bank:host0:{scene.job.bank}", "store:host0")
    assert scene.state == "T"
    scene.job.offloading = False
    await until(lambda: not scene.watchdog._tasks)


async def test_a_shim_that_is_stopped_too_cannot_help(scene: Scene) -> None:
    scene.shim_runs = False
    scene.stop()
    scene.owe_memory()
    await until(lambda: scene.state != "T")
    scene.job.offloading = False
    await until(lambda: scene.state == "T")


@pytest.mark.parametrize("forced", [True, False], ids=["forced", "the first request: it would come to no boundary"])
async def test_with_a_turn_it_runs_until_it_has_let_go(scene: Scene, forced: bool) -> None:
    scene.grant()
    scene.stop()
    scene.ask(forced=forced)
    await until(lambda: scene.state in "RS")
    assert scene.notes == [f"continued-{scene.job.id}"] and scene.seat.get("yield") == Yield.NOW
    scene.let_go()
    await until(lambda: scene.state == "T")
    assert not scene.notes and not scene.taken
    assert TurnReleased in [type(event) for event in scene.rig.events]


@pytest.mark.parametrize("by_force", [True, False])
async def test_it_runs_until_somebody_else_has_its_turn(scene: Scene, by_force: bool) -> None:
    """What it clears first is its own `turn`; a user may stop it just there, too."""
    successor = scene.rig.attach()
    scene.grant()
    if by_force:
        scene.stop()
        scene.ask(forced=True)
        await until(lambda: scene.state in "RS")
        scene.seat.set("turn", 0)
    else:
        scene.seat.set("turn", 0)
        scene.stop()
        scene.watchdog.watch(scene.job)
        await until(lambda: scene.state in "RS")
    await asyncio.sleep(0.03)
    assert scene.state != "T"
    scene.count(successor)
    await asyncio.sleep(0.03)
    assert scene.state != "T", "the next one's turn is still to be written, and only once"
    bell = successor.seat.get("bell")
    successor.seat.set("turn", 1)
    await until(lambda: scene.state == "T")
    assert successor.seat.get("bell") != bell, "nobody wakes it"
    assert scene.rig.seating.holder[1] == successor.job.id and not scene.taken
    await until(lambda: not scene.watchdog._tasks)


async def test_stopped_after_its_turn_was_seen_to_go(scene: Scene) -> None:
    """Nobody has asked it for anything: the sync of the lane notices."""
    successor = scene.rig.attach()
    scene.grant()
    scene.let_go(successor)
    scene.stop()
    scene.rig.turns.sync(1)
    await until(lambda: scene.state in "RS")
    successor.seat.set("turn", 1)
    await until(lambda: scene.state == "T")


async def test_the_memory_of_one_that_hands_its_turn_over_is_not_taken(scene: Scene) -> None:
    scene.grant()
    scene.seat.set("turn", 0)
    scene.stop()
    scene.owe_memory()
    await until(lambda: scene.state in "RS")
    assert not scene.taken
    scene.count()
    await until(lambda: scene.state == "T")
    await until(lambda: scene.taken)


async def test_who_does_not_answer_at_all_is_given_up(
    make: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs, as far as can be seen: its shim is asked, and in the end nobody waits any more."""
    clock = Clock()
    monkeypatch.setattr(watchdog, "monotonic", clock)
    scene = make()
    scene.owe_memory()
    await clock.looked_at()
    assert not scene.taken
    clock.now += watchdog.TAKE_AFTER_S + 0.1
    await until(lambda: scene.taken)
    os.pwrite(scene.job.seated.store_fd, b"x", 0)  # type: ignore[union-attr] - it moves
    scene.rig.watchlist.mark_busy(scene.job)
    await clock.looked_at()
    clock.now += watchdog.TAKE_AFTER_S + watchdog.FAIL_AFTER_S - 0.1
    await clock.looked_at()
    assert not scene.given_up
    clock.now += 0.2
    await until(lambda: scene.given_up)
    await until(lambda: not scene.watchdog._tasks)


async def test_the_watch_goes_on_after_an_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def no_descriptors(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(watchdog.os, "pidfd_open", no_descriptors)
        scene.stop()
        scene.owe_turn()
        await until(lambda: "Too many open files" in caplog.text)
    await until(lambda: scene.state in "RS")


async def test_in_the_middle_of_moving_it_runs_until_it_has_answered(scene: Scene) -> None:
    scene.stop()
    scene.owe_memory()
    await until(lambda: scene.taken)
    scene.rig.watchlist.mark_busy(scene.job)
    await until(lambda: scene.state in "RS")
    scene.job.offloading = False
    await until(lambda: scene.state == "T")


async def test_who_does_not_let_go_is_stopped_again_and_tried_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.stop()
    scene.owe_turn()
    for _ in range(2):
        await until(lambda: scene.state in "RS")
        await until(lambda: scene.state == "T")
    assert "released nothing" in caplog.text


async def test_who_is_asked_for_nothing_keeps_its_turn(scene: Scene) -> None:
    """It got its turn before it heard that its memory is wanted: the core will ask for the turn."""
    scene.stop()
    scene.seat.set("turn", 1)
    scene.owe_memory()
    await asyncio.sleep(0.1)
    assert scene.state == "T" and not scene.taken


async def test_it_ends_while_it_is_continued(make: Callable[..., Scene]) -> None:
    scene = make("import signal; signal.sigtimedwait([], 0.05); import os; os.kill(os.getpid(), 9)")
    scene.stop()
    scene.owe_turn()
    await until(lambda: scene.process.poll() is not None)
    scene.let_go()
    await until(lambda: not scene.watchdog._tasks)
    assert not scene.notes


async def test_the_daemon_stops_in_that_moment(scene: Scene) -> None:
    scene.stop()
    scene.owe_turn()
    await until(lambda: scene.state in "RS")
    await scene.watchdog.close()
    await until(lambda: scene.state == "T")
    assert not scene.notes


async def test_the_daemon_died_in_that_moment(make: Callable[..., Scene]) -> None:
    scene, other = make(), make()
    for each in (scene, other):
        each.kept.note(each.job.id)
    old = scene.directory / f"continued-{other.job.id}"
    os.utime(old, (0, 0))  # so long ago that its owner may have continued it
    (scene.directory / "continued-999").touch()
    (scene.directory / "continued-x").touch()  # somebody else's
    scene.watchdog.settle()
    await until(lambda: scene.state == "T")
    assert other.state != "T" and scene.notes == ["continued-x"]


async def test_processes_of_others_are_left_alone(scene: Scene) -> None:
    """A job says itself what its process is called."""
    scene.job.owner = ME + 1
    scene.stop()
    scene.owe_turn()
    await asyncio.sleep(0.1)
    assert scene.state == "T"


async def test_what_a_debugger_has_stopped_cannot_be_continued(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    if _ptrace(PTRACE_ATTACH, scene.pid, None, None):
        pytest.skip("tracing processes is not allowed here")
    try:
        await until(lambda: scene.state == "t")
        scene.owe_turn()
        await until(lambda: "debugger" in caplog.text)
        await asyncio.sleep(0.1)
        assert scene.state == "t" and caplog.text.count("debugger") == 1
        job: JobRecord = scene.job
        job.offloading = True
        scene.let_go()
        await until(lambda: scene.taken)
    finally:
        _ptrace(PTRACE_DETACH, scene.pid, None, None)


# Leases


async def test_who_is_stopped_after_the_request_is_continued_too(scene: Scene) -> None:
    scene.grant()
    scene.ask(forced=False)
    await asyncio.sleep(0.05)
    assert scene.seat.get("yield") == Yield.BOUNDARY, "who runs has its time"
    scene.stop()
    await until(lambda: scene.seat.get("yield") == Yield.NOW)
    await until(lambda: scene.state in "RS")


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LEASE_S", 0.1)


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize("word", ["yield", "turn", "paused"])
@pytest.mark.parametrize("pause", [False, True])
async def test_who_keeps_its_turn_is_killed(scene: Scene, word: str, pause: bool) -> None:
    """Whatever the job writes into its seat."""
    scene.grant()
    if pause:
        scene.rig.do(commands.PauseTurn(scene.job.id, False))
    else:
        scene.ask(forced=True)
    scene.seat.set(word, 0)
    await until(lambda: scene.process.poll() == -signal.SIGKILL)
    assert scene.signals == [signal.SIGKILL], "the shim is told for the job's other processes, once"
    assert scene.job.fault is not None and scene.job.fault.code == "lease"
    assert "it did not " + ("pause" if pause else "give its turn back") in scene.job.fault.text


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize("answer", ["let go", "pause", "withdrawn", "none asked"])
async def test_who_answers_lives(scene: Scene, answer: str) -> None:
    scene.grant()
    match answer:
        case "let go":
            scene.ask(forced=True)
            scene.let_go()
        case "pause":
            scene.rig.do(commands.PauseTurn(scene.job.id, False))
            scene.seat.set("paused", scene.seat.get("pause_seq"))
            scene.rig.says(scene.client, PacketType.PAUSED, scene.seat.get("pause_seq"))
        case "withdrawn":
            scene.ask(forced=True)
            scene.rig.do(commands.WithdrawYield(scene.job.id))
        case "none asked":
            scene.ask(forced=False)
    await asyncio.sleep(0.3)
    assert scene.process.poll() is None and not scene.signals


@pytest.mark.usefixtures("short_lease")
async def test_asking_again_gives_no_more_time(scene: Scene) -> None:
    scene.grant()
    async with asyncio.timeout(30):
        while scene.process.poll() is None:
            scene.ask(forced=True)
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("short_lease")
async def test_a_turn_that_waits_for_its_memory_costs_nobody_the_lease(scene: Scene) -> None:
    scene.job.offloading = True  # its answer comes first
    scene.grant()
    assert scene.job.turn_due
    scene.ask(forced=True)
    await asyncio.sleep(0.3)
    assert scene.process.poll() is None


@pytest.mark.usefixtures("short_lease")
async def test_a_turn_asked_back_before_it_came_lasts_for_a_lease(scene: Scene) -> None:
    """The core asks once: a job that comes to no boundary is told to let go at once, and is killed after that."""
    scene.job.offloading = True
    scene.grant()
    scene.ask(forced=True)
    scene.job.offloading = False
    scene.rig.memory.granting.again(scene.job)
    assert (scene.seat.get("turn"), scene.seat.get("yield")) == (1, Yield.BOUNDARY)
    await until(lambda: scene.seat.get("yield") == Yield.NOW)
    await until(lambda: scene.process.poll() is not None)
    assert scene.job.fault is not None and scene.job.fault.code == "lease"
