"""Control groups for tests: a directory in the place of version 2 with controllers, and the machine's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.daemon.cgroups.group import EVENTS, KILL, PROCESSES, SUBTREE, Group
from carpool.daemon.cgroups.hierarchies import hierarchies_here

FILES = {PROCESSES: "", EVENTS: "populated 0\nfrozen 0\n", KILL: "", SUBTREE: ""}
OF_CONTROLLERS = {"memory": ("memory.max", "memory.events"), "pids": ("pids.max", "pids.events")}


class Tree:
    """A directory whose new directories have the files that the kernel would make."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.fill(path, "memory pids")

    def fill(self, path: Path, controllers: str) -> None:
        for name, text in FILES.items():
            (path / name).write_text(text)
        for controller in controllers.replace("+", "").split():
            for name in OF_CONTROLLERS[controller]:
                (path / name).write_text("")

    def make(self, group: Group) -> None:
        for path in reversed([group.path, *group.path.parents]):
            if path.is_relative_to(self.path) and not path.exists():
                path.mkdir()
                self.fill(path, (path.parent / SUBTREE).read_text())

    def remove(self, group: Group) -> None:
        """As rmdir(2) does with a group: its files do not count."""
        if not group.path.exists():
            return
        for child in group.children():
            child.remove()
        if (group.path / PROCESSES).read_text():
            raise OSError(16, "Device or resource busy")
        for file in list(group.path.iterdir()):
            file.unlink()
        group.path.rmdir()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path / "cgroup")
    monkeypatch.setattr(Group, "make", lambda group: made.make(group))
    monkeypatch.setattr(Group, "remove", lambda group: made.remove(group))
    return made


@pytest.fixture
def group() -> Iterator[Group]:
    """A real one of version 2."""
    own = hierarchies_here().unified
    if own is None or not os.access(own, os.W_OK) or os.geteuid() != 0:
        pytest.skip("needs root, and control groups of version 2")
    made = Group(own / f"carpool-test-{os.getpid()}")
    made.make()
    yield made
    if made.path.exists():
        made.kill()
        assert made.wait_empty(5.0)
        made.remove()
