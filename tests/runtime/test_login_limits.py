"""Which lines of limits.conf(5) are about a user, and which one counts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.runtime.user_process import login_limits

UID, GID = 64001, 64003  # of nobody who has an account
NAME, GROUP = "daemon", "daemon"  # an account of every system, with the numbers 1 and 1
FILES, PROCESSES = resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC
SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("* - nproc 50", {PROCESSES: (50, 50)}),
        ("# * - nproc 50\nsomebody - nproc 50\n* - maxlogins 4\n* - nproc many\n* - nproc", {}),
        (f"{NAME} hard memlock 64\n{NAME} soft memlock 32", {resource.RLIMIT_MEMLOCK: (32 << 10, 64 << 10)}),
        ("* - cpu 2\n* - nofile 100", {resource.RLIMIT_CPU: (120, 120), FILES: (100, 100)}),
        (f"{NAME} - nproc 5\n@{GROUP} - nproc 6\n* - nproc 7", {PROCESSES: (5, 5)}),
        (f"@{GROUP} - nproc 6\n* - nproc 7", {PROCESSES: (6, 6)}),
        ("* - nproc 6\n* - nproc 7", {PROCESSES: (7, 7)}),
        ("1:1 - nproc 8\n2: - nproc 9\n@:1 - nproc 10", {PROCESSES: (8, 8)}),
        ("* soft nproc 70\n* hard nproc 60", {PROCESSES: (60, 60)}),
        (f"* - nproc 7\n{NAME} -", {}),
        ("* - nice -5", {resource.RLIMIT_NICE: (25, 25)}),
    ],
)
def test_lines(tmp_path: Path, lines: str, expected: dict[int, tuple[int, int]]) -> None:
    (tmp_path / "limits.conf").write_text(lines)
    assert login_limits(1, [1], str(tmp_path)) == expected


def test_later_files_count_more_and_others_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "limits.conf").write_text("* - nproc 1")
    (tmp_path / "limits.d").mkdir()
    for name, number in (("20.conf", 3), ("10.conf", 2), ("30.conf.old", 4)):
        (tmp_path / "limits.d" / name).write_text(f"* - nproc {number}")
    assert login_limits(UID, [GID], str(tmp_path)) == {PROCESSES: (3, 3)}
    assert login_limits(UID, [GID], str(tmp_path / "none")) == {}


def _raises_limits() -> bool:
    code = "import resource as r; r.setrlimit(7, (9, 9)); r.setrlimit(7, (10, 10))"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_hard_limits_that_may_not_be_raised_bound_the_others() -> None:
    code = f"""
import resource, sys
sys.path.insert(0, {str(SOURCE)!r})
from carpool.runtime.user_process import apply_limits
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
apply_limits({{resource.RLIMIT_NOFILE: (150, 100000)}})
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "150\n"


@pytest.mark.skipif(os.geteuid() != 0 or not _raises_limits(), reason="needs CAP_SYS_RESOURCE to raise hard limits")
def test_a_user_gets_more_than_whoever_started_the_daemon() -> None:
    """The process that stays between keeps its own soft limits."""
    code = f"""
import os, resource, sys
sys.path.insert(0, {str(SOURCE)!r})
from carpool.runtime.user_process import apply_limits, raise_hard_limits
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
limits = {{resource.RLIMIT_NOFILE: (1000, 2000), resource.RLIMIT_NPROC: (50, 60)}}
raise_hard_limits(limits)
os.setresuid({UID}, {UID}, {UID})
print(resource.getrlimit(resource.RLIMIT_NOFILE))
apply_limits(limits)
print(*map(resource.getrlimit, limits))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["(200, 2000)", "(1000, 2000) (50, 60)"]
