"""Processes of a job that the daemon ends itself, whatever state they are in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.shims import orphans
from carpool.daemon.shims.orphans import end_tree
from carpool.daemon.system.processes import has_not_ended, start_time
from carpool.protocol.packets import STATE, stat_fields
from carpool.protocol.paths import Home
from carpool.runtime.shim.child import children_now, descendants, kill_all
from tests.descriptors import descriptors

#: Starts a process that it says the number of; then its main thread ends, and another one goes on.
WITHOUT_MAIN_THREAD = """
import ctypes, os, subprocess, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
STOPPED = "import os, signal; print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
OTHER_SESSION = "import os, signal; os.setsid(); print(os.getpid(), flush=True); signal.pause()"
PROGRAMS = {"no main thread": WITHOUT_MAIN_THREAD, "stopped": STOPPED, "another session": OTHER_SESSION}


def started(program: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process below a shell, and the numbers that it says, in the state in which it is to be ended."""
    line = f"{sys.executable} -S -c '{program}'; exec sleep 600"
    root = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, text=True)
    assert root.stdout is not None
    pids = [*map(int, root.stdout.readline().split())]
    wanted = {WITHOUT_MAIN_THREAD: b"Z", STOPPED: b"T"}.get(program)
    while wanted is not None and stat_fields(pids[0])[STATE] != wanted:
        os.sched_yield()
    return root, pids


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_daemon_ends_a_tree(tmp_path: Path, program: str) -> None:
    root, pids = started(program)
    with root:
        assert all(map(has_not_ended, pids)) and all(map(start_time, pids))
        end_tree(DirectPrivileges(Home(tmp_path)), os.getuid(), root.pid)
        assert root.wait() == -signal.SIGKILL
    assert not any(map(has_not_ended, pids))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_so_does_a_shim(program: str) -> None:
    spare = children_now()
    root, pids = started(program)
    with root:
        assert {root.pid, *pids} <= {*descendants(os.getpid(), spare)}
        kill_all(None, spare)
        assert not any(map(has_not_ended, [root.pid, *pids]))


def test_what_does_not_end_is_an_error_and_the_root_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "PATIENCE_S", 0.1)
    root, (pid,) = started(OTHER_SESSION)

    class Privileges(DirectPrivileges):
        def signal(self, pidfd: int, owner: int, number: int) -> None:
            if f"Pid:\t{pid}\n" in Path(f"/proc/self/fdinfo/{pidfd}").read_text():
                raise PermissionError
            super().signal(pidfd, owner, number)

    with root:
        before = descriptors()
        with pytest.raises(OSError, match=rf"processes \[{pid}\] do not end"):
            end_tree(Privileges(Home(tmp_path)), os.getuid(), root.pid)
        assert root.wait() == -signal.SIGKILL and descriptors() == before
    os.kill(pid, signal.SIGKILL)


def test_a_process_whose_parent_ends_during_the_look_is_found_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root, (pid,)), (other, (missed,)) = started(OTHER_SESSION), started(OTHER_SESSION)
    looks = iter([[pid], [], [missed], [], []])
    monkeypatch.setattr(orphans, "below", lambda _root: next(looks))
    with root, other:
        end_tree(DirectPrivileges(Home(tmp_path)), os.getuid(), root.pid)
        assert not has_not_ended(missed) and next(looks, None) is None
        other.kill()
