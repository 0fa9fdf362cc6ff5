"""A daemon that does not come back from a call is ended from outside, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from carpool.core.model import Settings
from carpool.daemon.config.policy_calls import PolicyCalls

#: Loops of the interpreter in C, which no signal handler interrupts.
FOR_EVER = "collections.deque(itertools.repeat(None), maxlen=0)"
PROGRAM = """
import collections, itertools, signal, sys, time
from pathlib import Path
from carpool.daemon.config.policy_calls import PolicyCalls
from carpool.daemon.system.call_limit import AlarmLimit
calls = PolicyCalls(Path(sys.argv[1]), look_s=0.02)
limit = AlarmLimit(float(sys.argv[2]), calls)
"""


def run(code: str, path: Path, limit_s: float = 0.1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + code, str(path), str(limit_s)],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def hung(path: Path) -> bool:
    calls = PolicyCalls(path)
    calls.close()
    return calls.never_returned


def test_a_call_that_never_returns_ends_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "policy-calls"
    assert run(f"limit(lambda: {FOR_EVER})", path).returncode == -9
    assert hung(path)


def test_many_calls_and_none_are_no_reason(tmp_path: Path) -> None:
    """For longer than the watcher's patience."""
    path = tmp_path / "policy-calls"
    many = "end = time.monotonic() + 1.2\nwhile time.monotonic() < end: limit(lambda: time.sleep(0.001))\n"
    done = run(many + "time.sleep(1)\ncalls.close()\nprint('closed')", path, 30.0)
    assert done.stdout == "closed\n", done.stderr
    assert not hung(path)


def test_a_daemon_without_policies_of_others_has_no_process_outside(tmp_path: Path) -> None:
    done = run("import os; print(os.path.exists(f'/proc/self/task/{os.getpid()}/children') and "
               "open(f'/proc/self/task/{os.getpid()}/children').read())", tmp_path / "policy-calls")  # fmt: skip
    assert done.stdout == "\n", done.stderr


def test_the_next_daemon_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "policy-calls"
    run(f"limit(lambda: {FOR_EVER})", path)
    calls = PolicyCalls(path)
    calls.replaced(Settings(policy="mine.py:Mine"), Settings())
    calls.close()
    assert calls.fault is not None and calls.fault.startswith("mine.py:Mine did not return from a call")
    assert not hung(path)
