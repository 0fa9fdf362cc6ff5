"""Of which request and which job a record of the log is: for those who look for everything about one of them."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar

#: The id of the request that is handled; tasks and threads that the handler starts inherit it.  Empty: none.
REQUEST: ContextVar[str] = ContextVar("request", default="")
_JOB = re.compile(r"\bjob %[ds]")
_PLACE = re.compile(r"%[^%a-zA-Z]*[a-zA-Z]")


class Correlated(logging.Filter):
    """Lets all records through, with ``request`` ("": none), the same ``of_request`` for people, and ``job``."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        request = REQUEST.get()
        of_request = f" (request {request})" if request else ""
        vars(record).update(request=request, of_request=of_request, job=job_of(record))
        return True


def job_of(record: logging.LogRecord) -> int | None:
    """The number behind ``job %d`` in the text of the code, never in a text of a user."""
    found = _JOB.search(record.msg) if isinstance(record.msg, str) else None
    if found is None or not isinstance(record.args, tuple):
        return None
    place = len(_PLACE.findall(record.msg[: found.start()].replace("%%", "")))
    number = record.args[place] if place < len(record.args) else None
    return number if isinstance(number, int) else None
