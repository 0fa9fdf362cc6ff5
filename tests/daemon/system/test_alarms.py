"""Calls of others' code have a limit, and so has the daemon's end.  In processes of their own: the alarm is one."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import re, time
from carpool.core.policies.registry import PolicyTimeout
from carpool.daemon.system.alarms import AlarmLimit
limit = AlarmLimit(0.05)
def loop():
    while True: pass
def stubborn():
    for _ in range(3):
        try: loop()
        except BaseException: pass
    loop()
def call(ask):
    try: return limit(ask)
    except PolicyTimeout as timeout: return timeout
"""


def said(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", PROGRAM + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("ask", ["loop", "stubborn", "lambda: time.sleep(60)", "lambda: re.match('(a+)+b', 'a' * 40)"])
def test_what_takes_too_long_is_interrupted(ask: str) -> None:
    assert said(f"print(call({ask}))") == "took longer than 0.05 s"


def test_answers_and_errors_come_through() -> None:
    patient = "limit = AlarmLimit(60)\n"  # a busy machine may keep this process from its CPU
    assert said(patient + "print(call(lambda: 7))") == "7"
    assert said(patient + "try: call(lambda: 1 / 0)\nexcept ZeroDivisionError: print('divided')") == "divided"


def test_what_comes_afterwards_has_its_time() -> None:
    """Also where the alarm rings in the very moment in which the call ends."""
    code = (
        "limit = AlarmLimit(0.0001)\n"
        "for _ in range(3000): call(lambda: sum(range(2000)))\n"
        "time.sleep(0.2); print('slept')"
    )
    assert said(code) == "slept"


# The daemon's end has a limit, whatever hangs, and policies do not lift it


HANGS = """
import threading
from carpool.daemon.system.alarms import AlarmLimit
from carpool.daemon.system.alarms import limit_end
policy = AlarmLimit(60)
held = threading.Lock()
held.acquire()
"""


@pytest.mark.parametrize(
    "code",
    [
        "limit_end(0.05); held.acquire()",
        "limit_end(0.05); limit_end(60); policy(int); held.acquire()",
        "policy(lambda: limit_end(0.05)); held.acquire()",
        "limit_end(0.05); policy(held.acquire)",
    ],
    ids=["a lock", "asked again", "armed in a call", "a policy that hangs"],
)
def test_a_process_that_hangs_at_its_end_is_ended(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", HANGS + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGALRM
    assert "(most recent call first)" in done.stderr and '"<string>"' in done.stderr, "it says where it was"
