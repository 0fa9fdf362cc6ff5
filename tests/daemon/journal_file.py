"""A journal's file, as a daemon has it open and for statements of another program, and the zone of its days."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.journal.records import JournalStore, read_history
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal


class OpenJournal:
    """The journal of a daemon, its thread, and the store of its jobs."""

    def __init__(self, path: Path) -> None:
        self.connection = open_journal(path)
        self.journal = Journal(self.connection, asyncio.get_running_loop())
        self.store = JournalStore(self.journal, read_history(self.connection))


@contextmanager
def opened(path: Path) -> Iterator[OpenJournal]:
    """Afterwards it is closed, and everything has been written."""
    made = OpenJournal(path)
    yield made
    made.journal.close()


@contextmanager
def local(zone: str) -> Iterator[None]:
    """The time zone of this process, in which days of the journal begin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()


def sql(journal: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows that one statement gives; what it changes is there for the next reader."""
    with closing(sqlite3.connect(journal)) as connection, connection:
        return connection.execute(statement, values).fetchall()
