"""Where hierarchies of control groups are found, from the kernel's texts of machines of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.daemon.cgroups.hierarchies import Hierarchies, find_hierarchies

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
99 31 0:38 / /mnt/again rw,relatime - cgroup2 cgroup2 rw
"""
HYBRID_GROUPS = "9:name=systemd:/\n4:memory:/a/b c\n1:cpu,cpuacct:/\n0::/\n"
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "30 23 0:26 /docker/1a /sys/fs/cgro\\040up ro - cgroup2 cgroup rw\n"


def test_a_hybrid_machine() -> None:
    found = find_hierarchies(HYBRID, HYBRID_GROUPS)
    assert found.unified == Path("/sys/fs/cgroup/unified")
    assert found.legacy["memory"] == Path("/sys/fs/cgroup/memory/a/b c")
    assert "pids" not in found.legacy


def test_version_2_alone() -> None:
    found = find_hierarchies(UNIFIED, "0::/system.slice/carpool.service\n")
    assert found == Hierarchies(Path("/sys/fs/cgroup/system.slice/carpool.service"), {})


@pytest.mark.parametrize(
    ("group", "directory"),
    [
        ("/docker/1a", Path("/sys/fs/cgro up")),
        ("/docker/1a/x", Path("/sys/fs/cgro up/x")),
        ("/docker/1ab", None),
        ("/../other", None),
    ],
)
def test_only_a_part_is_mounted(group: str, directory: Path | None) -> None:
    assert find_hierarchies(CONTAINER, f"0::{group}\n").unified == directory


def test_nothing_is_mounted() -> None:
    assert find_hierarchies("", "0::/\n") == Hierarchies(None, {})
