"""Record the corpus again, with the version of this checkout: ``python -m tests.corpus.record [NAME ...]``.

Names are those of the journals, and ``frozen``; without any everything is recorded.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import carpool
from tests.corpus import journals, surface
from tests.corpus.journals import StoredJournal, StoredRow
from tests.corpus.scenarios import SCENARIOS, Scenario
from tests.corpus.simulated import SIMULATED


def journal_of(home: Path) -> StoredJournal:
    """Only the events and commands: the other tables have commands, directories and environments."""
    with closing(sqlite3.connect(home / "journal.sqlite")) as connection:
        rows = connection.execute("SELECT seq, now_us, kind, data FROM events ORDER BY seq").fetchall()
    return StoredJournal(carpool.__version__, None, [StoredRow(*row) for row in rows])


def check_private(name: str, journal: StoredJournal) -> None:
    """Raises ValueError if something of this machine is in the texts: a path, or the key of a command line."""
    for row in journal.rows:
        if found := re.search(r'"[^"]*(/\w+/|\\\\/)[^"]*"', row.data):
            raise ValueError(f"{name}: {row.kind} {row.seq} has a path: {found[0]}")


def anonymous(journal: StoredJournal) -> StoredJournal:
    """Keys of command lines are hashes over this machine's paths: others take their place, one for each."""
    keys: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        return keys.setdefault(found[0], hashlib.sha256(str(len(keys)).encode()).hexdigest())

    rows = [row._replace(data=re.sub(r"\b[0-9a-f]{64}\b", other, row.data)) for row in journal.rows]
    return journal._replace(rows=rows)


def live(name: str, scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        home = Path(directory) / "home"
        scenario(home)
        journal = anonymous(journal_of(home))
    check_private(name, journal)
    journals.write(name, journal)


def record_frozen() -> None:
    surface.FILE.write_text(json.dumps(surface.surface(), indent=1) + "\n")


def recorders() -> dict[str, Callable[[], None]]:
    made: dict[str, Callable[[], None]] = {"frozen": record_frozen}
    for name, scenario in SCENARIOS.items():
        made[name] = lambda name=name, scenario=scenario: live(name, scenario)  # type: ignore[misc]
    for name, simulated in SIMULATED.items():
        made[name] = lambda name=name, make=simulated: journals.write(name, make(carpool.__version__))  # type: ignore[misc]
    return made


def main() -> None:
    known = recorders()
    for name in sys.argv[1:] or known:
        known[name]()
        print(f"recorded {name}", flush=True)


if __name__ == "__main__":
    main()
