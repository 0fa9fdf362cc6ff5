"""The commands of docs/ray.md, with a node that `ray start` starts."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from carpool.protocol.packets import readable
from tests.live import PATIENCE_S
from tests.pages import does_what_it_says
from tests.ports import free_port
from tests.ray_cluster.test_endings import STAYS

#: The node of the page, in the foreground of a session of its own, so that a test can end it and nothing else.
RAY = """#!/bin/sh
setsid {python} -m ray.scripts.scripts "$@" --block --port={port} --temp-dir={directory}/state \\
  --include-dashboard=false --disable-usage-stats > {directory}/ray.log 2>&1 < /dev/null &
echo $! > {directory}/ray.pid
until grep -q "Ray runtime started" {directory}/ray.log; do
  kill -0 $! || {{ cat {directory}/ray.log; exit 1; }}
  sleep 0.1
done
"""
COMMAND = '#!/bin/sh\nexec {python} {words} "$@"\n'


def write_commands(directory: Path, port: int) -> None:
    words = {"python": shlex.quote(sys.executable), "directory": directory, "port": port}
    texts = {"ray": RAY, "python": COMMAND.replace("{words} ", ""), "carpool": COMMAND}
    for name, text in texts.items():
        (directory / name).write_text(text.format(**words, words="-m carpool.cli"))
        (directory / name).chmod(0o755)


def end_session(leader: int) -> None:
    """`ray start --block` ends all that it has started.  Raises ProcessLookupError."""
    pidfd = os.pidfd_open(leader)
    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    assert readable(pidfd, PATIENCE_S)
    os.close(pidfd)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with the commands in it; what runs there is ended."""
    directory = Path(tempfile.mkdtemp(prefix="cp-"))  # short: paths of sockets are limited to 107 bytes
    yield directory
    with suppress(FileNotFoundError, ProcessLookupError):
        end_session(int((directory / "ray.pid").read_text()))
    subprocess.run([directory / "carpool", "down", "--home", directory / "home"], check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.nightly("a node of Ray's, and two actors: half a minute", stays=STAYS)
def test_the_guide_does_what_it_says(place: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (make ray)")
    port = free_port()
    write_commands(place, port)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "PYTEST_"))}
    environment = {
        **ours,
        "PATH": f"{place}:{os.environ['PATH']}",
        "CARPOOL_HOME": str(place / "home"),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "HOME": str(place),  # Ray puts its token there
        "RAY_worker_niceness": "0",
    }
    does_what_it_says("ray.md", place, environment, least=2)
