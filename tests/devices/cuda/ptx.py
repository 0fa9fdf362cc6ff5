"""An interpreter for the instructions that Carpool's kernel has, since no emulated GPU runs the driver's language.

One block at a time, and its threads one after another up to the barrier.
"""

from __future__ import annotations

import re
from typing import Any

_MASK = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "b32": 0xFFFFFFFF, "u64": (1 << 64) - 1, "b64": (1 << 64) - 1}
_COMPARE = {"ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}
_COMPUTE = {"add": lambda a, b: a + b, "or": lambda a, b: a | b, "shl": lambda a, b: a << b, "mul": lambda a, b: a * b}
_DATA, _MARKS = 1 << 32, 1 << 40


class Thread:
    """One thread: its registers, and where it goes on."""

    def __init__(self, special: dict[str, int]) -> None:
        self.values: dict[str, Any] = dict(special)
        self.place = 0

    def value(self, name: str) -> int:
        return int(name) if name.isdigit() else int(self.values[name])


class Kernel:
    """The program as (label or predicate, instruction), and the memory that it uses."""

    def __init__(self, text: str, data: bytes, arguments: dict[str, int]) -> None:
        body = text[text.index("{") + 1 : text.rindex("}")]
        lines = [line.strip().rstrip(";") for line in body.splitlines()]
        self.lines = [line for line in lines if line and not line.startswith((".", "//"))]
        self.labels = {line[:-1]: place for place, line in enumerate(self.lines) if line.endswith(":")}
        self.data, self.arguments = data, arguments
        self.marks: dict[int, int] = {}

    def run(self, thread: Thread) -> tuple[str, str] | None:
        """Run a thread to the barrier, whose operands are returned, or to its end."""
        while True:
            line = self.lines[thread.place]
            thread.place += 1
            if line.endswith(":"):
                continue
            guard, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
            if guard and not thread.values[guard[1:]]:
                continue
            operation, _, words = rest.partition(" ")
            operands = [word.strip() for word in re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+", words)]
            if operation == "ret":
                return None
            if operation == "bar.red.or.pred":
                assert operands[1] == "0"
                return operands[0], operands[2]
            self.step(thread, operation.split("."), operands)

    def step(self, thread: Thread, operation: list[str], operands: list[str]) -> None:
        match operation:
            case ["bra"]:
                thread.place = self.labels[operands[0]]
            case ["ld", "param", _]:
                thread.values[operands[0]] = self.arguments[operands[1][1:-1]]
            case ["ld", "global", "v4", "u32"]:
                self.load(thread, operands)
            case ["st", "global", "u32"]:
                self.marks[(thread.value(operands[0][1:-1]) - _MARKS) // 4] = thread.value(operands[1])
            case ["setp", how, _]:
                thread.values[operands[0]] = _COMPARE[how](*map(thread.value, operands[1:]))
            case ["selp", _]:
                thread.values[operands[0]] = thread.value(operands[1 if thread.values[operands[3]] else 2])
            case ["mov", _] | ["cvt", _, _] | ["cvta", "to", "global", _]:
                thread.values[operands[0]] = thread.value(operands[1])
            case [name, *_, kind]:
                mask = _MASK["u64" if "wide" in operation else kind]
                thread.values[operands[0]] = _COMPUTE[name](*map(thread.value, operands[1:])) & mask

    def load(self, thread: Thread, operands: list[str]) -> None:
        at = thread.value(operands[1][1:-1]) - _DATA
        assert 0 <= at <= len(self.data) - 16 and at % 16 == 0, f"a load at {at}"
        for number, name in enumerate(operands[0][1:-1].split(",")):
            thread.values[name.strip()] = int.from_bytes(self.data[at + 4 * number : at + 4 * number + 4], "little")


def run_kernel(text: str, data: bytes, *, threads: int, blocks: int, vectors: int) -> list[int]:
    """Return the marks of the blocks of ``vectors`` times 16 bytes; a block too many is launched."""
    arguments = {"data": _DATA, "marks": _MARKS, "vectors": vectors, "blocks": blocks}
    kernel = Kernel(text, data, arguments)
    for block in range(blocks + 1):
        group = [Thread({"%ctaid.x": block, "%tid.x": tid, "%ntid.x": threads}) for tid in range(threads)]
        reached = [kernel.run(thread) for thread in group]
        if any(reached):
            assert None not in reached, "all threads of a block, or none, come to the barrier"
            any_used = any(thread.values[place[1]] for thread, place in zip(group, reached, strict=True) if place)
            for thread, place in zip(group, reached, strict=True):
                assert place is not None
                thread.values[place[0]] = any_used
                assert kernel.run(thread) is None
    assert set(kernel.marks) == set(range(blocks))
    return [kernel.marks[block] for block in range(blocks)]
