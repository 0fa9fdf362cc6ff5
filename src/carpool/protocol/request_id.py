"""The id by which a request is found again in the daemon's log, in answers, and in the environment of its jobs.

Standard library only.
"""

from __future__ import annotations

import functools
import os
import re

REQUEST_HEADER = "Carpool-Request"
VARIABLE = "CARPOOL_REQUEST"
LONGEST = 64
FORM = f"it must have 1 to {LONGEST} characters of 0-9, A-Z, a-z, dot, underscore and hyphen"
_FORM = re.compile(rf"[0-9A-Za-z._-]{{1,{LONGEST}}}", re.ASCII)


def is_request_id(text: str) -> bool:
    """Whether the text has the form of a request id.

    >>> is_request_id("build-17.a"), is_request_id("two words"), is_request_id("")
    (True, False, False)
    """
    return _FORM.fullmatch(text) is not None


def new_request_id() -> str:
    """Return a random id of 16 hexadecimal digits."""
    return os.urandom(8).hex()


def own_request_id() -> str:
    """Return the id of all requests of this process: CARPOOL_REQUEST, not checked here, else one that is made once."""
    return os.environ.get(VARIABLE) or _made()


@functools.cache
def _made() -> str:
    return new_request_id()
