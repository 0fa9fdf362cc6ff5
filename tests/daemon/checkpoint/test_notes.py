"""Notes about suspended jobs, and the processes below another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.daemon.checkpoint.suspend import Note, Notes
from carpool.daemon.system import processes
from carpool.daemon.system.processes import below, has_not_ended

NESTED = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(0, flush=True); input()'])"


def test_notes_are_read_by_the_next_daemon(tmp_path: Path) -> None:
    Notes(tmp_path).write(7, Note(5))
    Notes(tmp_path).write(7, Note(6, complete=True))
    assert Notes(tmp_path).read(7) == Note(6, complete=True)
    assert Notes(tmp_path).read(8) == Note()
    Notes(tmp_path).forget(7)
    Notes(tmp_path).forget(7)
    assert Notes(tmp_path).read(7) == Note() and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", '{"needed": "much"}', '["x"]'])
def test_one_that_makes_no_sense_says_nothing(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "suspended-7").write_text(text)
    assert Notes(tmp_path).read(7) == Note()
    assert "cannot be read" in caplog.text


def test_processes_below_another() -> None:
    with subprocess.Popen([sys.executable, "-c", NESTED], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = below(os.getpid())
        grandchildren = below(process.pid)
        assert process.pid in found and len(grandchildren) == 1 and set(grandchildren) < set(found)
        process.stdin.close()
    assert below(process.pid) == []


def test_one_whose_state_is_empty_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "stat_fields", lambda _pid: [])
    assert not has_not_ended(os.getpid())


def test_the_daemon_is_not_below_a_job_that_has_started_it() -> None:
    assert os.getpid() not in below(os.getppid())
