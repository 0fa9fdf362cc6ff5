"""Processes that use the stub driver, for tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from carpool.protocol.packets import readable

WORKER = Path(__file__).with_name("worker.py")
#: No request of a test takes longer.
PATIENCE_S = 30.0


def stub_environment(library: Path, state: Path, devices: str = "64MiB", **more: str) -> dict[str, str]:
    """The environment of a process that finds the stub ``library`` as libcuda.so.1 and shares ``state`` with others.

    Contexts take nothing, because tests of the driver count bytes.
    """
    return {
        **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
        "LD_LIBRARY_PATH": str(library.parent),
        "EMULATOR_STATE": str(state),
        "EMULATOR_DEVICES": devices,
        "EMULATOR_CONTEXT": "0",
        **more,
    }


class WorkerError(Exception):
    """The text that a worker was to run raised this."""


class Worker:
    """A second process that runs what it is told (see worker.py) and answers; use it in a ``with`` statement."""

    def __init__(self, environment: Mapping[str, str], start: str = "begin()") -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE_S)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()]
            )
        self.fds: list[int] = []
        self.run(start)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        for fd in self.fds:
            os.close(fd)
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def send(self, text: str, fds: Sequence[int] = ()) -> None:
        socket.send_fds(self._channel, [text.encode()], list(fds))

    def receive(self) -> Any:
        """The answer to what was sent; raises WorkerError, and ConnectionError if the worker is gone."""
        data, fds, _, _ = socket.recv_fds(self._channel, 65536, 8)
        self.fds += fds
        if not data:
            raise ConnectionError("the worker has ended")
        answer = json.loads(data)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["value"]

    def silent(self) -> bool:
        """Whether no answer has come yet."""
        return not readable(self._channel.fileno(), 0.1)

    def run(self, text: str, fds: Sequence[int] = ()) -> Any:
        self.send(text, fds)
        return self.receive()

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def free(self) -> int:
        """Free device memory in bytes, as this process sees it."""
        return int(self.run("ok(driver.cuMemGetInfo())[0]"))


#: Starts a worker: see the fixture ``start``.
Start = Callable[..., Worker]
