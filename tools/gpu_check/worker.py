"""A process with a context of its own that does as it is told: ``python -m tools.gpu_check.worker FD``.

Commands and answers are one JSON object per packet; a descriptor travels with the packet that speaks of it.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice, Mapped
from tools.gpu_check import kernels

MOST = 4096
STREAMS, BLOCKS, THREADS = 4, 32, 256


class Worker:
    """The other side: starts the process, sends commands, ends it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tools.gpu_check.worker", str(theirs.fileno())]
        descriptor, log = tempfile.mkstemp(".log", "cuda-worker-")
        os.close(descriptor)
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | {"CUDA_LOG_FILE": log})
        theirs.close()
        self.channel = ours
        self.channel.settimeout(60)

    def ask(self, command: str, fd: int | None = None, **arguments: int) -> tuple[Any, int | None]:
        """Its answer, and the descriptor that came with it.  Raises RuntimeError with what went wrong there."""
        packet = json.dumps({"command": command, **arguments}).encode()
        try:
            socket.send_fds(self.channel, [packet], [] if fd is None else [fd])
            data, fds, _, _ = socket.recv_fds(self.channel, MOST, 1)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            raise RuntimeError(f"the worker has ended, exit status {self.process.wait()}; its standard error says why")
        answer = json.loads(data)
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer["result"], fds[0] if fds else None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.channel.close()


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    made = [Worker() for _ in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            worker.kill()


class _Inside:
    """What the process can do.  ``at`` is the place of an extent in the order in which it was mapped."""

    def __init__(self) -> None:
        driver.start()
        self.gpu = DriverDevice(0)
        self.mapped: list[Mapped] = []

    def create(self, size: int) -> tuple[None, int]:
        return None, self.gpu.create(size)

    def map(self, size: int, fd: int) -> None:
        self.mapped.append(self.gpu.open(fd, size))
        os.close(fd)

    def unmap(self) -> None:
        """What was mapped last."""
        self.gpu.unmap(self.mapped.pop())

    def fill(self, at: int, value: int) -> None:
        extent = self.mapped[at]
        driver.call("cuMemsetD32Async", extent.address, value, extent.size // 4, self.gpu.stream())
        self.gpu.wait()

    def read(self, at: int) -> list[int]:
        extent = self.mapped[at]
        return self.words(extent.address, extent.size)

    def count_for_ever(self, at: int) -> bool:
        """Endless kernels, each of which counts in the extent's first words; whether the GPU is an emulated one."""
        self.gpu.stream()
        count = kernels.kernel(self.gpu, "count_for_ever")
        for _ in range(STREAMS):
            kernels.launch(count, (self.mapped[at].address, ctypes.c_void_p), BLOCKS, THREADS)
        return self.gpu.name == kernels.EMULATED

    def keep(self, size: int, value: int) -> int:
        """Plain memory of its own with a content; its address."""
        stream = self.gpu.stream()
        address = int(driver.call("cuMemAlloc", size))
        driver.call("cuMemsetD32Async", address, value, size // 4, stream)
        self.gpu.wait()
        return address

    def words(self, address: int, size: int) -> list[int]:
        """The first and the last word, and one in the middle."""
        self.gpu.stream()
        words = []
        for offset in (0, size // 2, size - 4):
            word = bytearray(4)
            driver.call("cuMemcpyDtoH", word, address + offset, 4)
            words.append(int.from_bytes(word, sys.byteorder))
        return words

    def take(self, size: int) -> None:
        """Plain memory of its own."""
        self.gpu.stream()
        driver.call("cuMemAlloc", size)

    def free(self) -> int:
        """Bytes that the driver says are free."""
        self.gpu.stream()
        return int(driver.call("cuMemGetInfo")[0])


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    inside = _Inside()
    while True:
        data, fds, _, _ = socket.recv_fds(channel, MOST, 1)
        if not data:
            return
        arguments = json.loads(data)
        try:
            result = getattr(inside, arguments.pop("command"))(**arguments, **({"fd": fds[0]} if fds else {}))
        except Exception as error:  # noqa: BLE001 - the other side reports it
            channel.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
            continue
        result, fd = result if isinstance(result, tuple) else (result, None)
        socket.send_fds(channel, [json.dumps({"result": result}).encode()], [] if fd is None else [fd])
        if fd is not None:
            os.close(fd)


if __name__ == "__main__":
    main()
