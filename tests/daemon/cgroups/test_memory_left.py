"""What this process and those below may have: the machine's memory, and that of groups above with a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.daemon.cgroups.hierarchies import MEMORY, Hierarchies, MemoryLeft, hierarchies_here, memory_left

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


def test_the_machine(meminfo: Path) -> None:
    assert memory_left(NOWHERE, meminfo) == MemoryLeft(16 * GIB, 8 * GIB)


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_of_all_groups_above_counts(meminfo: Path, tmp_path: Path, version: int) -> None:
    """Pages of files that nobody uses can be given back."""
    group(tmp_path / "above", str(4 * GIB), 3 * GIB, GIB // 2, version)
    inner = group(tmp_path / "above" / "inner", "max" if version == 2 else str(1 << 62), GIB, 0, version)
    here = Hierarchies(inner, {}) if version == 2 else Hierarchies(None, {MEMORY: inner})
    assert memory_left(here, meminfo) == MemoryLeft(4 * GIB, 3 * GIB // 2)


def test_a_group_over_its_limit_has_nothing_left(meminfo: Path, tmp_path: Path) -> None:
    inner = group(tmp_path / "inner", str(GIB), 2 * GIB, 0)
    assert memory_left(Hierarchies(inner, {}), meminfo).available == 0


def test_this_machine() -> None:
    left = memory_left(hierarchies_here())
    assert 0 < left.available <= left.total
