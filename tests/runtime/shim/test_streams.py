"""What of a user's file is kept in the log: the end of what this attempt wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carpool.runtime.shim.streams import Streams


def kept(tmp_path: Path, before: bytes, *, first: bool, written: bytes) -> bytes:
    """``before``: by an earlier attempt."""
    own, log = tmp_path / "own", tmp_path / "log"
    own.write_bytes(before)
    streams = Streams(str(log), str(own), None, first=first)
    if (child := os.fork()) == 0:
        try:
            streams.take_over()
            os.write(1, written)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    streams.keep_end()
    return log.read_bytes().split(b"]\n", 1)[1]


@pytest.mark.parametrize("written", [b"", b"exit 3\n"])
def test_the_end_of_another_attempt_is_not_kept(tmp_path: Path, written: bytes) -> None:
    assert kept(tmp_path, b"out of memory\n", first=False, written=written) == written


def test_the_first_attempt_begins_the_file_anew(tmp_path: Path) -> None:
    assert kept(tmp_path, b"of another job\n", first=True, written=b"new\n") == b"new\n"


def test_a_file_that_was_cut_meanwhile_counts_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(b"long ago, and long\n")
    streams = Streams(str(tmp_path / "log"), str(own), None, first=False)
    own.write_bytes(b"new\n")
    streams.keep_end()
    assert (tmp_path / "log").read_bytes().endswith(b"]\nnew\n")
