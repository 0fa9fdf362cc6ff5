"""Environment variables of jobs, of processes that join, and of requests.  Standard library only.

By its id a request is found again in the daemon's log, in answers, and in the environment of its jobs.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

PARAMETER_PREFIX = "CARPOOL_PARAM_"
#: The directory of the Python function that a job runs (`carpool.tasks`).
TASK = "CARPOOL_TASK"


def parameter_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return a variable for each parameter.

    >>> parameter_variables({"lr": "0.1"})
    {'CARPOOL_PARAM_LR': '0.1'}
    """
    return {PARAMETER_PREFIX + name.upper(): value for name, value in values.items()}


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


REQUEST_HEADER = "Carpool-Request"
REQUEST_VARIABLE = "CARPOOL_REQUEST"
LONGEST_REQUEST = 64
REQUEST_FORM = f"it must have 1 to {LONGEST_REQUEST} characters of 0-9, A-Z, a-z, dot, underscore and hyphen"
_REQUEST = re.compile(rf"[0-9A-Za-z._-]{{1,{LONGEST_REQUEST}}}", re.ASCII)


def is_request_id(text: str) -> bool:
    """Whether the text has the form of a request id.

    >>> is_request_id("build-17.a"), is_request_id("two words"), is_request_id("")
    (True, False, False)
    """
    return _REQUEST.fullmatch(text) is not None


def new_request_id() -> str:
    """Return a random id of 16 hexadecimal digits."""
    return os.urandom(8).hex()


def own_request_id() -> str:
    """Return the id of all requests of this process: CARPOOL_REQUEST, not checked here, else one that is made once."""
    return os.environ.get(REQUEST_VARIABLE) or _made()


@functools.cache
def _made() -> str:
    return new_request_id()
