"""Standard output and error of this process, and of libraries in it, to /dev/null for a while."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced() -> Iterator[None]:
    """Redirect the descriptors, not only Python's files: the profiler writes to the descriptors themselves."""
    sys.stdout.flush(), sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        yield
    finally:
        for descriptor, target in zip(kept, (1, 2), strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.close(nowhere)
