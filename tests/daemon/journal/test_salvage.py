"""What a damaged write-ahead log has taken is said, by number where known; what is normal after a crash is not."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from carpool.daemon.journal.contents import JournalContents, read_contents
from carpool.daemon.journal.salvage import Acknowledged, WalDamage, wal_damage
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import Daemon, Refused
from tests.daemon.journal_file import sql

FRAME = 24 + 4096
JOB = """INSERT INTO jobs (id, owner, gid, spec, env, submitted_us, phase, outcome) VALUES
  (?, 0, 0, '{"argv":["true"],"cwd":"/","env":{}}', '{}', 1, 'ended', 'succeeded')"""


@pytest.fixture
def stored(tmp_path: Path) -> Home:
    """As a daemon leaves it that is killed: nine jobs, each a transaction in the write-ahead log."""
    home, copy = Home(tmp_path / "first"), Home(tmp_path / "home")
    for each in (home, copy):
        each.jobs.mkdir(parents=True)
    with closing(open_journal(home.journal)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        told = Acknowledged(copy.acknowledged)
        for number in range(1, 10):
            connection.execute(JOB, (number,))
            told.reach(number)
        told.close()
        for before, after in ((home.journal, copy.journal), (home.journal_log, copy.journal_log)):
            after.write_bytes(before.read_bytes())
    return copy


def ends(home: Home) -> list[int]:
    """The frames with which a transaction ends."""
    data = home.journal_log.read_bytes()
    places = range((len(data) - 32) // FRAME)
    return [place for place in places if any(data[32 + place * FRAME + 4 : 32 + place * FRAME + 8])]


def flip(home: Home, place: int) -> None:
    data = bytearray(home.journal_log.read_bytes())
    data[place] ^= 0x40
    home.journal_log.write_bytes(data)


def read(home: Home) -> JournalContents:
    damage = wal_damage(home.journal_log)
    told = Acknowledged(home.acknowledged)
    with closing(open_journal(home.journal)) as connection:
        contents = read_contents(connection, DirectPrivileges(home), home, told.last, damage)
    told.close()
    return contents


def losses(home: Home) -> list[tuple[int | None, int | None, str]]:
    return sql(home.journal, "SELECT first_job, last_job, text FROM losses")


def test_a_sound_log_has_lost_nothing(stored: Home) -> None:
    assert len(ends(stored)) == 9 and wal_damage(stored.journal_log) is None
    contents = read(stored)
    assert ([job.id for job in contents.jobs], contents.last_job, contents.notice) == ([*range(1, 10)], 9, "")
    assert losses(stored) == [] and wal_damage(stored.root / "none") is None


@pytest.mark.parametrize("end", range(1, 9))
def test_a_flipped_byte_is_found_and_said(stored: Home, end: int) -> None:
    """SQLite itself says nothing, and reads what was before."""
    flip(stored, 32 + (ends(stored)[end - 1] + 1) * FRAME + 24 + 100)
    known = 9 - end - 1
    assert wal_damage(stored.journal_log) == (WalDamage(known) if known else None), "nobody knows of the last one"
    contents = read(stored)
    assert [job.id for job in contents.jobs] == [*range(1, end + 1)]
    lost = (end + 1, 9, "acknowledged, and not in the journal")
    text = f"at least {known} transaction{'s are' if known > 1 else ' is'} lost that had been written durably"
    found = losses(stored)
    assert found[-1] == lost and (not known or text in found[0][2])
    assert contents.last_job == 9, "their numbers are never given again"
    assert 9 in contents.gone and end not in contents.gone
    many = "1 acknowledged job" if end == 8 else f"{9 - end} acknowledged jobs"
    assert contents.notice == f"{many} missing in the journal: carpool doctor --journal"
    again = read(stored)
    assert (again.last_job, len(losses(stored)), again.notice) == (9, len(found), contents.notice)


def test_a_flipped_header_is_found(stored: Home) -> None:
    flip(stored, 9)
    damage = wal_damage(stored.journal_log)
    assert damage is not None and damage.headless and "may be lost" in damage.text
    assert read(stored).last_job == 9 and losses(stored)[1][:2] == (1, 9)


@pytest.mark.parametrize("missing", [1, 24, 100, FRAME])
def test_a_transaction_that_was_not_written_completely_is_normal(stored: Home, missing: int) -> None:
    """The daemon, or the machine, has died in mid-write; the submission was not acknowledged."""
    told = Acknowledged(stored.acknowledged)
    told.reach(8)
    os.truncate(stored.acknowledged, 0)
    told = Acknowledged(stored.acknowledged)
    told.reach(8)
    told.close()
    os.truncate(stored.journal_log, stored.journal_log.stat().st_size - missing)
    assert wal_damage(stored.journal_log) is None
    contents = read(stored)
    assert ([job.id for job in contents.jobs], contents.notice) == ([*range(1, 9)], "")
    assert losses(stored) == []


def test_frames_of_an_older_log_are_normal(stored: Home) -> None:
    """SQLite begins at the front again when everything is in the main file."""
    with closing(sqlite3.connect(stored.journal, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        connection.execute(JOB, (10,))
        data = stored.journal_log.read_bytes()
        assert len(ends(stored)) > 1
        stored.journal_log.with_name("copy").write_bytes(data)
    assert wal_damage(stored.journal_log.with_name("copy")) is None


def test_a_transaction_that_was_given_up_is_normal(stored: Home) -> None:
    """One that did not fit into memory has left frames behind the last one that counts."""
    with closing(sqlite3.connect(stored.journal, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", ((f"x{n}", "y" * 3000) for n in range(200)))
        connection.execute("ROLLBACK")
        connection.execute(JOB, (10,))
        copy = stored.journal_log.with_name("copy")
        copy.write_bytes(stored.journal_log.read_bytes())
    assert copy.stat().st_size > 150 * FRAME and wal_damage(copy) is None


@pytest.mark.parametrize("data", [b"", b"\0" * 5000, b"\0" * 31])
def test_a_log_that_is_none_is_no_loss(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "wal").write_bytes(data)
    assert wal_damage(tmp_path / "wal") is None


def test_directories_of_jobs_that_were_started_are_known(stored: Home) -> None:
    """Also where the file is gone; a directory alone is made before the submission is acknowledged."""
    stored.acknowledged.unlink()
    for name, lock in (("9", True), ("12", True), ("13", True), ("20", False), ("x", True), ("9" * 30, True)):
        (stored.jobs / name).mkdir()
        if lock:
            (stored.jobs / name / "lock").touch()
    contents = read(stored)
    assert losses(stored) == [(12, 13, "acknowledged, and not in the journal")]
    assert contents.last_job == 13 and 12 in contents.gone and 11 not in contents.gone


def test_an_older_copy_of_the_journal_lacks_what_came_later(stored: Home) -> None:
    stored.journal_log.unlink()
    assert read(stored).last_job == 9
    assert losses(stored) == [(1, 9, "acknowledged, and not in the journal")]


@pytest.mark.parametrize("line", [b"", b"7\n", b"00000000000000000007 00000000\n", b"\xff" * 64])
def test_a_damaged_file_of_numbers_is_not_believed(stored: Home, line: bytes) -> None:
    stored.acknowledged.write_bytes(line)
    assert read(stored).notice == "" and losses(stored) == []


def test_the_number_survives(tmp_path: Path) -> None:
    for number, last in ((5, 5), (3, 5), (12345678901, 12345678901)):
        told = Acknowledged(tmp_path / "told")
        told.reach(number)
        told.close()
        again = Acknowledged(tmp_path / "told")
        again.close()
        assert again.last == last
    assert (tmp_path / "told").stat().st_mode & 0o777 == 0o600


def test_a_daemon_says_which_jobs_are_lost(daemon: Daemon) -> None:
    """As the next one finds them; the numbers are not given again."""
    blocker = daemon.python("import signal; signal.pause()")
    jobs = [daemon.python("pass", after=[blocker]) for _ in range(5)]
    daemon.kill()
    home = Home(daemon.home)
    size = home.journal_log.stat().st_size
    data = bytearray(home.journal_log.read_bytes())
    data[size // 2 : size // 2 + 8] = b"\xff" * 8
    home.journal_log.write_bytes(data)
    daemon.started()
    listed = daemon.get("/v1/jobs")
    left = [job["id"] for job in listed["jobs"]]
    lost = [job for job in jobs if job not in left]
    assert not lost or "missing in the journal" in listed["notice"]
    assert "damaged" in daemon.log() or lost
    for job in lost:
        with pytest.raises(Refused, match=f"no record of job {job} that can be read"):
            daemon.show(job)
    assert daemon.python("pass") == jobs[-1] + 1


def test_a_journal_that_was_created_in_part_is_completed(tmp_path: Path) -> None:
    """The first daemon of a home has died before it could write which version it is."""
    path = tmp_path / "journal.sqlite"
    open_journal(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM meta")
        connection.execute("DROP TABLE runs")
    with closing(open_journal(path)) as connection:
        assert connection.execute("SELECT count(*) FROM runs, meta").fetchone() == (0,)
        assert connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() == ("1",)
