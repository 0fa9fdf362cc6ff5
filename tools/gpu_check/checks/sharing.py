"""Device memory that several processes map: what a lane on a GPU rests on."""

from __future__ import annotations

import os
import time

from tools.gpu_check.registry import Figures, NotSeen, check, require
from tools.gpu_check.worker import Worker, workers

MIB = 1 << 20
SIZE = 64 * MIB
PATIENCE_S = 60.0
PAUSE_S, SILENT_S = 5.0, 1.0
ROUNDS = 20


@check("an extent outlives the process that created it (killed), and keeps its content")
def extent_outlives_its_creator() -> None:
    with workers(2) as (creator, reader):
        _, fd = creator.ask("create", size=SIZE)
        assert fd is not None
        creator.ask("map", fd, size=SIZE)
        creator.ask("fill", at=0, value=0x5A5A1234)
        creator.kill()
        reader.ask("map", fd, size=SIZE)
        os.close(fd)
        for pause_s in (0.0, PAUSE_S):  # what the driver has still to do for the dead one, it has done by then
            time.sleep(pause_s)
            words, _ = reader.ask("read", at=0)
            require(words == [0x5A5A1234] * 3, f"after {pause_s:.0f} s the content is gone: {words}")


@check("after kill -9 a process's kernels are silent: shared memory that another process clears stays clear")
def silence_after_a_kill() -> Figures:
    with workers(2) as (victim, other):
        _, fd = victim.ask("create", size=SIZE)
        assert fd is not None
        for worker in (victim, other):
            worker.ask("map", fd, size=SIZE)
        os.close(fd)
        emulated, _ = victim.ask("count_for_ever", at=0)
        _until_counted(other)
        begin = time.monotonic()
        victim.kill()
        killed_s = time.monotonic() - begin
        other.ask("fill", at=0, value=0)
        time.sleep(SILENT_S)
        words, _ = other.ask("read", at=0)
    require(words == [0, 0, 0], f"kernels of a dead process have written what another one cleared: {words}")
    if emulated:
        raise NotSeen("kernels of an emulated GPU are threads of their process, and die with it")
    return {"ms from kill to death": killed_s * 1e3}


def _until_counted(watcher: Worker) -> None:
    """The first word grows while it is looked at."""
    first, _ = watcher.ask("read", at=0)
    deadline = time.monotonic() + PATIENCE_S
    while watcher.ask("read", at=0)[0][0] == first[0]:
        require(time.monotonic() < deadline, "the endless kernels do not count")


@check("a new extent is cleared")
def extent_is_cleared() -> None:
    with workers(2) as (first, second):
        _, fd = first.ask("create", size=SIZE)
        assert fd is not None
        first.ask("map", fd, size=SIZE)
        first.ask("fill", at=0, value=0xDEADBEEF)
        first.kill()
        os.close(fd)
        _, fd = second.ask("create", size=SIZE)
        assert fd is not None
        second.ask("map", fd, size=SIZE)
        os.close(fd)
        words, _ = second.ask("read", at=0)
        require(words == [0, 0, 0], f"it shows what somebody left: {words}")


@check("two processes use one extent in turns and see each other's writes")
def lane_in_two_processes() -> None:
    with workers(2) as pair:
        _, fd = pair[0].ask("create", size=SIZE)
        assert fd is not None
        for worker in pair:
            worker.ask("map", fd, size=SIZE)
        os.close(fd)
        for turn in range(ROUNDS):
            pair[turn % 2].ask("fill", at=0, value=turn + 1)
            words, _ = pair[(turn + 1) % 2].ask("read", at=0)
            require(words == [turn + 1] * 3, f"turn {turn}: {words}")


@check("memory of a killed process comes back")
def memory_of_a_killed_process() -> Figures:
    with workers(2) as (watcher, victim):
        before, _ = watcher.ask("free")
        victim.ask("take", size=SIZE)
        taken, _ = watcher.ask("free")
        require(before - taken >= SIZE, f"it took only {before - taken} bytes")
        begin = time.monotonic()
        victim.kill()
        return {"seconds until it is free": _until_free(watcher, before, begin)}


@check("an extent is free when its last descriptor and its last mapping are gone")
def extent_is_freed() -> Figures:
    with workers(2) as (watcher, holder):
        holder.ask("free")  # makes its context
        before, _ = watcher.ask("free")
        _, fd = watcher.ask("create", size=SIZE)
        assert fd is not None
        holder.ask("map", fd, size=SIZE)
        os.close(fd)
        held, _ = watcher.ask("free")
        require(before - held >= SIZE, f"only {before - held} bytes are in use while a process has it mapped")
        begin = time.monotonic()
        holder.kill()
        return {"seconds until it is free": _until_free(watcher, before, begin)}


def _until_free(watcher: Worker, before: int, begin: float) -> float:
    """The driver gives memory back when it has released the contexts, later than the process's end."""
    while time.monotonic() < begin + PATIENCE_S:
        free, _ = watcher.ask("free")
        if free >= before:
            return time.monotonic() - begin
    raise AssertionError(f"after {PATIENCE_S:.0f} s {before - free} bytes are not back")
