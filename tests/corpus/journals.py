"""The stored journals: rows of events and commands, compressed, one file per scenario."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).parent / "journals"
SUFFIX = ".jsonl.xz"


class StoredRow(NamedTuple):
    """One row of a journal's table of events; ``data`` is the JSON text exactly as it was recorded."""

    seq: int
    now_us: int
    kind: str
    data: str


class StoredJournal(NamedTuple):
    """``settings`` are those that the core was made with; None: the default ones, as in every daemon."""

    version: str
    settings: dict[str, Any] | None
    rows: list[StoredRow]


def names() -> list[str]:
    return sorted(file.name.removesuffix(SUFFIX) for file in DIRECTORY.glob(f"*{SUFFIX}"))


def read(name: str) -> StoredJournal:
    """Raises FileNotFoundError for a name that is not among `names`."""
    with lzma.open(DIRECTORY / f"{name}{SUFFIX}", "rt") as file:
        header = json.loads(file.readline())
        rows = [StoredRow(*json.loads(line)) for line in file]
    return StoredJournal(header["version"], header["settings"], rows)


def write(name: str, journal: StoredJournal) -> None:
    header = {"version": journal.version, "settings": journal.settings}
    lines = [json.dumps(header), *(json.dumps(row, separators=(",", ":")) for row in journal.rows)]
    with lzma.open(DIRECTORY / f"{name}{SUFFIX}", "wt", preset=9) as file:
        file.write("\n".join(lines) + "\n")


def kinds(rows: Sequence[StoredRow]) -> set[str]:
    return {row.kind for row in rows}
