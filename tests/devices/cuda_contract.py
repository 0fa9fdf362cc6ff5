"""The contract for CUDA devices, on any driver: the stub in ``test_cuda.py``, a GPU in ``tools/gpu_check``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from carpool.devices import memfd
from carpool.devices.base import Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice
from tests.devices.device_contract import CAPACITY, PATTERN, Contract, DeviceContract


def make_device() -> CudaDevice:
    """On the first GPU; it rests as soon as it may."""
    return CudaDevice("cuda0", CAPACITY, AgentLink(0, linger_s=0.0))


def agent_pid(device: CudaDevice) -> int:
    pid = device._link.pid
    assert pid is not None
    return pid


class AsJob:
    """A process that imports device memory, as a job would."""

    def __init__(self) -> None:
        self._link = AgentLink(0)
        self._next = 1

    def use(self, files: Sequence[Extent], size: int) -> bytes:
        """Fill the first bytes; returns what was there before."""
        store = memfd.create("job", size, sealed=True)
        try:
            place = 0
            for file in files:
                self._exchange(file, place, min(file.size, size - place), store)
                place += min(file.size, size - place)
            assert place == size, f"{size} bytes wanted, {place} there"
            return os.pread(store, size, 0)
        finally:
            os.close(store)

    def close(self) -> None:
        self._link.close()

    def _exchange(self, file: Extent, place: int, size: int, store: int) -> None:
        if not size:
            return
        number, self._next = self._next, self._next + 1
        filler = memfd.create("filler", size, sealed=True)
        os.pwrite(filler, PATTERN * size, 0)
        for host, offset, out in ((store, place, True), (filler, 0, False)):
            copy = messages.Copy(number, file.size, 0, 2 * number + out, offset, size, out)
            self._link.ask(copy, [file.fd, host])
        self._link.tell(messages.Forget([number], [2 * number, 2 * number + 1]))
        self._link.ask(messages.Check(file.size), [file.fd])  # by the time of the answer it has forgotten
        os.close(filler)


class OnCuda(Contract):
    """How the parts of the contract make a CUDA device, and use its memory."""

    @pytest.fixture(autouse=True)
    def _start_job(self, _use_driver: None) -> Iterator[None]:
        with closing(AsJob()) as self.job:
            yield

    @pytest.fixture
    def _use_driver(self) -> None:
        """Whatever has to be done before the driver is used."""

    def make(self) -> CudaDevice:
        return make_device()

    def use(self, files: Sequence[Extent], size: int) -> bytes:
        return self.job.use(files, size)


class CudaContract(OnCuda, DeviceContract):
    """All of it."""
