"""`carpool.submit` and `carpool.map`, called by programs of users; against a real daemon."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carpool.tasks import transport
from carpool.tasks.submitting import JobOptions
from tests.cli.conftest import Cli

MODULE = """
import os

class Strange(Exception):
    def __init__(self, one, two):
        super().__init__(one)

def square(number):
    print("squares", number)
    return number * number

def tells(**what):
    return what, os.environ.get("A"), os.getcwd()

def fails(text):
    raise ValueError(text)

def strange():
    raise Strange(1, 2)
"""


class Program:
    """A program of a user's, with a module of its own beside it."""

    def __init__(self, cli: Cli, directory: Path) -> None:
        self.directory = directory
        (directory / "work.py").write_text(MODULE)
        self._env = cli.env | {"XDG_CACHE_HOME": str(directory / "cache")}

    def run(self, text: str, *options: str, cwd: Path | None = None) -> str:
        path = self.directory / "program.py"
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, *(options or [str(path)])],
            cwd=cwd or self.directory,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def tasks(self) -> list[Path]:
        return list((self.directory / "cache" / "carpool" / "tasks").iterdir())


@pytest.fixture
def program(shared: Cli, tmp_path: Path) -> Program:
    return Program(shared, tmp_path)


def test_a_function_of_a_module_and_its_result(program: Program, shared: Cli) -> None:
    said = program.run(
        "import carpool, work\n"
        "job = carpool.submit(work.square, 7, output='%x.out')\n"
        "print(job.id, job.result(), job.done(), job.info().name, job.log())\n"
        "print(carpool.Job(job.id).wait(60).outcome)"
    )
    assert said.split()[1:] == ["49", "True", "square", "squares", "7", "succeeded"]
    (task,) = program.tasks
    modes = [(path.stat().st_mode & 0o777) for path in (task, task / "call", task / "result")]
    assert modes == [0o700, 0o600, 0o600]
    assert shared.ok("show", said.split()[0]).count("-P -m carpool.tasks work:square") == 1


def test_a_function_of_the_script_itself(program: Program) -> None:
    said = program.run(
        "import carpool\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Point:\n    x: int\n"
        "def moved(point, by):\n    return Point(point.x + by)\n"
        "if __name__ == '__main__':\n"
        "    print(carpool.submit(moved, Point(1), 2).result())\n"
    )
    assert said == "Point(x=3)\n"


