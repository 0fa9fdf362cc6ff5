"""What happens to jobs when the kernel refuses something: one line of the log, and no job is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from carpool.daemon.cgroups.group import EVENTS, PROCESSES, SUBTREE, Group, attempt_of, group_name, move
from carpool.daemon.cgroups.hierarchies import Hierarchies
from carpool.daemon.cgroups.job_groups import GroupLimits, JobGroups
from carpool.daemon.cgroups.places import Places, find_places
from carpool.daemon.hooks.base import JobHooks
from carpool.daemon.hooks.control_groups import ControlGroupHook
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.shims import job_ends
from carpool.daemon.shims.job_ends import JobEnds
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home
from tests.daemon.cgroups.conftest import Tree

JOB = JobRecord(7, os.getuid(), os.getgid(), SubmitRequest(argv=["true"], cwd="/", env={}), None, 0)
LIMITS = GroupLimits(memory=1 << 30, processes=64)
BUSY = os.strerror(errno.EBUSY)


@pytest.fixture
def places(tree: Tree, tmp_path: Path) -> Places:
    (tmp_path / "home").mkdir()
    return find_places(Home(tmp_path / "home"), Hierarchies(tree.path, {}), LIMITS.controllers)


@pytest.fixture
def user(places: Places) -> Path:
    return places.trees[0].user(JOB.owner).path


@pytest.fixture
def groups(places: Places) -> JobGroups:
    return JobGroups(places, LIMITS)


def write_fails(monkeypatch: pytest.MonkeyPatch, number: int, fails: Callable[[Group, str], bool]) -> None:
    """From now on the kernel refuses to write some files."""
    write = Group.write

    def refused(group: Group, name: str, text: str) -> None:
        if fails(group, name):
            raise OSError(number, os.strerror(number))
        write(group, name, text)

    monkeypatch.setattr(Group, "write", refused)


@pytest.mark.parametrize("name", ["job-7", "job-7.3", "shims", "job-x", "job-7.", "xjob-7"])
def test_names_of_groups(name: str) -> None:
    known = attempt_of(name)
    assert (known is None) == (name not in ("job-7", "job-7.3"))
    assert known is None or group_name(*known) == name


def test_a_shim_goes_in_and_out_and_limits_are_written(groups: JobGroups, user: Path) -> None:
    groups.enter(JOB, os.getpid())
    assert (user / "job-7" / PROCESSES).read_text().strip() == str(os.getpid())
    assert (user / "job-7" / "pids.max").read_text() == "64"
    assert (user / "memory.max").read_text() == str(1 << 30)
    groups.leave(JOB, os.getpid())
    assert (user / "shims" / PROCESSES).read_text().strip() == str(os.getpid())


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ENOSPC, errno.EINVAL, errno.EROFS, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("file", [PROCESSES, "pids.max", "memory.max"])
def test_what_cannot_be_written_is_one_line(
    groups: JobGroups, user: Path, number: int, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fails(monkeypatch, number, lambda _group, name: name == file)
    (line,) = groups.enter(JOB, os.getpid())
    assert line.startswith("job 7 is without") and os.strerror(number) in line
    assert ((user / "job-7" / PROCESSES).read_text() == "") == (file == PROCESSES), "limits fail, the group is entered"


def test_groups_that_cannot_be_made_are_one_line(groups: JobGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_group: Group) -> None:
        raise OSError(errno.EAGAIN, "too many groups")

    monkeypatch.setattr(Group, "make", full)
    (line,) = groups.enter(JOB, os.getpid())
    assert line.endswith("too many groups")
    remains = groups.remains(JOB, os.getpid())
    assert remains.pids() == set() and remains.removed()


def test_a_shim_that_cannot_leave_is_not_killed(groups: JobGroups, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[Path]()
    groups.enter(JOB, os.getpid())
    (user / "job-7" / EVENTS).write_text("populated 1\nfrozen 0\n")
    monkeypatch.setattr(Group, "kill", lambda group: killed.append(group.path))
    write_fails(monkeypatch, errno.EBUSY, lambda _group, _name: True)
    remains = groups.remains(JOB, os.getpid())
    assert not remains.removed()
    assert remains.end() == [f"the control group of job 7 cannot be ended: [Errno 16] {BUSY}"] and killed == []


def test_a_notice_has_a_group_with_the_limits_of_a_job(groups: JobGroups, places: Places, user: Path) -> None:
    name = f"notice-{os.getpid()}"
    assert groups.enter_notifier(JOB.owner, os.getpid()) == []
    assert (user / name / PROCESSES).read_text().strip() == str(os.getpid())
    assert (user / name / "pids.max").read_text() == "64" and (user / "memory.max").read_text() == str(1 << 30)
    (left,) = JobGroups(places, LIMITS).adopt(lambda _job, _attempt: False)
    assert left.path == user / name, "of a daemon that was killed"
    (line,) = groups.end_notifier(JOB.owner, os.getpid())
    assert line.startswith(f"the control group of a notice of uid {JOB.owner} cannot be ended: [Errno 16]")
    (user / name / PROCESSES).write_text("")
    assert groups.end_notifier(JOB.owner, os.getpid()) == [] and not (user / name).exists()


def test_a_shim_that_has_ended_says_nothing(groups: JobGroups) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert groups.enter(JOB, process.pid) == groups.leave(JOB, process.pid) == []


def test_the_next_daemon_removes_empty_groups_and_applies_its_limits(
    groups: JobGroups, places: Places, user: Path
) -> None:
    groups.enter(JOB, os.getpid())
    for name in ("job-7.2", "job-8"):
        Group(user / name).make()
    (user / "job-8" / PROCESSES).write_text("77")
    left = JobGroups(places, GroupLimits(memory=2 << 30, processes=64)).adopt(lambda job, _attempt: job == 8)
    assert [group.path.name for group in left] == ["job-8"], "over, and has processes"
    assert (user / "job-7").exists() and not (user / "job-7.2").exists()
    assert (user / "memory.max").read_text() == str(2 << 30)


def test_a_limit_that_was_taken_away_holds_no_longer(places: Places, user: Path) -> None:
    JobGroups(places, LIMITS).enter(JOB, os.getpid())
    without = Places([type(places.trees[0])(places.trees[0].root, True, frozenset())])
    JobGroups(without, GroupLimits()).adopt(lambda _job, _attempt: False)
    assert (user / "memory.max").read_text() == "max"


def test_a_limit_that_one_user_exceeds_already_is_set_for_the_others(
    places: Places, user: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    JobGroups(places, LIMITS).enter(JOB, os.getpid())
    tree = places.trees[0]
    for uid in (1, 2, 3):
        Group(tree.user(uid).path / "job-8").make()
        (tree.user(uid).path / "job-8" / PROCESSES).write_text("77")
    write_fails(monkeypatch, errno.EBUSY, lambda group, _name: group.path == tree.user(2).path)
    left = JobGroups(places, GroupLimits(memory=2 << 30, processes=64)).adopt(lambda job, _attempt: job == 8)
    assert {group.path.parent for group in left} == {tree.user(uid).path for uid in (1, 2, 3)}
    assert all((tree.user(uid).path / "memory.max").read_text() == str(2 << 30) for uid in (1, 3, JOB.owner))
    assert caplog.messages == [f"the control groups of an earlier daemon: [Errno 16] {BUSY}"]


def test_how_often_processes_were_refused(groups: JobGroups, user: Path) -> None:
    assert groups.refusals(JOB) == 0
    groups.enter(JOB, os.getpid())
    (user / "job-7" / "pids.events").write_text("max 3\n")
    assert groups.refusals(JOB) == 3


async def test_a_job_that_is_over_before_its_shim_was_told_to_start_leaves_no_group(
    groups: JobGroups, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shim, which has been refused, still lives in the group."""
    hooks, write = JobHooks(), Group.write
    monkeypatch.setattr(Group, "kill", lambda _group: pytest.fail("it has only its shim"))
    hooks.register([ControlGroupHook(groups)])
    parts: Any = MagicMock(hooks=hooks, jobs=JobTable())
    ends, done = JobEnds(parts, MagicMock()), asyncio.Event()
    groups.enter(JOB, os.getpid())
    (user / "job-7" / EVENTS).write_text("populated 1\n")

    def left(group: Group, name: str, text: str) -> None:
        write(group, name, text)
        if group.path.name == "shims":
            (user / "job-7" / PROCESSES).write_text("")
            (user / "job-7" / EVENTS).write_text("populated 0\n")

    monkeypatch.setattr(Group, "write", left)
    parts.jobs.live[JOB.id] = JOB
    ends.clear(JOB, os.getpid())
    assert (user / "job-7").exists(), "the shim has connected again, and starts the job"
    del parts.jobs.live[JOB.id]
    monkeypatch.setattr(job_ends, "log_problems", lambda _owner, result: done.set() if result == [] else None)
    ends.clear(JOB, os.getpid())
    await asyncio.wait_for(done.wait(), 20)
    assert not (user / "job-7").exists()


# One control group of version 2, as the kernel has it


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


def test_only_processes_of_the_owner_are_moved_and_a_group_with_processes_stays(group: Group) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(PermissionError):
            move(process.pid, os.getuid() + 1, group, group)
        with pytest.raises(OSError):
            move(0, os.getuid(), group, group)
        assert group.pids() == set(), "0 would be this process"
        move(process.pid, os.getuid(), group, group)
        assert group.pids() == {process.pid}
        with pytest.raises(OSError):
            group.remove()
        assert not group.wait_empty(0.0)
        process.kill()
        process.wait()
        with pytest.raises(ProcessLookupError):
            move(process.pid, os.getuid(), group, group)


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
