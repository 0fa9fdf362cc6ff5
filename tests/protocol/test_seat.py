"""The seat in Python and in C are one record: a compiler says where each word lies."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from enum import IntEnum
from pathlib import Path

import pytest

from carpool.protocol import seat
from carpool.protocol.seat import FIELDS, Grow, OffloadState, Packet, PacketType, Placed, Seat, Yield

HEADER = Path(__file__).parents[2] / "src" / "native" / "abi" / "seat.h"
ENUMS = {
    Yield: "CP_YIELD_",
    Grow: "CP_GROW_",
    OffloadState: "CP_OFFLOAD_",
    Placed: "CP_PLACED_",
    PacketType: "CP_",
}


def compiled(tmp_path: Path, lines: list[str]) -> list[int]:
    """What a C program that includes the header prints, one number per expression."""
    prints = "".join(f'printf("%lu\\n", (unsigned long)({line}));' for line in lines)
    source = tmp_path / "seat.c"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {prints} return 0; }}\n'
    )
    program = tmp_path / "seat"
    subprocess.run([*shlex.split(os.environ.get("CC") or "cc"), str(source), "-o", str(program)], check=True)
    return [int(word) for word in subprocess.check_output([str(program)]).split()]


def test_every_word_lies_where_the_header_says(tmp_path: Path) -> None:
    body = HEADER.read_text().split("struct cp_seat {")[1].split("};")[0]
    words = re.findall(r"^  uint(?:32|64)_t (\w+);", body, re.MULTILINE)
    assert sorted(words) == sorted(FIELDS)
    lines = [
        text
        for name in FIELDS
        for text in (f"offsetof(struct cp_seat, {name})", f"sizeof(((struct cp_seat *)0)->{name})")
    ]
    numbers = compiled(tmp_path, lines)
    expected = [number for offset, code in FIELDS.values() for number in (offset, 4 if code == "I" else 8)]
    assert numbers == expected


def test_sizes_and_constants(tmp_path: Path) -> None:
    names = ["sizeof(struct cp_seat)", "sizeof(struct cp_packet)", "CP_SEATS", "CP_BOARD_HEADER", "CP_BOARD_MAGIC"]
    values = [seat.SEAT_BYTES, seat.PACKET_BYTES, seat.SEATS, seat.HEADER_BYTES, seat.BOARD_MAGIC]
    assert compiled(tmp_path, [*names, "CP_PROTOCOL"]) == [*values, seat.PROTOCOL]
    store = [seat.CHUNK, seat.IN_DEVICE, seat.IN_STORE]
    assert compiled(tmp_path, ["CP_CHUNK", "CP_IN_DEVICE", "CP_IN_STORE"]) == store


@pytest.mark.parametrize("enum", list(ENUMS), ids=lambda enum: enum.__name__)
def test_enumerations(tmp_path: Path, enum: type[IntEnum]) -> None:
    assert compiled(tmp_path, [ENUMS[enum] + member.name for member in enum]) == [int(member) for member in enum]


@pytest.fixture
def board() -> memoryview:
    return memoryview(bytearray(seat.BOARD_BYTES))


def test_words_are_written_and_read_in_place(board: memoryview) -> None:
    first, second = Seat(board, 0), Seat(board, 1)
    for number, name in enumerate(FIELDS):
        first.set(name, number + 1)
    assert [first.get(name) for name in FIELDS] == list(range(1, len(FIELDS) + 1))
    words = first.snapshot()
    assert [name.rstrip("_") for name in words._fields] == list(FIELDS)
    assert list(words) == list(range(1, len(FIELDS) + 1)), "a snapshot has every word under its name"
    assert not any(second.get(name) for name in FIELDS)
    first.clear()
    assert not any(first.get(name) for name in FIELDS)
    with pytest.raises(ValueError, match="slot 4096"):
        Seat(board, 4096)


def test_a_name_that_is_none_of_the_drivers_is_not_read(tmp_path: Path, board: memoryview) -> None:
    lies = ["offsetof(struct cp_seat, passing)", "sizeof(((struct cp_seat *)0)->passing)"]
    assert compiled(tmp_path, lies) == [seat.PASSING_OFFSET, seat.PASSING_BYTES]
    found = []
    for name in (b"cuMemAlloc_v3", b"cu" + b"x" * 38, b"\0cuMemAlloc", b"cuMem\n", b"cu\xff", b"printf"):
        start = seat.HEADER_BYTES + seat.PASSING_OFFSET
        board[start : start + seat.PASSING_BYTES] = name.ljust(seat.PASSING_BYTES, b"\0")
        found.append(Seat(board, 0).passing())
    assert found == ["cuMemAlloc_v3", "cu" + "x" * 38, "", "", "", ""]


def test_packets_survive_the_wire() -> None:
    packet = Packet(PacketType.GROW, 7, 1, 2, 3, 4, 2**63)
    assert Packet.decode(packet.encode()) == packet
    with pytest.raises(ValueError, match="48 bytes"):
        Packet.decode(b"short")
    with pytest.raises(ValueError, match="99"):
        Packet.decode(Packet(PacketType.WANT).encode().replace(b"\x02", b"\x63", 1))
