"""Calls of emulated libraries' functions with poisoned memory, in a worker (``worker.py``).

Arguments are words of a library's table with their positions; what does not matter is 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

BYTES = 256
POISONS = (0xA5, 0x5A)  # memory that keeps both in two calls has not been written
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


def loaded(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def poisoned(poison: int) -> Any:
    return ctypes.create_string_buffer(bytes([poison]) * BYTES, BYTES)


def pointed() -> Any:
    return ctypes.create_string_buffer(libc.malloc(64).to_bytes(8, "little"), BYTES)


#: The argument for words that are no out-parameters; a handle is 64 zero bytes, and number 0 means no plan.
GIVEN: dict[str, Callable[[], Any]] = {
    "handle": lambda: ctypes.create_string_buffer(64),
    "free": lambda: libc.malloc(64),
    "free:pointed": pointed,
    **dict.fromkeys(["number", "free:number", "stream", "status"], lambda: 0),
}


def argument(word: str, poison: int) -> Any:
    if word.startswith("keep:"):
        return 0
    return GIVEN[word]() if word in GIVEN else poisoned(poison)


def call(function: Any, arguments: list[Any]) -> int:
    """The 64 bits that the function returns."""
    function.restype = ctypes.c_uint64
    plain = [ctypes.addressof(a) if isinstance(a, ctypes.Array) else a for a in arguments]
    return int(function(*(ctypes.c_uint64(value) for value in plain)))


def once(function: Any, words: dict[int, str], poison: int) -> tuple[int, dict[int, bytes]]:
    """(what it returned, the memory of its arguments afterwards by position)."""
    arguments = [argument(words[i], poison) if i in words else 0 for i in range(max(words, default=-1) + 1)]
    returned = call(function, arguments)
    return returned, {
        i: a.raw for i, a in enumerate(arguments) if isinstance(a, ctypes.Array) and words[i] not in GIVEN
    }


def outcome(path: str, name: str, words: dict[int, str]) -> dict[str, Any]:
    """What a call returns, and the positions with the number of bytes that it writes there, without a gap."""
    function = loaded(path)[name]
    (returned, first), (_, second) = (once(function, words, poison) for poison in POISONS)
    written = {}
    for position in first:
        kept = [pair == POISONS for pair in zip(first[position], second[position], strict=True)]
        written[position] = kept.index(True) if all(kept[kept.index(True) :]) else -1
    return {"returned": returned, "written": written}


def outcomes(path: str, calls: dict[str, dict[int, str]]) -> dict[str, Any]:
    return {name: outcome(path, name, words) for name, words in calls.items()}
