"""Users of a daemon, whose jobs speak its protocol themselves (`raw.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from carpool.protocol.seat import (
    BOARD_BYTES,
    CHUNK,
    FIELDS,
    HEADER_BYTES,
    IN_STORE,
    PROTOCOL,
    SEAT_BYTES,
    SEATS,
    Leave,
    PacketType,
)
from tests.daemon.daemon_harness import NOBODY, Daemon, as_nobody

ATTACKER = NOBODY
SECRET = "SECRET-of-another-user!!"  # as in `raw.py`
PYTHONS = (sys.executable, "/usr/bin/python3")
RAW_PROTOCOL = json.dumps(
    {
        "version": PROTOCOL,
        "fields": FIELDS,
        "packets": {kind.name: kind.value for kind in PacketType},
        "board_bytes": BOARD_BYTES,
        "header_bytes": HEADER_BYTES,
        "seat_bytes": SEAT_BYTES,
        "seats": SEATS,
        "chunk": CHUNK,
        "in_store": IN_STORE,
        "left": Leave.LEFT.value,
    }
)


def python_of_users() -> str:
    """An interpreter that other users may start.  Raises LookupError.  For root."""
    for path in PYTHONS:
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([path, "-I", "-c", ""], user=ATTACKER, group=ATTACKER, extra_groups=[], cwd="/", check=True)
            return path
    raise LookupError(f"other users may start none of {', '.join(PYTHONS)}")


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter that other users may start."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    try:
        return python_of_users()
    except LookupError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class User:
    """One user of the daemon."""

    daemon: Daemon
    uid: int
    python: str
    program: Path

    def start(self, mode: str, *arguments: object, **fields: object) -> int:
        """A job of the user's, as soon as it has said that it is ready.  ``fields`` of the submission, too."""
        job = self.submit(mode, *arguments, **fields)
        self.daemon.until_line(job, "ready")
        return job

    def submit(self, mode: str, *arguments: object, **fields: object) -> int:
        """The same, without waiting."""
        argv = ["env", "LD_PRELOAD=", self.python, "-I", str(self.program), mode, *map(str, arguments)]
        env = {"RAW_PROTOCOL": RAW_PROTOCOL, "PATH": "/usr/bin:/bin"} | ({"TOKEN": SECRET} if mode == "hold" else {})
        job: int = as_nobody(
            self.daemon, f"daemon.submit(*{argv!r}, **{fields | {'env': env, 'cwd': '/'}!r})", self.uid
        )
        return job

    def end(self, job: int) -> str:
        """What the job says in the end."""
        self.daemon.cancel_unless_ended(job)
        self.daemon.wait(job)
        return self.daemon.output(job).splitlines()[-1]
