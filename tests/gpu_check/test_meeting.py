"""Jobs of measurements meet: none goes on before all are there, and one that dies before is told of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tools.gpu_check.daemon import Daemon
from tools.gpu_check.meeting import outputs_together
from tools.gpu_check.scripts import PROGRAMS

#: Says how far the other one is when it has met it.
MEETS = f"""
import sys
sys.path.append({os.fspath(PROGRAMS)!r})
from meeting import meet
open(sys.argv[1], "w").close()
meet()
print(*map(__import__("os").path.exists, sys.argv[2:]))
"""


class Processes:
    """A daemon's place is taken by plain processes; they are the jobs."""

    def __init__(self, home: Path) -> None:
        self.home, self.client = home, SimpleNamespace(job=self._job)
        self._started: list[subprocess.Popen[str]] = []

    def submit(self, *arguments: str, **env: str) -> int:
        command = [sys.executable, "-c", *arguments]
        self._started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env))
        return len(self._started) - 1

    def output(self, job: int) -> str:
        return self._started[job].communicate()[0].strip()

    def log(self, job: int) -> str:
        return f"the log of {job}"

    def _job(self, job: int) -> SimpleNamespace:
        return SimpleNamespace(phase="running" if self._started[job].poll() is None else "ended", reason="")

    def close(self) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.close()


def test_none_goes_on_before_all_are_there(shared: Processes, tmp_path: Path) -> None:
    there = [str(tmp_path / name) for name in ("first", "second")]
    outputs = outputs_together(cast(Daemon, shared), [[MEETS, *there], [MEETS, *reversed(there)]])
    assert outputs == {0: "True", 1: "True"}
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}


def test_a_job_that_ends_before_is_told_of(shared: Processes, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"job 1 has ended before it met the others:\nthe log of 1"):
        outputs_together(cast(Daemon, shared), [[MEETS, str(tmp_path / "first")], ["pass"]])
