"""Notices of a daemon that a user who is not root starts, as `carpool install-unit --user` has systemd do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.users import python
from tests.daemon.hooks.test_notices import WebServer, settled, web
from tests.daemon.privileges.conftest import OTHER, UserDaemon, carpool
from tests.homes import home_directory

__all__ = ["python", "web"]

AS_USER: dict[str, Any] = {"user": OTHER, "group": OTHER, "extra_groups": []}


class PlainDaemon(UserDaemon):
    """Started as the unit starts it: the interpreter, the module and the home, by the user."""

    def __init__(self, python: str, home: Path) -> None:
        super().__init__(python, home)
        self.arguments = ("--device", "host:64MiB")
        self.started_by = AS_USER


@pytest.fixture
def daemon(python: str) -> Iterator[PlainDaemon]:
    with home_directory() as directory:
        os.chown(directory, OTHER, OTHER)
        daemon = PlainDaemon(python, directory / "home").started()
        yield daemon
        daemon.stop()
        assert "Traceback" not in daemon.log(), daemon.log()


def test_a_command_and_a_web_server_are_told(daemon: PlainDaemon, web: WebServer) -> None:
    pipe = daemon.home.parent / "pipe"
    os.mkfifo(pipe)
    os.chown(pipe, OTHER, OTHER)
    script = 'echo "$CARPOOL_EVENT $CARPOOL_JOB_ID $CARPOOL_JOB_OUTCOME $(id -u) $(pwd)" > pipe'
    command = f"exec:{shlex.join(['sh', '-c', script])}"
    words = ("submit", "--notify", command, "--notify", f"webhook:{web.url}", "--notify-on", "end", "--", "true")
    submitted = carpool(daemon.python_path, daemon.home, *words, **AS_USER)
    assert submitted.returncode == 0, submitted.stderr
    job = int(submitted.stdout.split()[-1])
    assert pipe.read_text() == f"end {job} succeeded {OTHER} {daemon.home.parent}\n"
    assert ((told := web.next())["event"], told["job"], told["outcome"]) == ("end", job, "succeeded")
    assert [notice["state"] for notice in settled(daemon, job)] == ["sent", "sent"]
