"""What this process has mapped, and where symbols of libraries are, past everything that exchanges pointers."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

#: Kinds of sections: all symbols, hidden ones too, unless they were stripped; and those that others may use.
SYMTAB, DYNSYM = 2, 11


class Region(NamedTuple):
    begin: int
    end: int
    writable: bool
    path: str


def regions() -> list[Region]:
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *path = line.split(maxsplit=5)
        first, last = (int(each, 16) for each in place.split("-"))
        found.append(Region(first, last, "w" in rights, path[0] if path else ""))
    return found


def address_of(name: str, library: str, kind: int = DYNSYM) -> int:
    """In the library whose file's name begins so.  Raises LookupError."""
    place = next((region for region in regions() if f"/{library}.so" in region.path), None)
    if place is None:
        raise LookupError(f"there is no {library} in this process")
    for found, value in _symbols(Path(place.path).read_bytes(), kind):
        if found == name.encode():
            return place.begin + value
    raise LookupError(f"{place.path} has no symbol {name}")


def _symbols(data: bytes, kind: int) -> list[tuple[bytes, int]]:
    """Names and values of those that the file defines."""
    (sections,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + number * size) for number in range(count)]
    found = []
    for header in (each for each in headers if each[1] == kind):
        names = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], header[9]):
            text, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            if section:
                found.append((data[names + text : data.index(b"\0", names + text)], value))
    return found
