"""Where the daemon's groups are made, in directories that stand for hierarchies of either version."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from carpool.daemon.cgroups.group import PROCESSES, SUBTREE, Group
from carpool.daemon.cgroups.hierarchies import MEMORY, PIDS, UNIFIED, Hierarchies
from carpool.daemon.cgroups.job_groups import GroupLimits, open_groups, report
from carpool.daemon.cgroups.places import LEAF, find_places, name_of
from carpool.protocol.paths import Home
from tests.daemon.cgroups.conftest import Tree

BOTH = (MEMORY, PIDS)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home")


def test_homes_have_groups_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert name_of(Home(tmp_path / "one")) != name_of(Home(tmp_path / "two"))
    (tmp_path / "link").symlink_to("one")
    assert name_of(Home(tmp_path / "link")) == name_of(Home(tmp_path / "one"))


def test_a_delegated_subtree_gets_the_controllers(tree: Tree, home: Home) -> None:
    places = find_places(home, Hierarchies(tree.path, {}), BOTH)
    (found,) = places.trees
    assert found.root.path == tree.path / name_of(home)
    assert (found.unified, found.controllers, places.missing) == (True, {MEMORY, PIDS}, {})
    assert (tree.path / SUBTREE).read_text() == (found.root.path / SUBTREE).read_text() == "+memory +pids"


def test_without_limits_nothing_is_switched_on(tree: Tree, home: Home) -> None:
    find_places(home, Hierarchies(tree.path, {}), ())
    assert (tree.path / SUBTREE).read_text() == ""


class Inner:
    """A group that refuses controllers for groups below while it has processes, as the kernel does."""

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch, *, others: bool) -> None:
        self.moves: list[Path] = []
        self._tree, self._others, self._write = tree, others, Group.write
        monkeypatch.setattr(Group, "write", lambda *arguments: self.write(*arguments))

    def write(self, group: Group, name: str, text: str) -> None:
        if name == PROCESSES:
            self.moves.append(group.path)
        elif group.path == self._tree.path and name == SUBTREE and (self._others or not self.moves):
            raise OSError(errno.EBUSY, "Device or resource busy")
        else:
            self._write(group, name, text)


def test_the_daemon_leaves_its_group_for_a_leaf(tree: Tree, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Inner(tree, monkeypatch, others=False)
    assert find_places(home, Hierarchies(tree.path, {}), BOTH).missing == {}
    assert inner.moves == [tree.path / LEAF]


def test_a_daemon_in_the_leaf_makes_groups_beside_it(tree: Tree, home: Home) -> None:
    leaf = Group(tree.path / LEAF)
    leaf.make()
    (found,) = find_places(home, Hierarchies(leaf.path, {}), BOTH).trees
    assert found.root.path.parent == tree.path


def test_with_other_processes_there_it_stays_and_no_limit_holds(
    tree: Tree, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Inner(tree, monkeypatch, others=True)
    places = find_places(home, Hierarchies(tree.path, {}), BOTH)
    assert inner.moves == [tree.path / LEAF, tree.path] and not (tree.path / LEAF).exists()
    assert places.trees[0].controllers == set() and set(places.missing) == {MEMORY, PIDS}


def test_version_1_limits_and_version_2_kills(tree: Tree, home: Home, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    places = find_places(home, Hierarchies(tree.path, {MEMORY: memory}), (MEMORY,))
    by_version = {found.unified: found for found in places.trees}
    assert by_version[False].controllers == {MEMORY} and not by_version[False].per_job
    assert by_version[True].controllers == set() and by_version[True].per_job


def test_the_groups_of_an_earlier_daemon_are_used_while_they_have_processes(tree: Tree, home: Home) -> None:
    (first,) = find_places(home, Hierarchies(tree.path, {}), ()).trees
    (first.root.path / PROCESSES).write_text("77")
    elsewhere = Group(tree.path / "session-2")
    elsewhere.make()
    here = Hierarchies(elsewhere.path, {})
    assert [found.root for found in find_places(home, here, ()).trees] == [first.root]
    (first.root.path / PROCESSES).write_text("")
    (second,) = find_places(home, here, ()).trees
    assert second.root.path.parent == elsewhere.path and not first.root.path.exists()


def test_a_hierarchy_that_is_not_used_any_more_is_remembered(tree: Tree, home: Home, tmp_path: Path) -> None:
    other = tree.path / "stands-for-version-1"
    Group(other).make()
    here = Hierarchies(tree.path, {MEMORY: other})
    for found in find_places(home, here, (MEMORY,)).trees:
        (found.root.path / PROCESSES).write_text("77")
    places = find_places(home, Hierarchies(None, {}), ())
    assert {root.path.parent for root in places.earlier} == {tree.path, other}
    assert find_places(home, Hierarchies(None, {}), ()).earlier == places.earlier, "as long as they have processes"


def test_what_cannot_be_had_is_said(home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    limits = GroupLimits(memory=1 << 30, processes=64)
    groups, found = open_groups(home, limits, Hierarchies(tmp_path / "gone" / "deeper", {}))
    assert not groups.active and groups.memory is None and groups.processes is None
    assert found.found.startswith("jobs have none of their own, and are ended process by process")
    assert len(found.problems) == 2 and found.problems[0].startswith("memory in limits.toml does not hold: ")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING"]


def test_what_holds_is_said(tree: Tree, home: Home) -> None:
    limits = GroupLimits(memory=1 << 30, processes=64)
    found = report(find_places(home, Hierarchies(tree.path, {}), limits.controllers), limits)
    assert found.problems == [] and found.found.endswith(
        "; at most 1 GiB of memory for the jobs of a user; at most 64 processes and threads of a job"
    )


def test_without_any_hierarchy(home: Home) -> None:
    places = find_places(home, Hierarchies(None, {}), (PIDS,))
    assert places.trees == [] and set(places.missing) == {UNIFIED, PIDS}
