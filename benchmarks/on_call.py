"""The harness' side of `benchmarks.workloads.on_call`: a process that trains and computes as it is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.jobs import TIMEOUT_S, environment
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient

ROOT = Path(__file__).resolve().parent.parent


class OnCall:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile()
        self._read()  # it is ready

    def tell(self, word: str) -> dict[str, Any]:
        """Returns its answer.  Raises RuntimeError if it has ended."""
        self._connection.sendall(f"{word}\n".encode())
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the process that trains has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


class Listener:
    """A socket for such processes, in a directory of the caller's.  ``device``: theirs, as PyTorch calls it."""

    def __init__(self, directory: Path, device: str = "cpu") -> None:
        self._device = device
        self._path = directory / "on-call"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.bind(str(self._path))
        self._socket.listen()

    def close(self) -> None:
        self._socket.close()
        self._path.unlink()

    def argv(self, *model: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.workloads.on_call", str(self._path), self._device, *model]

    def accept(self) -> OnCall:
        """The next one that comes; they must be started one after the other."""
        connection, _ = self._socket.accept()
        connection.settimeout(TIMEOUT_S)
        return OnCall(connection)

    @contextmanager
    def job(self, client: DaemonClient) -> Iterator[OnCall]:
        """As a job of a daemon, which ends with it."""
        client.submit(SubmitRequest(argv=self.argv(), cwd=str(ROOT), env=environment()))
        one = self.accept()
        try:
            yield one
        finally:
            one.close()

    @contextmanager
    def plain(self, *model: str, core: int | None = None) -> Iterator[OnCall]:
        """Without Carpool.  ``core``: the only one that it may use."""
        process = subprocess.Popen(self.argv(*model), cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL)
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        one = self.accept()
        try:
            yield one
        finally:
            one.close()
            process.terminate()
            process.wait()


def seconds(one: OnCall, word: str) -> float:
    begin = time.monotonic()
    one.tell(word)
    return time.monotonic() - begin
