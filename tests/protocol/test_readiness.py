"""Waiting for a descriptor with a large number."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from carpool.protocol.readiness import readable


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The end to read has a number that `select.select` refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    read_end, write_end = os.pipe()
    large = fcntl.fcntl(read_end, fcntl.F_DUPFD_CLOEXEC, 1024)
    yield large, write_end
    for fd in (large, read_end, write_end):
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_number_above_1023_is_like_any_other(pipe: tuple[int, int]) -> None:
    large, write_end = pipe
    assert not readable(large) and not readable(large, 0.001) and not readable(large, -1.0)
    os.write(write_end, b"x")
    assert readable(large) and readable(large, None)
