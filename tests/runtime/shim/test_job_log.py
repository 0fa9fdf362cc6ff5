"""A job's log has a limit: its oldest part goes, offsets stay, and what the job writes is not disturbed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.daemon.jobs.files import kept_from, next_piece
from carpool.runtime.shim import streams
from carpool.runtime.shim.streams import JobLog

LIMIT = 64 << 10
LINE = b"%08d a line of the job\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobLog]:
    monkeypatch.setattr(streams, "LOOK_S", 0.0)
    made = JobLog(str(path), LIMIT)
    yield made
    made.close()


def write(path: Path, lines: range) -> int:
    """As the job does; returns the size of the log."""
    with path.open("ab") as file:
        file.writelines(LINE % number for number in lines)
    return path.stat().st_size


def kept(path: Path, offset: int = 0) -> tuple[int, bytes]:
    """Where the log begins from an offset on, and all that is there."""
    with path.open("rb") as file:
        first, piece = next_piece(file.fileno(), offset)
        found, at = piece, first + len(piece)
        while piece:
            at, piece = next_piece(file.fileno(), at)
            found += piece
            at += len(piece)
    return first, found


def test_a_short_log_is_left_alone(log: JobLog, path: Path) -> None:
    size = write(path, range(1000))
    log.look()
    assert kept(path) == (0, b"".join(LINE % number for number in range(1000))) and size < LIMIT


def test_of_a_long_log_the_end_is_kept(log: JobLog, path: Path) -> None:
    whole = b"".join(LINE % number for number in range(50_000))
    for first in range(0, 50_000, 5_000):
        size = write(path, range(first, first + 5_000))
        log.look()
        assert path.stat().st_blocks * 512 <= LIMIT + 4096
    assert path.stat().st_size == size == len(whole), "offsets count what is gone, too"
    begin, found = kept(path)
    mark, newline, rest = found.partition(b"\n")
    assert mark.decode() == streams.LIMIT_MARK.format(begin, LIMIT).rstrip("\n")
    assert LIMIT // 2 <= len(found) <= LIMIT and b"\0" not in found
    assert rest == whole[begin + len(mark + newline) :]
    assert kept(path, size - len(LINE % 0)) == (size - len(LINE % 0), LINE % 49_999)
    assert kept(path, 5) == (begin, found) and kept(path, size + 5) == (size + 5, b"")


def test_a_log_that_the_job_has_cut_begins_anew(log: JobLog, path: Path) -> None:
    write(path, range(10_000))
    log.look()
    os.truncate(path, 0)
    log.look()
    write(path, range(3))
    log.look()
    assert kept(path) == (0, b"".join(LINE % number for number in range(3)))


def test_it_looks_once_in_a_while_and_at_the_end(path: Path) -> None:
    made = JobLog(str(path), LIMIT)
    made.look()
    write(path, range(10_000))
    made.look()
    assert kept(path)[0] == 0, "it has just looked"
    made.close()
    assert kept(path)[0] > 0


def test_where_nothing_can_be_deleted_nothing_is(log: JobLog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_punch", lambda fd, end: False)
    write(path, range(10_000))
    log.look()
    assert kept(path) == (0, b"".join(LINE % number for number in range(10_000)))


def test_a_piece_that_is_deleted_while_it_is_read_is_read_again(
    log: JobLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, range(10_000))
    pread = os.pread

    def slow(fd: int, size: int, offset: int) -> bytes:
        log.look()
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", slow)
    with path.open("rb") as file:
        begin, piece = next_piece(file.fileno(), 0)
        assert begin == kept_from(file.fileno(), 0) > 0 and piece.startswith(b"[carpool: ")


def test_a_link_in_the_place_of_the_log_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        JobLog(str(path), LIMIT)
    assert not (tmp_path / "elsewhere").exists()
