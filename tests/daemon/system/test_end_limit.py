"""The daemon's end has a limit, whatever hangs, and policies do not lift it.  In processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
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
    done = subprocess.run([sys.executable, "-c", PROGRAM + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGALRM
    assert "(most recent call first)" in done.stderr and '"<string>"' in done.stderr, "it says where it was"
