"""What a check starts is over in time, whatever it is and wherever it hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.gpu_check import runner
from tools.gpu_check.registry import Check, Needs

#: A process that no longer belongs to its parent's session, has no parent, and keeps the output open.
ORPHAN = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(f"{os.getpid()} {os.environ['TMPDIR']}")
        time.sleep(600)
    os._exit(0)
os.wait()
"""
#: In a process of its own: this one is not to adopt orphans, and to end processes of other tests.
RUN = """
import os, sys, time
from tools.gpu_check import apart

def in_time(process, limit_s):
    while not os.path.getsize({begun}):
        time.sleep(0.01)
    return counted(process, limit_s)

counted, apart._status = apart._status, in_time
print(apart.run(sys.argv[2:], float(sys.argv[1])))
"""


#: What the code writes to when it begins: its file, or standard error.
FILE, ERRORS = "sys.argv[-1]", "f'/proc/{process.pid}/fd/2'"


def ended(limit_s: float, code: str, where: Path, begun: str = FILE) -> str:
    """How the code has, as text.  Its time begins when it has written something: a busy machine starts it late."""
    where.touch()
    run = RUN.replace("{begun}", begun)
    command = [sys.executable, "-c", run, str(limit_s), sys.executable, "-c", code, str(where)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(("then", "limit_s", "status"), [("", 20, 0), ("time.sleep(600)", 0.5, None)])
def test_nothing_of_it_is_left(tmp_path: Path, then: str, limit_s: float, status: int | None) -> None:
    where = tmp_path / "orphan"
    waits = "while not os.path.getsize(sys.argv[1]): pass"
    assert f"status={status}," in ended(limit_s, f"{ORPHAN}\n{waits}\n{then}", where)
    pid, scratch = where.read_text().split()
    assert not Path("/proc", pid).exists()
    assert not Path(scratch).exists()


def check(function: Callable[[], None]) -> Check:
    return Check("name", "title", Needs.DRIVER, function, measures=False)


def test_a_check_that_waits_too_long_says_for_what() -> None:
    def waits() -> None:
        time.sleep(30)

    result = runner.run_here(check(waits), 0.2)
    assert (result.outcome, result.text) == (runner.FAILED, "it was not through after 0 s")
    assert "time.sleep(30)" in result.details
    assert result.seconds < 30


#: In a call that neither returns nor lets Python run its signal handlers: a mutex is locked twice.
KEPT = """
import ctypes, sys
from tools.gpu_check import runner
from tests.gpu_check.test_apart import check
runner.GRACE_S = 0.2
def kept_by_the_driver():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)
runner.run_here(check(kept_by_the_driver), 0.1)
"""


def test_a_check_that_the_driver_keeps_says_where(tmp_path: Path) -> None:
    said = ended(0.5, KEPT, tmp_path / "unused", ERRORS)
    assert "status=None," in said
    assert "in kept_by_the_driver" in said