def test_what_others_put_into_the_directory_replaces_no_module(program: Program, tmp_path: Path) -> None:
    """The script is its user's, the directory is not."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("carpool", "pickle", "runpy", "traceback"):
        (shared / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\nraise SystemExit(3)")
    text = "import carpool, work\nif __name__ == '__main__':\n    print(carpool.submit(work.square, 3).result())\n"
    assert program.run(text, cwd=shared) == "9\n"
    mapped = text.replace("submit(work.square, 3).result()", "map(work.square, [3])[0].result()")
    assert program.run(mapped, cwd=shared) == "9\n"
    assert not (tmp_path / "owned").exists()


def test_a_grid_is_mapped(program: Program, shared: Cli) -> None:
    (program.directory / "cache").mkdir()
    said = program.run(
        "import carpool, work\n"
        "jobs = carpool.map(work.tells, {'lr': [0.1, 0.2], 'n': [1]}, env={'A': 'b'}, chdir='cache', name='g')\n"
        "print([job.result() for job in jobs])\n"
        "print([job.result(60) for job in carpool.map(work.square, range(3))], carpool.map(work.square, []))"
    )
    where = str(program.directory / "cache")
    first = [({"lr": lr, "n": 1}, "b", where) for lr in (0.1, 0.2)]
    assert said == f"{first}\n[0, 1, 4] []\n"
    assert "g lr=0.2 n=1" in shared.ok("ls", "--all", "--elements")


def test_exceptions_come_back_with_the_jobs_traceback(program: Program) -> None:
    said = program.run(
        "import carpool, work\n"
        "for job in (carpool.submit(work.fails, 'no'), carpool.submit(work.strange)):\n"
        "    try:\n        job.result()\n"
        "    except (ValueError, RuntimeError) as error:\n"
        "        print(type(error).__name__, error, 'work.py' in str(error.__cause__), job.info().outcome)\n"
    )
    assert said == "ValueError no True failed\nRuntimeError Strange: 1 True failed\n"


def test_commands_dependencies_cancellation_and_time(program: Program) -> None:
    said = program.run(
        "import carpool, pickle\n"
        "long = carpool.submit(['sleep', '600'], name='long')\n"
        "after = carpool.submit(['true'], after=[long])\n"
        "try:\n    long.wait(0.1)\nexcept TimeoutError as error:\n    print(error)\n"
        "long.cancel()\n"
        "for job in (long, pickle.loads(pickle.dumps(after))):\n"
        "    try:\n        job.result()\n    except carpool.JobFailed as error:\n        print(error.info.outcome)\n"
        "print(carpool.submit(['true']).result())\n"
    )
    lines = said.splitlines()
    assert "has not ended after 0.1 s" in lines[0]
    assert lines[1:] == ["cancelled", "refused", "None"]


def test_none_is_the_default_of_every_option(program: Program) -> None:
    said = program.run(
        "import carpool\n"
        "from carpool.tasks.submitting import JobOptions\n"
        "options = dict.fromkeys(JobOptions.__annotations__)\n"
        "print(carpool.submit(['true'], **options).result(), carpool.map(str, [1], **options)[0].result())\n"
    )
    assert said == "None 1\n"


def test_what_cannot_be_submitted_says_why_and_leaves_nothing(program: Program) -> None:
    said = program.run(
        "import carpool, work\n"
        "for call in (\n"
        "    lambda: carpool.submit(lambda: 1), lambda: carpool.submit('a b'),\n"
        "    lambda: carpool.submit(['no-program']),\n"
        "    lambda: carpool.submit(['true'], colour='red'), lambda: carpool.submit(work.square, 1, output='gone/x'),\n"
        "):\n"
        "    try:\n        call()\n    except (carpool.CannotSubmit, TypeError) as error:\n        print(error)\n"
    )
    lines = said.splitlines()
    assert "cannot be pickled" in lines[0] and "top level of a module" in lines[0]
    assert "a command is a list of words" in lines[1]
    assert "no command 'no-program'" in lines[2]
    assert "there is no option 'colour'; the options: name, iterations" in lines[3]
    assert "--output: there is no directory" in lines[4]
    assert program.tasks == []
    typed = "import carpool\ndef f(): pass\ntry: carpool.submit(f)\nexcept carpool.CannotSubmit as error: print(error)"
    assert "typed into an interactive session" in program.run("", "-c", typed)


def test_nothing_of_another_user_is_unpickled(tmp_path: Path) -> None:
    root = tmp_path / "tasks"
    task = transport.new_task(root)
    transport.write(task / "result", pickle.dumps(1))
    assert pickle.loads(transport.read(task / "result")) == 1
    (task / "result").chmod(0o620)
    with pytest.raises(PermissionError, match="nothing of it is unpickled"):
        transport.read(task / "result")
    (task / "result").chmod(0o600)
    (task / "link").symlink_to(task / "result")
    with pytest.raises(OSError, match="symbolic links"):
        transport.read(task / "link")
    task.chmod(0o770)
    with pytest.raises(PermissionError, match="others may use it"):
        transport.read(task / "result")
    task.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(task / "result", 65534, -1)
        with pytest.raises(PermissionError, match="belongs to another user"):
            transport.read(task / "result")
        os.chown(root, 65534, -1)
        with pytest.raises(PermissionError, match="belongs to another user"):
            transport.new_task(root)


def test_old_results_are_removed(tmp_path: Path) -> None:
    old, waiting, new = (transport.new_task(tmp_path / "tasks") for _ in range(3))
    for task in (old, new):
        transport.write(task / "result", b"")
    for task in (old, waiting):
        os.utime(task, (time.time() - transport.KEPT_S - 60,) * 2)
    transport.remove_old(tmp_path / "tasks")
    assert sorted((tmp_path / "tasks").iterdir()) == sorted([waiting, new])


def test_the_guide_names_every_keyword() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide.md").read_text()
    said = guide.partition("They take these keywords: ")[2].partition("which mean what")[0]
    assert set(re.findall(r"`([a-z_]+)`", said)) == set(JobOptions.__annotations__)
