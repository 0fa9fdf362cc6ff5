"""Runs scripts inside a pretended job: the real start-up code, and a recorder in place of libcarpool."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from carpool.runtime import launch
from carpool.runtime.shim.attach_socket import AttachSocket
from tests import libraries
from tests.live import python_path

HERE = Path(__file__).parent
#: Becomes the rest of its command line, as the shim's child does.
MAIN_PROCESS = ["/bin/sh", "-c", 'CARPOOL_JOB_PID=$$ exec "$@"', "sh"]


@dataclass
class Finished:
    """A script that has run: what it printed, and what it called in libcarpool."""

    out: str
    err: str
    code: int
    recorded: list[tuple[str, int, int]]

    @property
    def calls(self) -> list[tuple[str, int, int]]:
        """All but what its main process says when it ends."""
        return [call for call in self.recorded if call[0] != "out_of_memory"]

    @property
    def last_words(self) -> list[int]:
        return [first for name, first, _ in self.recorded if name == "out_of_memory"]

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]

    @property
    def steps(self) -> list[tuple[str, int, int]]:
        return [call for call in self.calls if call[0].startswith("step")]


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorder, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("recorder") / "librecorder.so"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(HERE / "recorder.c")]
    subprocess.run(command, check=True, timeout=60)
    return library


class Job:
    """A pretended job with its channel and environment; ``run`` starts a Python in it."""

    def __init__(self, recorder: Path, directory: Path, path: str) -> None:
        self.directory = directory
        self.record = directory / "record"
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (directory / "jobs" / "1").mkdir(parents=True)
        self.door = AttachSocket(str(directory / "jobs" / "1"))
        self.env = {
            **os.environ,
            "LD_PRELOAD": str(recorder),
            "PYTHONPATH": path,
            "CARPOOL_JOB_FD": str(self.theirs.fileno()),
            "CARPOOL_JOB": "1",
            "CARPOOL_HOME": str(directory),
            "CP_RECORD": str(self.record),
        }
        self.env.pop("CARPOOL_JOB_PID", None)

    def run(self, script: str, *, python: str = sys.executable, flags: tuple[str, ...] = (), **env: str) -> Finished:
        file = self.directory / "script.py"
        file.write_text(textwrap.dedent(script))
        self.record.write_text("")
        done = subprocess.run(
            [*MAIN_PROCESS, python, *flags, str(file)],
            env=self.env | env,
            cwd=self.directory,
            pass_fds=(self.theirs.fileno(),),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Finished(done.stdout, done.stderr, done.returncode, self.calls())

    def calls(self) -> list[tuple[str, int, int]]:
        lines = [line.split() for line in self.record.read_text().splitlines()]
        return [(name, int(a), int(b)) for name, a, b in lines]

    def close(self) -> None:
        self.door.close()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def job(recorder: Path, tmp_path: Path) -> Iterator[Job]:
    pretended = Job(recorder, tmp_path, python_path(launch.site_directory()))
    yield pretended
    pretended.close()


@pytest.fixture(scope="session")
def stand_in(pytestconfig: pytest.Config) -> dict[str, str]:
    """For the environment of a script to which PyTorch is only what it imports: see `tests/cuda/stand_in`."""
    if pytestconfig.option.tier == "all":
        return {}
    site = python_path(launch.site_directory(), HERE.parent / "cuda" / "stand_in")
    return {"PYTHONPATH": site, "STAND_IN_C10": str(libraries.stand_ins() / libraries.STAND_INS["C10"])}


class Snippets:
    """Runs short scripts in forks of one attached process, because torch takes seconds to import."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._count = 0
        self._process = subprocess.Popen(
            [*MAIN_PROCESS, sys.executable, str(HERE / "forker.py")],
            env=job.env,
            cwd=job.directory,
            pass_fds=(job.theirs.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer("ready")

    def run(self, script: str) -> Finished:
        self._count += 1
        file = self._job.directory / f"snippet{self._count}.py"
        file.write_text(textwrap.dedent(script))
        self._job.record.write_text("")
        assert self._process.stdin is not None
        print(file, file=self._process.stdin, flush=True)
        code = int(self._answer())
        out, err = (Path(f"{file}.{suffix}").read_text() for suffix in ("out", "err"))
        return Finished(out, err, code, self._job.calls())

    def _answer(self, expected: str = "") -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line and expected in line, f"the snippet server ended or answered {line!r}"
        return line

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="session")
def snippets(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snippets]:
    yield from _snippets(Job(recorder, tmp_path_factory.mktemp("snippets"), python_path(launch.site_directory())))


@pytest.fixture(scope="session")
def whole_snippets(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snippets]:
    """For scripts that use the compiler."""
    yield from _snippets(Job(recorder, tmp_path_factory.mktemp("whole"), str(launch.site_directory())))


def _snippets(job: Job) -> Iterator[Snippets]:
    server = Snippets(job)
    yield server
    server.close()
    job.close()
