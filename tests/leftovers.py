"""No test module leaves a process behind.

A worker of pytest-xdist marks what it starts with a number of its own, so it does not see what the others started.  It
may run the tests of a module in several parts, between which other modules come (``--dist worksteal``); each part is
checked at its end.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from carpool.daemon.cgroups.group import Group
from carpool.daemon.cgroups.hierarchies import hierarchies_here
from carpool.protocol.packets import readable

#: Inherited by everything that tests start, daemons and jobs included, so that leftovers can be told from strangers.
MARK = "CARPOOL_TEST_RUN"
RUN = uuid.uuid4().hex
#: How long a process that is about to end may take; measured from the end of the module.
PATIENCE_S = 5.0
#: Python's own helpers live as long as the test run.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
#: Processes of fixtures that live as long as the run.
kept: set[int] = set()
#: Control groups of daemons that are none of this run's.
groups_before: set[Path] = set()


def pytest_configure() -> None:
    os.environ[MARK] = RUN
    groups_before.update(_control_groups())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Daemons that tests have killed leave their control groups, empty, to a next daemon that never comes."""
    if hasattr(session.config, "workerinput"):
        return
    for group in _control_groups() - groups_before:
        with suppress(OSError):  # another run's daemon lives there
            Group(group).remove()


def _control_groups() -> set[Path]:
    here = hierarchies_here()
    own = [*here.legacy.values(), *([] if here.unified is None else [here.unified])]
    return {path for directory in own for path in directory.glob("carpool-*")}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """Any test may be the first in its worker that needs a fixture of the whole run."""
    if fixturedef.scope != "session":
        return (yield)
    before = marked_processes()
    result = yield
    kept.update(marked_processes() - before)
    return result


@pytest.fixture(scope="module", autouse=True)
def _no_leftover_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before and torn down after the module's own fixtures."""
    before = marked_processes()
    yield
    leftovers = [pid for pid in sorted(marked_processes() - before - kept) if not _ends(pid, PATIENCE_S)]
    names = [f"{pid}: {_command(pid)}" for pid in leftovers]
    for pid in leftovers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not names, f"{request.node.name} left processes behind:\n" + "\n".join(names)


def marked_processes() -> set[int]:
    """Those that this run, or this worker, has started."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if _is_marked(entry) and not any(helper in _command(int(entry.name)) for helper in HELPERS):
                found.add(int(entry.name))
    return found


def _is_marked(process: Path) -> bool:
    """A child in the middle of its exec has no environment yet.  Raises OSError."""
    environment = (process / "environ").read_bytes()
    if environment:
        return f"{MARK}={RUN}".encode() in environment.split(b"\0")
    state, parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[:2]
    return int(parent) == os.getpid() and state not in "ZX"


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
        return readable(handle, seconds)
    finally:
        os.close(handle)
