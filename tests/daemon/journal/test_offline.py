"""`carpool backup` and `carpool doctor --journal`, with and without a daemon."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.journal.offline import BackupFailed, back_up, findings
from carpool.daemon.journal.salvage import Acknowledged
from carpool.daemon.journal.schema import open_journal
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import Daemon, submission
from tests.daemon.failing import WAITS, let_go
from tests.daemon.journal_file import sql

SECRET = "hf_0123456789"
FORGE = """
INSERT INTO quarantine (found_us, source, job, reason, data)
  VALUES (1790000000000000, 'jobs', 7, 'Invalid enum value', '{"phase": "exploded\u001b[31m"}');
INSERT INTO losses (found_us, first_job, last_job, text) VALUES (1, 8, 9, 'acknowledged, and not in the journal');
INSERT INTO losses (found_us, text) VALUES (1, 'the log is damaged');
"""


def cli(home: Path, *words: str) -> tuple[int, Any, str]:
    command = [sys.executable, "-m", "carpool.cli", *words, "--home", str(home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_a_daemon_starts_from_a_copy_that_has_no_secrets(daemon: Daemon, pipe: Path) -> None:
    """Jobs that have ended are there, those that run go on, and those that have not started say what to do."""
    target = {"on": ["end"], "command": ["true", SECRET]}
    ended = daemon.submit("true", env={"TOKEN": SECRET}, notify=[target], ended=True)
    body = submission(sys.executable, "-u", "-c", WAITS, str(pipe), "0", name="runs")
    running = daemon.post("/v1/jobs", body | {"env": body["env"] | {"TOKEN": SECRET}})["id"]
    daemon.until_line(running, "here")
    waits = daemon.submit("true", env={"TOKEN": SECRET}, after=[running], notify=[target])
    spec = {"factory": "shop:resnet", "python": "/bin/python", "cwd": "/", "env": {"TOKEN": SECRET}}
    daemon.put("/v1/models/resnet", spec)
    sql(daemon.home / "journal.sqlite", "UPDATE meta SET value = 'that of an earlier start' WHERE key = 'boot_id'")
    copy = daemon.home.parent / "copy"
    code, made, _ = cli(daemon.home, "backup", str(copy))
    assert (code, made["jobs"], made["bytes"]) == (0, 3, copy.stat().st_size)
    assert copy.stat().st_mode & 0o777 == 0o600 and SECRET.encode() not in copy.read_bytes()
    journals = [daemon.home / "journal.sqlite-wal", daemon.home / "journal.sqlite"]  # it moves from the first one
    assert any(SECRET.encode() in path.read_bytes() for path in journals), "the copy is what is tested"
    later = daemon.python("pass")
    daemon.kill()
    for old in daemon.home.glob("journal.sqlite*"):
        old.unlink()
    shutil.copy(copy, daemon.home / "journal.sqlite")
    daemon.started()
    assert [daemon.show(job)["phase"] for job in (ended, running)] == ["ended", "running"]
    gone = daemon.wait(waits)
    assert (gone["outcome"], gone["reason"]["code"]) == ("lost", "no_environment")
    assert "submit the job again" in gone["reason"]["text"]
    assert daemon.get("/v1/models/resnet")["variables"] == 0
    assert daemon.get("/v1/jobs")["notice"] == "1 acknowledged job missing in the journal: carpool doctor --journal"
    let_go(pipe)
    assert daemon.wait(running)["outcome"] == "succeeded"
    assert daemon.python("pass") == later + 1
    code, report, _ = cli(daemon.home, "doctor", "--journal")
    assert (code, report["ok"]) == (1, False)
    assert f"job {later}: acknowledged" in str(report["checks"])


def test_what_is_there_is_not_replaced(daemon: Daemon, tmp_path: Path) -> None:
    daemon.wait(daemon.python("pass"))
    daemon.stop()
    code, report, _ = cli(daemon.home, "doctor", "--journal")
    assert (code, report["ok"]) == (0, True), report
    copy = tmp_path / "copy"
    copy.write_text("something else")
    code, _, text = cli(daemon.home, "backup", str(copy))
    assert code == 5 and "--force" in text and copy.read_text() == "something else"
    code, made, _ = cli(daemon.home, "backup", str(copy), "--force")
    assert (code, made["jobs"], list(tmp_path.iterdir())) == (0, 1, [copy])
    assert cli(tmp_path, "backup", str(tmp_path / "other"))[0] == 4


def test_a_copy_has_no_targets_of_spoilt_rows_either(tmp_path: Path) -> None:
    journal, copy = tmp_path / "journal", tmp_path / "copy"
    with closing(open_journal(journal)) as connection:
        into = "INSERT INTO jobs (id, owner, gid, spec, env, submitted_us, phase) VALUES (?, 0, 0, ?, '{}', 0, 'ended')"
        spoilt = (f'{{"notify": "{SECRET}"', f'{{"notify": "{SECRET}"}}', SECRET.encode())
        connection.executemany(into, enumerate(spoilt))
        connection.execute("INSERT INTO notices VALUES (1, 1, 'end', 0, ?, 'owed', 0, '')", (SECRET,))
        rows = [(json.dumps({"spec": SECRET, "phase": "x"}),), (f'{{"notice": "{SECRET}", "job": 7}}',)]
        connection.executemany(
            "INSERT INTO quarantine (found_us, source, reason, data) VALUES (1, 'jobs', 'x', ?)", rows
        )
    assert back_up(journal, copy, force=False).jobs == len(spoilt)
    assert SECRET.encode() not in copy.read_bytes()
    assert sql(copy, "SELECT data FROM quarantine") == [('{"phase":"x"}',), ('{"job":7}',)]


@pytest.mark.parametrize("place", ["none/copy", "journal"])
def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, place: str) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(b"no database" * 1000)
    with pytest.raises(BackupFailed):
        back_up(journal, tmp_path / place, force=True)
    assert list(tmp_path.iterdir()) == [journal] and journal.read_bytes() == b"no database" * 1000


def test_everything_that_is_wrong_is_listed(daemon: Daemon) -> None:
    daemon.stop()
    home = Home(daemon.home)
    with closing(sqlite3.connect(home.journal)) as connection:
        connection.executescript(FORGE)
    told = Acknowledged(home.acknowledged)
    told.reach(12)
    told.close()
    found = {check.name: check for check in findings(home)}
    names = ("write-ahead log", "pages", "version", "size", "unreadable rows", "row of jobs, job 7", "missing jobs")
    assert [found[name].ok for name in names] == [True, True, True, True, False, False, False]
    texts = [check.found for check in findings(home) if not check.ok]
    assert any("Invalid enum value" in text and "\\x1b" in text and "\x1b" not in text for text in texts)
    assert any("jobs 8 to 9" in text for text in texts) and any("jobs 1 to 12" in text for text in texts)
    assert not list(home.root.glob("*-shm")), "nothing is written"
    for damage in ("UPDATE meta SET value = 'x' WHERE key = 'last_job'", "DELETE FROM meta WHERE key = 'last_job'"):
        sql(home.journal, damage)
        assert any("jobs 1 to 12" in check.found for check in findings(home))


def test_a_journal_that_cannot_be_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert [check.ok for check in findings(home)] == [True], "there is none"
    home.journal.write_bytes(b"no database" * 1000)
    *_, last = findings(home)
    assert not last.ok and "carpool backup" in last.advice
