"""Rules for all tests: no test module leaves a process behind, and none touches the user's own daemon."""

from __future__ import annotations

import os
import select
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from tests.stub.build import build_driver

ROOT = Path(__file__).resolve().parent.parent
#: Inherited by everything that tests start, daemons and jobs included, so that leftovers can be told from strangers.
MARK = "CARPOOL_TEST_RUN"
RUN = uuid.uuid4().hex
#: How long a process that is about to end may take; measured from the end of the module.
PATIENCE_S = 5.0
#: Python's own helpers live as long as the test run.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_configure() -> None:
    # No test depends on how fast a machine is.  Where a change is judged (CI) everybody's is by the same examples; all
    # other runs look for new ones.
    settings.register_profile("carpool", deadline=None, derandomize=bool(os.environ.get("CI")))
    settings.load_profile("carpool")
    os.environ[MARK] = RUN
    for name in ("CARPOOL_JOB", "CARPOOL_JOB_FD", "CARPOOL_JOB_PID"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that forgets to name a state directory gets an empty one, never the user's."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CARPOOL_HOME", str(tmp_path_factory.mktemp("home")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def stub_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub of NVIDIA's driver.  Its directory goes into LD_LIBRARY_PATH of processes that are to use it."""
    return build_driver(tmp_path_factory.mktemp("stub-driver"))


@pytest.fixture(scope="module", autouse=True)
def _no_leftover_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before and torn down after the module's own fixtures."""
    before = _marked_processes()
    yield
    leftovers = [pid for pid in sorted(_marked_processes() - before) if not _ends(pid, PATIENCE_S)]
    names = [f"{pid}: {_command(pid)}" for pid in leftovers]
    for pid in leftovers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not names, f"{request.node.name} left processes behind:\n" + "\n".join(names)


def _marked_processes() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            marked = f"{MARK}={RUN}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if marked and not any(helper in _command(int(entry.name)) for helper in HELPERS):
                found.add(int(entry.name))
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "(gone)"


def _ends(pid: int, seconds: float) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
