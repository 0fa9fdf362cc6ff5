"""Whether a failed job ran out of device memory, judged by what its runtime reported and by the end of its log.

Only messages of the frameworks themselves count, at the beginning of a line, as the last error of a log.  A program
that writes about memory, or had such an error earlier and went on, does not count as out of memory.
"""

from __future__ import annotations

import os
import re

from carpool.daemon.privileges.base import Privileges
from carpool.protocol.paths import JobFiles
from carpool.protocol.seat import OutOf
from carpool.protocol.units import format_size

TAIL_BYTES = 16 * 1024
LAST_LINES = 20
SHOWN = 80  # characters of a message that does not say how much memory was requested

#: How each framework reports that memory ran out, from the beginning of a line on.
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
#: The requested size; the rest of such messages is figures and advice for a device without Carpool.
_WANTED = re.compile(r"(?:to allocate|allocating) ([\d.,]+ ?(?:[KMGT]i?B|bytes)\b)")
_CLASS = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception): ")
#: A line with which another error of a Python program begins or ends.
_OTHER = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit|Group)\b|Traceback \(most recent call")


def ran_out(privileges: Privileges, said: int, files: JobFiles, owner: int) -> str | None:
    """Return what ran out, as text for users, or None.  ``said``: the word of the job's seat (`OutOf`)."""
    if said == OutOf.OTHER:  # however its log ends
        return None
    message = in_log(privileges, files, owner)
    if message is not None:
        return message
    if said == OutOf.DEVICE:
        return "device memory"
    return "memory of its own process (MemoryError)" if said == OutOf.HEAP else None


def in_log(privileges: Privileges, files: JobFiles, owner: int) -> str | None:
    """Return what ran out by the message that the job's log ends with; None unless it is one of `MESSAGES`."""
    try:
        with open(privileges.open_owned(files.log, owner), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return last_error(file.read(TAIL_BYTES).decode(errors="replace"))
    except OSError:
        return None


def last_error(text: str) -> str | None:
    """Return what ran out by the last error in the last lines of ``text``; None if that error is not about memory."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    for line in reversed([line for line in lines if line.strip()][-LAST_LINES:]):
        if any(message.match(line) for message in MESSAGES):
            return _in_short(line)
        if _OTHER.match(line):
            return None
    return None


def _in_short(message: str) -> str:
    """Return a framework's message without its class and without the text after the first sentence.

    >>> _in_short("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity")
    'it tried to allocate 2.00 GiB'
    """
    if wanted := _WANTED.search(message):
        return f"it tried to allocate {_size(wanted[1])}"
    text = _CLASS.sub("", message, count=1).partition(". ")[0]
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _size(text: str) -> str:
    """Format a size given in bytes with a unit; a size that has a unit stays as it is."""
    number = text.removesuffix("bytes").replace(",", "").strip()
    return format_size(int(number)) if number.isdecimal() else text
