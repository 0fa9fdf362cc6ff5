"""One control group of version 2, as the kernel has it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from carpool.daemon.cgroups.group import PROCESSES, SUBTREE, Group, move

#: Each process leaves the session of its parent and is replaced again and again.
STORM = """
import os
print(os.getpid(), flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
    else:
        os._exit(0)
"""


def test_processes_that_fork_all_the_time_are_ended(group: Group) -> None:
    spare = Group(group.path / "spare")
    spare.make()
    below = Group(group.path / "below")
    below.make()
    waits = f"input()\n{STORM}"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        move(process.pid, os.getuid(), below, spare)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == process.pid
        assert below.populated()
        below.kill()
        assert below.wait_empty(10.0) and below.pids() == set()
    group.remove()
    assert not group.path.exists()


def test_only_processes_of_the_owner_are_moved(group: Group) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(PermissionError):
            move(process.pid, os.getuid() + 1, group, group)
        with pytest.raises(OSError):
            move(0, os.getuid(), group, group)
        assert group.pids() == set(), "0 would be this process"
        move(process.pid, os.getuid(), group, group)
        assert group.pids() == {process.pid}
        process.kill()
        process.wait()
        with pytest.raises(ProcessLookupError):
            move(process.pid, os.getuid(), group, group)


def test_a_group_with_processes_stays(group: Group) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        move(process.pid, os.getuid(), group, group)
        with pytest.raises(OSError):
            group.remove()
        assert not group.wait_empty(0.0)
        process.kill()


def test_a_group_that_is_gone_has_no_processes(group: Group) -> None:
    gone = Group(group.path / "gone")
    assert (gone.pids(), gone.populated(), gone.children(), gone.wait_empty(0.0)) == (set(), False, [], True)
    gone.kill()
    gone.remove()


def test_the_kernel_lets_no_process_stay_where_groups_below_have_controllers(group: Group) -> None:
    """Why the daemon leaves its group: with any controller that version 2 has here."""
    controllers = group.words("cgroup.controllers")
    parents = Group(group.path.parent)
    if not controllers and not (offered := parents.words("cgroup.controllers")):
        pytest.skip("version 2 has no controllers here")
    if not controllers:
        parents.write(SUBTREE, f"+{offered[0]}")
        controllers = [offered[0]]
    try:
        with subprocess.Popen(["sleep", "60"]) as process:
            move(process.pid, os.getuid(), group, group)
            with pytest.raises(OSError, match="busy"):
                group.write(SUBTREE, f"+{controllers[0]}")
            leaf = Group(group.path / "leaf")
            leaf.make()
            leaf.write(PROCESSES, str(process.pid))
            group.write(SUBTREE, f"+{controllers[0]}")
            process.kill()
        assert leaf.wait_empty(5.0)
        group.remove()
    finally:
        if group.path.exists():
            group.kill()
        elif not parents.children():
            parents.write(SUBTREE, f"-{controllers[0]}")


def test_half_of_what_is_written_names_no_process(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(OSError):
            move(process.pid, os.getuid(), group, group)
        process.kill()
    assert group.pids() == set()
