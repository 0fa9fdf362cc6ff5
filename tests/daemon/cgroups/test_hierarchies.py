"""Where control groups are, and how much memory they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.daemon.cgroups.hierarchies import (
    MEMORY,
    Hierarchies,
    MemoryLeft,
    find_hierarchies,
    hierarchies_here,
    memory_left,
)

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


def test_version_2_alone_or_nothing_is_mounted() -> None:
    found = find_hierarchies(UNIFIED, "0::/system.slice/carpool.service\n")
    assert found == Hierarchies(Path("/sys/fs/cgroup/system.slice/carpool.service"), {})
    assert find_hierarchies("", "0::/\n") == Hierarchies(None, {})


GIB = 1 << 30
NOWHERE = Hierarchies(None, {})


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: {16 << 20} kB\nMemFree: 1 kB\nMemAvailable: {8 << 20} kB\n")
    return path


def group(path: Path, limit: str, used: int, cache: int, version: int = 2) -> Path:
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    line = "inactive_file" if version == 2 else "total_inactive_file"
    path.mkdir(parents=True)
    for name, text in zip((*names, "memory.stat"), (limit, str(used), f"anon 7\n{line} {cache}"), strict=True):
        (path / name).write_text(f"{text}\n")
    return path


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_of_all_groups_above_counts(meminfo: Path, tmp_path: Path, version: int) -> None:
    """Pages of files that nobody uses can be given back."""
    group(tmp_path / "above", str(4 * GIB), 3 * GIB, GIB // 2, version)
    inner = group(tmp_path / "above" / "inner", "max" if version == 2 else str(1 << 62), GIB, 0, version)
    here = Hierarchies(inner, {}) if version == 2 else Hierarchies(None, {MEMORY: inner})
    assert memory_left(here, meminfo) == MemoryLeft(4 * GIB, 3 * GIB // 2)


def test_what_the_machine_has_and_that_a_group_over_its_limit_has_nothing_left(meminfo: Path, tmp_path: Path) -> None:
    inner = group(tmp_path / "inner", str(GIB), 2 * GIB, 0)
    assert memory_left(Hierarchies(inner, {}), meminfo).available == 0
    assert memory_left(NOWHERE, meminfo) == MemoryLeft(16 * GIB, 8 * GIB)


def test_this_machine() -> None:
    left = memory_left(hierarchies_here())
    assert 0 < left.available <= left.total
