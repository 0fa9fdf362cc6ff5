"""Damage of SQLite's write-ahead log: what was in the log and cannot be read any more.

SQLite takes the frames of the log up to the first one with a wrong checksum, and does not report those behind it.
After a crash that is right: the last transaction may be there in part.  Behind a damaged frame, though, there may be
transactions that were on the disk, and acknowledged.  A transaction has been flushed before the next one begins, so a
transaction is known to have been durable if the log has a frame of a later one; for the very last transaction that
cannot be known.

The format is that of https://sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from carpool.protocol.paths import open_regular

_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint, salt 1 and 2, checksum 1 and 2
_FRAME = struct.Struct(">6I")  # page, pages of the file after a commit or 0, salt 1 and 2, checksum 1 and 2
_MAGIC = 0x377F0682  # checksums of little-endian words; with the last bit set: of big-endian ones
_LEAST_PAGE, _USUAL_PAGE, _LARGEST_PAGE = 512, 4096, 65536
#: A log grows beyond a few MiB only while a reader keeps SQLite from emptying it.
LARGEST_CHECKED = 64 << 20
Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """``sound``: SQLite reads it; ``commits``: a transaction ends with it; ``current``: it is not of an older log."""

    sound: bool
    commits: bool
    current: bool


@dataclass(frozen=True, slots=True)
class WalDamage:
    """``transactions``: at least as many were on the disk and are not read; ``headless``: the header is damaged."""

    transactions: int
    headless: bool = False

    @property
    def text(self) -> str:
        """The damage, for people."""
        if self.headless:
            return "the header of the journal's write-ahead log is damaged: what was in the log may be lost"
        many = "1 transaction is" if self.transactions == 1 else f"{self.transactions} transactions are"
        return f"the journal's write-ahead log is damaged: at least {many} lost that had been written durably"


def wal_damage(path: Path) -> WalDamage | None:
    """Return the damage of the write-ahead log at ``path``; call before SQLite opens the journal.  Raises OSError."""
    if not path.exists() or path.stat().st_size > LARGEST_CHECKED:
        return None
    with open(open_regular(path), "rb") as file:
        head = file.read(_HEADER.size)
        headless = not _sound_header(head)
        frames = _frames_alone(file) if headless else _frames(file, head)
        lost = _lost_transactions(list(frames))
    return WalDamage(lost, headless) if lost else None


def _sound_header(head: bytes) -> bool:
    if len(head) < _HEADER.size:
        return False
    magic, _, page, _, _, _, *sums = _HEADER.unpack(head)
    sizes = _LEAST_PAGE <= page <= _LARGEST_PAGE and page & (page - 1) == 0
    return magic | 1 == _MAGIC | 1 and sizes and _checksum(head[:24], (0, 0), magic & 1) == tuple(sums)


def _frames(file: BinaryIO, head: bytes) -> Iterator[Frame]:
    """Yield all whole frames as SQLite reads them: after the first one that is not sound, no frame is sound."""
    magic, _, page, _, *salts = _HEADER.unpack(head)[:6]
    sums: Sums = _HEADER.unpack(head)[6:]
    sound = True
    while len(data := file.read(_FRAME.size + page)) == _FRAME.size + page:
        _, size, *rest = _FRAME.unpack(data[: _FRAME.size])
        current = rest[:2] == salts
        if sound:
            sums = _checksum(data[:8] + data[_FRAME.size :], sums, magic & 1)
            sound = current and sums == tuple(rest[2:])
        yield Frame(sound, size > 0, current)


def _frames_alone(file: BinaryIO) -> Iterator[Frame]:
    """Yield frames without the header that describes them; those of the first frame's log are current."""
    salts: list[int] | None = None
    while len(data := file.read(_FRAME.size + _USUAL_PAGE)) == _FRAME.size + _USUAL_PAGE:
        _, size, *rest = _FRAME.unpack(data[: _FRAME.size])
        salts = salts or rest[:2]
        yield Frame(False, size > 0, any(salts) and rest[:2] == salts)


def _lost_transactions(frames: list[Frame]) -> int:
    """Count the ends of transactions, behind the first damaged frame, that another transaction follows.

    A transaction that was given up has left no end there, or nothing follows it.
    """
    broken = next((place for place, frame in enumerate(frames) if not frame.sound), len(frames))
    behind = frames[broken:]
    last = max((place for place, frame in enumerate(behind) if frame.current), default=0)
    return sum(frame.commits for frame in behind[:last])


def _checksum(data: bytes, sums: Sums, big_endian: int) -> Sums:
    """Return the checksum of pairs of 32-bit words, beginning with ``sums``."""
    first, second = sums
    words = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
