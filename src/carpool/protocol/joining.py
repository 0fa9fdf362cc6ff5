"""The environment variables by which a process joins Carpool (``carpool env`` prints them)."""

from __future__ import annotations

import hashlib
from pathlib import Path

#: The path of the session socket; the process's options, as JSON (`carpool.protocol.session.JoinOptions`).
JOIN, OPTIONS, TOKEN = "CARPOOL_JOIN", "CARPOOL_JOIN_OPTIONS", "CARPOOL_JOIN_TOKEN"
VARIABLES = (JOIN, OPTIONS, TOKEN)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def token(home: Path) -> str:
    """Return a token of one daemon's home on this machine, valid until the machine restarts.

    It identifies variables that come from another machine: batch systems carry the environment of a submission to other
    machines, where the same path may be another daemon's.  The token is no secret.
    """
    text = f"{_BOOT_ID.read_text().strip()} {home.resolve()}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
