"""Which processes count as alive, and when `end` returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.shims.orphans import Orphans
from carpool.protocol.paths import Home

WITHOUT_ITS_MAIN_THREAD = """
import ctypes, threading
def rest():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print("rests", flush=True)
    threading.Event().wait()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_ITS_MAIN_THREAD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"rests\n"
        orphans = Orphans(DirectPrivileges(Home(tmp_path)), Home(tmp_path), JobId(1), os.getuid(), holder=process.pid)
        assert orphans.pids() == [process.pid]
        orphans.end()
        assert process.poll() == -signal.SIGKILL
        assert orphans.pids() == []
