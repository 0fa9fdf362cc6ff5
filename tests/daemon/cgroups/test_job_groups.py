"""What happens to jobs when the kernel refuses something: one line of the log, and no job is lost."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from carpool.daemon.cgroups.group import EVENTS, PROCESSES, Group, attempt_of, group_name
from carpool.daemon.cgroups.hierarchies import Hierarchies
from carpool.daemon.cgroups.job_groups import GroupLimits, JobGroups
from carpool.daemon.cgroups.places import Places, find_places
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home
from tests.daemon.cgroups.conftest import Tree

JOB = JobRecord(7, os.getuid(), os.getgid(), SubmitRequest(argv=["true"], cwd="/", env={}), None, 0)
LIMITS = GroupLimits(memory=1 << 30, processes=64)


@pytest.fixture
def places(tree: Tree, tmp_path: Path) -> Places:
    (tmp_path / "home").mkdir()
    return find_places(Home(tmp_path / "home"), Hierarchies(tree.path, {}), LIMITS.controllers)


@pytest.fixture
def user(places: Places) -> Path:
    return places.trees[0].user(JOB.owner).path


@pytest.mark.parametrize("name", ["job-7", "job-7.3", "shims", "job-x", "job-7.", "xjob-7"])
def test_names_of_groups(name: str) -> None:
    known = attempt_of(name)
    assert (known is None) == (name not in ("job-7", "job-7.3"))
    assert known is None or group_name(*known) == name


def test_a_shim_goes_in_and_out_and_limits_are_written(places: Places, user: Path) -> None:
    groups = JobGroups(places, LIMITS)
    groups.enter(JOB, os.getpid())
    assert (user / "job-7" / PROCESSES).read_text().strip() == str(os.getpid())
    assert (user / "job-7" / "pids.max").read_text() == "64"
    assert (user / "memory.max").read_text() == str(1 << 30)
    groups.leave(JOB, os.getpid())
    assert (user / "shims" / PROCESSES).read_text().strip() == str(os.getpid())


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ENOSPC, errno.EINVAL, errno.EROFS, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("file", [PROCESSES, "pids.max", "memory.max"])
def test_what_cannot_be_written_is_one_line(
    places: Places,
    user: Path,
    number: int,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups, write = JobGroups(places, LIMITS), Group.write

    def fails(group: Group, name: str, text: str) -> None:
        if name == file:
            raise OSError(number, os.strerror(number))
        write(group, name, text)

    monkeypatch.setattr(Group, "write", fails)
    (line,) = groups.enter(JOB, os.getpid())
    assert line.startswith("job 7 is without") and os.strerror(number) in line
    assert ((user / "job-7" / PROCESSES).read_text() == "") == (file == PROCESSES), "limits fail, the group is entered"


def test_groups_that_cannot_be_made_are_one_line(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_group: Group) -> None:
        raise OSError(errno.EAGAIN, "too many groups")

    monkeypatch.setattr(Group, "make", full)
    groups = JobGroups(places, LIMITS)
    (line,) = groups.enter(JOB, os.getpid())
    assert line.endswith("too many groups")
    remains = groups.remains(JOB, os.getpid())
    assert remains.pids() == set() and remains.removed()


def test_a_shim_that_cannot_leave_is_not_killed(places: Places, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, killed = JobGroups(places, LIMITS), list[Path]()
    groups.enter(JOB, os.getpid())
    (user / "job-7" / EVENTS).write_text("populated 1\nfrozen 0\n")
    monkeypatch.setattr(Group, "kill", lambda group: killed.append(group.path))

    def busy(_group: Group, _name: str, _text: str) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Group, "write", busy)
    remains = groups.remains(JOB, os.getpid())
    assert not remains.removed()
    assert remains.end() == ["the control group of job 7 cannot be ended: [Errno 16] busy"] and killed == []


def test_a_notice_has_a_group_with_the_limits_of_a_job(places: Places, user: Path) -> None:
    groups, name = JobGroups(places, LIMITS), f"notice-{os.getpid()}"
    assert groups.enter_notifier(JOB.owner, os.getpid()) == []
    assert (user / name / PROCESSES).read_text().strip() == str(os.getpid())
    assert (user / name / "pids.max").read_text() == "64" and (user / "memory.max").read_text() == str(1 << 30)
    (left,) = JobGroups(places, LIMITS).adopt(lambda _job, _attempt: False)
    assert left.path == user / name, "of a daemon that was killed"
    (line,) = groups.end_notifier(JOB.owner, os.getpid())
    assert line.startswith(f"the control group of a notice of uid {JOB.owner} cannot be ended: [Errno 16]")
    (user / name / PROCESSES).write_text("")
    assert groups.end_notifier(JOB.owner, os.getpid()) == [] and not (user / name).exists()


def test_a_shim_that_has_ended_says_nothing(places: Places) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    groups = JobGroups(places, LIMITS)
    assert groups.enter(JOB, process.pid) == groups.leave(JOB, process.pid) == []


def test_the_next_daemon_removes_empty_groups_and_applies_its_limits(places: Places, user: Path) -> None:
    groups = JobGroups(places, LIMITS)
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


def test_how_often_processes_were_refused(places: Places, user: Path) -> None:
    groups = JobGroups(places, LIMITS)
    assert groups.refusals(JOB) == 0
    groups.enter(JOB, os.getpid())
    (user / "job-7" / "pids.events").write_text("max 3\n")
    assert groups.refusals(JOB) == 3
