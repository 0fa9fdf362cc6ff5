"""How often the kernel has killed for want of host memory: read from either version of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.runtime.shim.cgroup_oom import kills_in_group


@pytest.mark.parametrize(
    ("groups", "file", "content"),
    [
        ("0::/user.slice/a b\n", "user.slice/a b/memory.events", "low 0\noom 4\noom_kill 3\n"),
        ("5:cpu,memory:/job\n1:name=systemd:/\n0::/\n", "memory/job/memory.oom_control", "under_oom 0\noom_kill 3\n"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_counter_is_found(tmp_path: Path, groups: str, file: str, content: str) -> None:
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert kills_in_group(str(tmp_path), str(tmp_path / "cgroup")) == 3


def test_where_it_cannot_be_read_nothing_is_claimed(tmp_path: Path) -> None:
    assert kills_in_group(str(tmp_path), str(tmp_path / "none")) is None
    (tmp_path / "cgroup").write_text("0::/gone\n")
    assert kills_in_group(str(tmp_path), str(tmp_path / "cgroup")) is None
