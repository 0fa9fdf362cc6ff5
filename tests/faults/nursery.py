"""Daemons with faults, as processes that tests can start, end and ask."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from carpool.protocol.packets import readable
from tests.daemon.daemon_harness import Connection, Daemon, Refused
from tests.daemon.forks import SOURCE, ForkedDaemon

INJECT = Path(__file__).with_name("inject.py")
#: Of every step.  A scenario without faults takes two seconds in all.
PATIENCE_S = 12.0


class Ended(Exception):
    """The daemon has ended."""


class Nursery:
    """Forks daemons with faults (`inject.py`).  ``preload``: a library that is loaded before all others."""

    def __init__(self, directory: Path, preload: Path | None = None) -> None:
        self._path = directory / "nursery"
        environment = os.environ | {"PYTHONPATH": str(SOURCE)} | ({"LD_PRELOAD": str(preload)} if preload else {})
        self._process = subprocess.Popen([sys.executable, str(INJECT), "nursery", str(self._path)], env=environment)

    def daemon(self, process: str, plan: Path, arguments: Sequence[str], ready_fd: int, stderr: int) -> ForkedDaemon:
        connection = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 5 * PATIENCE_S
        while connection.connect_ex(str(self._path)):
            assert self._process.poll() is None and time.monotonic() < deadline, "no nursery"
            time.sleep(0.02)  # it loads
        asked = {"process": process, "plan": str(plan), "arguments": list(arguments)}
        socket.send_fds(connection, [json.dumps(asked).encode()], [ready_fd, stderr])
        return ForkedDaemon(connection.detach())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Served(Daemon):
    """A daemon of the nursery."""

    def __init__(self, nursery: Nursery, home: Path, plan: Path) -> None:
        super().__init__(home, "--device", "host:16MiB", "--telemetry-interval", "100ms")
        self._nursery, self._plan = nursery, plan

    def begin(self, process: str) -> dict[str, Any]:
        """What it says when it is ready.  Raises Ended."""
        self._collect()
        read_end, write_end = os.pipe()
        with open(self.home.parent / "stderr", "ab") as stderr:
            arguments = ("--home", str(self.home), *self.arguments)
            self.process = self._nursery.daemon(process, self._plan, arguments, write_end, stderr.fileno())
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            line = pipe.readline() if readable(pipe.fileno(), PATIENCE_S) else b""
        answer = json.loads(line or b"{}")
        if not answer.get("ok"):
            raise Ended(str(answer.get("error") or "it says nothing"))
        return dict(answer)

    def _collect(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def request(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
        with closing(Connection(self.socket, PATIENCE_S)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers or {})
            response = connection.getresponse()
            answer = response.read()
            if response.status >= 400:
                raise Refused(response.status, json.loads(answer)["error"])
            return json.loads(answer) if response.headers.get_content_type() == "application/json" else answer

    def wait(self, job: int) -> dict[str, Any]:
        return dict(self.get(f"/v1/jobs/{job}/wait?timeout_s={PATIENCE_S / 2}"))
