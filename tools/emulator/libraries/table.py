"""Tables of what the emulated libraries do: ``tables/STEM.table`` for the library with the SONAME ``STEM.so.N``.

A line has words; ``#`` begins a comment.  First what holds for the whole library:

    prefix PATTERN    what its functions' names begin with, for those that PyTorch imports without naming a version
    refusal NUMBER    the status that means "not supported"
    failure NUMBER    the status of a computation that the driver has refused
    define NAME VALUE a constant for the lines below

Then a line for each function or family: ``CLASS PATTERN ARGUMENT...``.  The pattern is a regular expression for the
whole name.  The classes are ``asks`` (writes its out-parameters), ``sets`` (is remembered or ignored), ``computes``
(null work in a stream) and ``refuses`` (knowingly not implemented; what stands in no table refuses, too).  Arguments
stand in the order of the C parameters, those of floating-point types left out, as far as they matter:

    -  -*N            one or N that do not matter
    handle            what this library has made by `new`: its stream and what it keeps are used
    new               an out-parameter for a new handle
    free              a handle to be freed; free:pointed: where it points is one
    number            the same for handles that are small numbers: number, new:number, free:number
    keep:NAME         the handle keeps this argument
    stream            the stream of the computation
    status            the answer is the text of this status
    int=V  long=V     32 or 64 bits to be written; V is a C expression or a name that the handle keeps
    integers=V,V...   32 bits each
    zeros=N           N bytes of zeros
    text=V            the address of a string
    characters=V      the string itself
    returns=V         (no parameter) what the function returns instead of success, or of the refusal
    in:FILE           (no parameter) this C file has the function
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

TABLES = Path(__file__).with_name("tables")
CLASSES = ("asks", "sets", "computes", "refuses")


@dataclass(frozen=True)
class Line:
    """A function or a family of them."""

    kind: str
    pattern: str
    words: tuple[str, ...]

    def _labelled(self, label: str) -> str:
        return next((word.removeprefix(label) for word in self.words if word.startswith(label)), "")

    @property
    def returns(self) -> str:
        return self._labelled("returns=")

    @property
    def file(self) -> str:
        return self._labelled("in:")

    @property
    def arguments(self) -> list[tuple[int, str]]:
        """(position of the C parameter, word) for those that matter."""
        found, position = [], 0
        for word in self.words:
            if not word.startswith(("-", "returns=", "in:")):
                found.append((position, word))
            position += 0 if word.startswith(("returns=", "in:")) else int(word[2:] or 1) if word.startswith("-") else 1
        return found


@dataclass
class Table:
    stem: str
    settings: dict[str, str] = field(default_factory=dict)
    defines: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def line(self, function: str) -> Line | None:
        """The function's line; None if it stands in no table.  Raises ValueError if two lines have it."""
        found = [line for line in self.lines if re.fullmatch(line.pattern, function)]
        if len(found) > 1:
            raise ValueError(f"{self.stem}.table has {function} more than once: {found[0].pattern}, {found[1].pattern}")
        return found[0] if found else None

    def owns(self, function: str) -> bool:
        """Whether a function that is imported without a version is this library's, by its name."""
        return re.match(self.settings["prefix"], function) is not None

    @property
    def files(self) -> set[str]:
        return {line.file for line in self.lines if line.file}

    @property
    def kept(self) -> list[str]:
        """Names of what handles keep; the stream is always the first."""
        names = (word.removeprefix("keep:") for line in self.lines for word in line.words if word.startswith("keep:"))
        return list(dict.fromkeys(["stream", *names]))


def words_of(line: str) -> list[str]:
    """Words of a line without its comment; a string in double quotes belongs to one word."""
    words = re.findall(r'#.*|(?:"[^"]*"|[^\s"#])+', line)
    return [word for word in words if not word.startswith("#")]


def read_table(path: Path) -> Table:
    """The table in this file.  Raises ValueError for a line that it does not understand."""
    table = Table(path.stem)
    for number, text in enumerate(path.read_text().splitlines(), 1):
        match words_of(text):
            case []:
                pass
            case ["prefix" | "refusal" | "failure" as name, value]:
                table.settings[name] = value
            case ["define", name, value]:
                table.defines[name] = value
            case [kind, pattern, *words] if kind in CLASSES:
                table.lines.append(Line(kind, pattern, tuple(words)))
            case _:
                raise ValueError(f"{path}, line {number}: unknown: {text}")
    return table


def tables() -> dict[str, Table]:
    """All tables, by the stem of the library's SONAME."""
    return {path.stem: read_table(path) for path in sorted(TABLES.glob("*.table"))}
