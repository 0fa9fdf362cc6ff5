"""PyTorch's CUDA build on emulated GPUs whose kernels compute nothing: what is left is what the CPU does for a launch.

`make emulated-gpu` makes the environment.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Skipped
from benchmarks.jobs import TIMEOUT_S, WORKLOADS, environment
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session
from tools.emulator.environment import VENV, libraries_of, variables

ROOT = Path(__file__).resolve().parents[1]
PYTHON = str(VENV / "bin" / "python")
MEMORY = "1GiB"


@dataclass(frozen=True)
class Loop:
    """A process of `launches.py` that waits for numbers of iterations; ``begun``: when it was asked for, seconds."""

    connection: socket.socket
    begun: float

    def ask(self, count: int) -> None:
        self.connection.sendall(f"{count}\n".encode())

    def answer(self) -> tuple[float, float]:
        """Seconds of the iterations, and from ``begun`` to the end of the process's first one."""
        text = b""
        while not text.endswith(b"\n"):
            part = self.connection.recv(4096)
            if not part:
                raise RuntimeError("a loop ended while it was measured")
            text += part
        seconds, first = json.loads(text)
        return float(seconds), float(first) - self.begun

    def seconds(self, count: int) -> float:
        self.ask(count)
        return self.answer()[0]


class Loops:
    """Starts loops, each without Carpool on a GPU of its own, or as a job; all end with the ``with`` block."""

    def __init__(self, stack: ExitStack, more: dict[str, str]) -> None:
        """``more``: of the loops' environment."""
        if not libraries_of(VENV).is_dir():
            raise Skipped("there is no emulated GPU: run `make emulated-gpu`")
        self._stack, self._more = stack, more
        self._place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carpool-", dir="/dev/shm")))
        self._listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(self._place / "loops"))
        self._listener.listen()
        self._listener.settimeout(TIMEOUT_S)
        self._count = 0

    def bare(self, kind: str) -> Loop:
        self._count += 1
        begun = time.monotonic()
        process = subprocess.Popen(self._command(kind), env=self._environment(f"bare{self._count}"))
        self._stack.callback(process.wait)
        return self._accepted(begun)

    def daemon(self, **settings: int) -> DaemonClient:
        """With an emulated GPU."""
        self._count += 1
        for name, value in self._environment("shared").items():
            if name.startswith(("EMULATOR_", "LD_")):
                self._stack.callback(os.environ.pop, name, None)
                os.environ[name] = value
        return self._stack.enter_context(Session(self._place / f"d{self._count}", ["cuda:0"], "fair", settings))

    def job(self, client: DaemonClient, kind: str) -> Loop:
        begun = time.monotonic()
        self.submit(client, self._command(kind))
        return self._accepted(begun)

    def submit(self, client: DaemonClient, command: list[str]) -> int:
        return client.submit(SubmitRequest(argv=command, cwd=str(WORKLOADS), env=self._environment("shared")))

    def _command(self, kind: str) -> list[str]:
        return [PYTHON, str(WORKLOADS / "launches.py"), str(self._place / "loops"), kind]

    def _environment(self, gpu: str) -> dict[str, str]:
        base = environment() | {"EMULATOR_RESULTS": "0"} | self._more
        return variables(VENV, MEMORY, self._place / gpu, base)

    def _accepted(self, begun: float) -> Loop:
        connection = self._stack.enter_context(self._listener.accept()[0])
        connection.settimeout(TIMEOUT_S)
        return Loop(connection, begun)


@contextmanager
def loops(**more: str) -> Iterator[Loops]:
    with ExitStack() as stack:
        yield Loops(stack, more)


def on_gpu(code: str) -> Any:
    """What Python code prints, as JSON, that may import the tests; on an emulated GPU of its own."""
    place = tempfile.mkdtemp(prefix="carpool-", dir="/dev/shm")
    try:
        base = environment() | {"EMULATOR_RESULTS": "0", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        env = variables(VENV, MEMORY, Path(place), base)
        done = subprocess.run([PYTHON, "-c", code], env=env, capture_output=True, text=True, timeout=600, check=False)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode:
        raise RuntimeError(f"it ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
