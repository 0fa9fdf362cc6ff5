"""The request and the job to which a log record belongs, so that all records of one of them can be found."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar

#: The id of the request being handled; tasks and threads that the handler starts inherit the id.  Empty: none.
REQUEST: ContextVar[str] = ContextVar("request", default="")
_JOB = re.compile(r"\bjob %[ds]")
_PLACE = re.compile(r"%[^%a-zA-Z]*[a-zA-Z]")


class Correlated(logging.Filter):
    """Lets all records through, with ``request`` ("": none), its printed form ``of_request``, and ``job``."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; always return True."""
        request = REQUEST.get()
        of_request = f" (request {request})" if request else ""
        vars(record).update(request=request, of_request=of_request, job=job_of(record))
        return True


def job_of(record: logging.LogRecord) -> int | None:
    """Return the number behind ``job %d`` in a message of the code; text from users is never searched."""
    found = _JOB.search(record.msg) if isinstance(record.msg, str) else None
    if found is None or not isinstance(record.args, tuple):
        return None
    place = len(_PLACE.findall(record.msg[: found.start()].replace("%%", "")))
    number = record.args[place] if place < len(record.args) else None
    return number if isinstance(number, int) else None
