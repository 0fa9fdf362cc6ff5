"""What the main process of a job begins with, and whom the kernel chooses where host memory is missing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.runtime.shim.child import Program, spawn
from carpool.runtime.shim.oom_score import OomScore, kill_counter, kills_in_group
from carpool.runtime.shim.streams import Streams

SAYS = "ulimit -S -n; ulimit -H -n; ulimit -c; grep -E '^Sig(Blk|Ign)' /proc/self/status"

#: Signals 32 and 33, which no program may change: whoever started the tests may have ignored them.
OF_THE_C_LIBRARY = 3 << 31


def test_limits_of_the_user_and_no_signals_of_the_daemon(tmp_path: Path) -> None:
    """The shim itself has other limits: it keeps the job's descriptors."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    job_fd, log = os.dup(0), tmp_path / "log"
    least, most = job_fd + 64, job_fd + 80  # this process has many open after other tests
    try:
        streams = Streams(str(log), None, None, first=True)
        pid = spawn(
            Program(["sh", "-c", SAYS], "/", dict(os.environ)),
            job_fd,
            streams,
            cores=False,
            limits={resource.RLIMIT_NOFILE: (least, most)},
        )
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR1, before)
        os.close(job_fd)
    soft, hard, core, *signals = log.read_text().splitlines()
    assert (soft, hard, core) == (str(least), str(most), "0"), "cores have less than a block"
    assert [int(line.split()[1], 16) & ~OF_THE_C_LIBRARY for line in signals] == [0, 0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > least


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


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program"])
def test_a_program_that_is_missing_is_named_as_the_user_did(name: str) -> None:
    with pytest.raises(OSError, match=rf"^cannot start {name}: No such file or directory$"):
        spawn(Program([name], "/", {"PATH": "/usr/bin:/bin"}), 0, None)


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
