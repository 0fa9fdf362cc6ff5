"""What the header and the program headers of a program say about the libraries that can be loaded into it.

Source: System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; elf(5).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

MAGIC = b"\x7fELF"
_IDENT = 16
_BITS_64, _LITTLE = 2, 1
_EXECUTABLE, _SHARED = 2, 3  # ET_EXEC, ET_DYN
_DYNAMIC, _INTERPRETER = 2, 3  # PT_DYNAMIC, PT_INTERP
_END, _NAME = 0, 14  # DT_NULL, DT_SONAME
_MOST_HEADERS = 256
_MOST_DYNAMIC = 1 << 16


class OddFile(Exception):
    """Nothing that the kernel would run, or that we understand; the text says why."""


@dataclass(frozen=True, slots=True)
class ElfMachine:
    """What a program and its libraries must have in common; the numbers are those of the header."""

    bits: int  # EI_CLASS
    order: int  # EI_DATA
    number: int  # e_machine


@dataclass(frozen=True, slots=True)
class Program:
    """What the headers of an ELF file say of how it is loaded."""

    machine: ElfMachine
    asks_for_loader: bool  # names a dynamic loader, which loads libraries into it
    is_library: bool  # has a library's name (SONAME); without a loader it is one itself


@dataclass(frozen=True, slots=True)
class _Layout:
    """`struct` formats of what follows the identification, of a program header, and of a dynamic entry."""

    header: struct.Struct
    segment: struct.Struct
    dynamic: struct.Struct
    offset_at: int  # index of a program header's p_offset; p_filesz comes three later

    @classmethod
    def of(cls, bits: int, order: int) -> _Layout:
        sign = "<" if order == _LITTLE else ">"
        formats = ("HHIQQQIHHH", "IIQQQQQQ", "qQ") if bits == _BITS_64 else ("HHIIIIIHHH", "IIIIIIII", "iI")
        header, segment, dynamic = (struct.Struct(sign + each) for each in formats)
        return cls(header, segment, dynamic, offset_at=2 if bits == _BITS_64 else 1)


def read_program(fd: int) -> Program:
    """Of a regular file that is open for reading.  Raises OddFile, OSError."""
    ident = _read(fd, 0, _IDENT)
    if not ident.startswith(MAGIC) or ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise OddFile("it is no ELF file")
    layout = _Layout.of(ident[4], ident[5])
    fields = layout.header.unpack(_read(fd, _IDENT, layout.header.size))
    kind, machine, offset, size, count = fields[0], fields[1], fields[4], fields[8], fields[9]
    if kind not in (_EXECUTABLE, _SHARED) or size != layout.segment.size or not 0 < count <= _MOST_HEADERS:
        raise OddFile("it is no program")
    table = _read(fd, offset, size * count)
    segments = {each[0]: each for each in layout.segment.iter_unpack(table)}
    dynamic = segments.get(_DYNAMIC)
    return Program(
        ElfMachine(ident[4], ident[5], machine),
        _INTERPRETER in segments,
        dynamic is not None and _has_name(fd, layout, dynamic),
    )


def _has_name(fd: int, layout: _Layout, segment: tuple[int, ...]) -> bool:
    offset, size = segment[layout.offset_at], segment[layout.offset_at + 3]
    if size > _MOST_DYNAMIC or size % layout.dynamic.size:
        raise OddFile("its dynamic section is odd")
    for tag, _ in layout.dynamic.iter_unpack(_read(fd, offset, size)):
        if tag in (_END, _NAME):
            return bool(tag == _NAME)
    return False


def _read(fd: int, offset: int, size: int) -> bytes:
    """Exactly so much."""
    if offset + size > os.fstat(fd).st_size:
        raise OddFile("it ends too early")
    found = os.pread(fd, size, offset)
    if len(found) != size:
        raise OddFile("it ends too early")
    return found
