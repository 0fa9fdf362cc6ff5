"""Whether a job that has failed ran out of device memory: what its runtime said, and the end of its log.

Only messages of the frameworks themselves count, at the beginning of a line, as the last error of a log.  A program
that speaks of memory, or had an error of that kind earlier and went on, is left alone.
"""

from __future__ import annotations

import os
import re

from carpool.daemon.privileges.base import Privileges
from carpool.protocol.paths import JobFiles
from carpool.protocol.seat import OutOf

TAIL_BYTES = 16 * 1024
LAST_LINES = 20
SHOWN = 200

#: How each framework reports it, from the beginning of a line on.
MESSAGES = tuple(
    re.compile(pattern)
    for pattern in (
        r"torch\.OutOfMemoryError: (CUDA|HIP|XPU) out of memory\. Tried to allocate ",
        r"torch\.cuda\.OutOfMemoryError: (CUDA|HIP) out of memory\. Tried to allocate ",
        r"RuntimeError: CUDA out of memory\. Tried to allocate ",
        r"RuntimeError: CUDA error: out of memory$",
        r"torch\.AcceleratorError: CUDA error: out of memory$",
        r"RuntimeError: \[enforce fail at alloc_cpu\.cpp:\d+\] .*DefaultCPUAllocator: can't allocate memory: ",
        r"(\w+\.)*XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate ",
        r"(\w+\.)*JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate ",
        r"RESOURCE_EXHAUSTED: Out of memory while trying to allocate ",
        r"(\w+\.)*ResourceExhaustedError: .*OOM when allocating tensor",
        r"(\w+\.)*OutOfMemoryError: Out of memory allocating [\d,]+ bytes",  # CuPy
        r"(\w+\.)*CudaAPIError: .*CUDA_ERROR_OUT_OF_MEMORY",  # Numba
        r"cudaErrorMemoryAllocation\b",
        r"CUDA_ERROR_OUT_OF_MEMORY\b",
    )
)
#: A line with which another error of a Python program begins or ends.
_OTHER = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit|Group)\b|Traceback \(most recent call")


def ran_out(privileges: Privileges, said: int, files: JobFiles, owner: int) -> str | None:
    """What ran out, for people, or None.  ``said``: the word of its seat (`OutOf`)."""
    if said == OutOf.OTHER:  # whatever its log ends with
        return None
    message = in_log(privileges, files, owner)
    if message is not None:
        return message
    if said == OutOf.DEVICE:
        return "device memory"
    return "memory of its own process (MemoryError)" if said == OutOf.HEAP else None


def in_log(privileges: Privileges, files: JobFiles, owner: int) -> str | None:
    """The message with which its log ends, if it is one of `MESSAGES`."""
    try:
        with open(privileges.open_owned(files.log, owner), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return last_error(file.read(TAIL_BYTES).decode(errors="replace"))
    except OSError:
        return None


def last_error(text: str) -> str | None:
    """The message about memory that is the last error in the last lines of ``text``; None if another one is."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    for line in reversed([line for line in lines if line.strip()][-LAST_LINES:]):
        if any(message.match(line) for message in MESSAGES):
            return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."
        if _OTHER.match(line):
            return None
    return None
