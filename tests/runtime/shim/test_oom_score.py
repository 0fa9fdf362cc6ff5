"""The value by which the kernel chooses whom to kill: raised for children, and where it may be, for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from carpool.runtime.shim.oom_score import OomScore

SOURCE = Path(__file__).resolve().parents[3] / "src"
#: What a process of its own says: its value, that of a child, and again its own.
ITSELF = f"""
import subprocess, sys
sys.path.insert(0, {str(SOURCE)!r})
from carpool.runtime.shim.oom_score import OomScore
def show():
    print(open("/proc/self/oom_score_adj").read().strip())
def child():
    subprocess.run(["cat", "/proc/self/oom_score_adj"], check=True, stdout=sys.stdout)
score = OomScore()
score.raise_to(int(sys.argv[1]))
show()
sys.stdout.flush()
with score.raised_for_children(int(sys.argv[2])):
    child()
show()
score.close()
score.raise_to(1000)
show()
"""


def values(least: int, children: int) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", ITSELF, str(least), str(children)], stdout=subprocess.PIPE, text=True, check=True
    )
    return list(map(int, done.stdout.split()))


def test_children_have_more_and_the_process_has_what_it_had() -> None:
    assert values(600, 700) == [600, 700, 600, 600]


def test_nothing_is_lowered() -> None:
    assert values(600, 500) == [600, 600, 600, 600]


def test_where_there_is_no_such_file_nothing_happens(tmp_path: Path) -> None:
    score = OomScore(str(tmp_path / "none"))
    score.raise_to(1)
    with score.raised_for_children(2):
        pass
    score.close()
    assert list(tmp_path.iterdir()) == []
