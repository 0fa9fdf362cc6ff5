"""How often the kernel has killed for want of host memory: read from either version of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.runtime.shim.cgroup_oom import kill_counter, kills_in_group


def counter(root: Path, groups: str) -> str | None:
    (root / "cgroup").write_text(groups)
    return kill_counter(str(root), str(root / "cgroup"))


@pytest.mark.parametrize(
    ("groups", "file", "content"),
    [
        ("0::/user.slice/a b\n", "user.slice/a b/memory.events", "low 0\noom 4\noom_kill 3\n"),
        ("0::/service/user-1/job-1\n", "service/user-1/memory.events", "oom_kill 3\n"),
        ("5:cpu,memory:/job\n1:name=systemd:/\n0::/\n", "memory/job/memory.oom_control", "under_oom 0\noom_kill 3\n"),
        ("0::/daemon/user-1/job-1\n4:memory:/job\n", "memory/job/memory.oom_control", "oom_kill 3\n"),
    ],
    ids=["version 2", "counted above", "version 1", "hybrid"],
)
def test_the_counter_is_found(tmp_path: Path, groups: str, file: str, content: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert kills_in_group(counter(tmp_path, groups)) == 3


def test_where_it_cannot_be_read_nothing_is_claimed(tmp_path: Path) -> None:
    assert kill_counter(str(tmp_path), str(tmp_path / "none")) is None
    assert kills_in_group(counter(tmp_path, "0::/gone\n")) is None
    assert kills_in_group(str(tmp_path / "gone")) is None
