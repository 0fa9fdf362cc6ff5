"""What a shared library asks of others, read from the file itself: a user's machine may have no binutils.

64-bit little-endian ELF with section headers, which is what Linux wheels consist of.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

DYNAMIC, VERSION_NEEDS, VERSION_OF_SYMBOL, DYNAMIC_SYMBOLS = 6, 0x6FFFFFFE, 0x6FFFFFFF, 11  # sh_type
NEEDED, SONAME = 1, 14  # d_tag
HIDDEN = 0x8000  # a flag beside the version's number


@dataclass(frozen=True, order=True)
class Import:
    """A symbol that a library leaves undefined; library and version are "" where it names neither."""

    name: str
    library: str = ""
    version: str = ""


@dataclass(frozen=True)
class Section:
    kind: int
    offset: int
    size: int
    link: int


class SharedLibrary:
    """An ELF file.  Raises ValueError for anything else."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._bytes[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")

    @cached_property
    def _sections(self) -> list[Section]:
        start, size, count = *self._read("<Q", 40), *self._read("<HH", 58)
        headers = (self._read("<IIQQQQII", start + i * size) for i in range(count))
        return [Section(kind, offset, length, link) for _, kind, _, _, offset, length, link, _ in headers]

    def _read(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self._bytes, offset)

    def _of_kind(self, kind: int) -> Section:
        return next((section for section in self._sections if section.kind == kind), Section(kind, 0, 0, 0))

    def _text(self, section: Section, offset: int) -> str:
        start = self._sections[section.link].offset + offset
        return self._bytes[start : self._bytes.find(b"\0", start)].decode()

    def _dynamic(self, wanted: int) -> list[str]:
        section = self._of_kind(DYNAMIC)
        pairs = (self._read("<QQ", section.offset + at) for at in range(0, section.size, 16))
        return [self._text(section, value) for tag, value in pairs if tag == wanted]

    @property
    def needed(self) -> list[str]:
        """SONAMEs of the libraries that must be loaded with this one."""
        return self._dynamic(NEEDED)

    @property
    def soname(self) -> str:
        return next(iter(self._dynamic(SONAME)), "")

    def _versions(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """(number, (library, version node)) for every version that this library asks for."""
        section = self._of_kind(VERSION_NEEDS)
        at, more = section.offset, section.size
        while more:
            _, count, file, first, more = self._read("<HHIII", at)
            entry = at + first
            for _ in range(count):
                _, _, number, name, following = self._read("<IHHII", entry)
                yield number, (self._text(section, file), self._text(section, name))
                entry += following
            at += more

    @property
    def imports(self) -> list[Import]:
        """The symbols that this library leaves to others."""
        versions = dict(self._versions())
        symbols, numbers = self._of_kind(DYNAMIC_SYMBOLS), self._of_kind(VERSION_OF_SYMBOL)
        found = []
        for i in range(1, symbols.size // 24):
            name, _, _, defined = self._read("<IBBH", symbols.offset + i * 24)
            if not defined:
                number = self._read("<H", numbers.offset + i * 2)[0] & ~HIDDEN if numbers.size else 0
                found.append(Import(self._text(symbols, name), *versions.get(number, ("", ""))))
        return found
