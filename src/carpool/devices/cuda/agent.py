"""The device agent: one small process per GPU, which has the only context there beside the jobs' contexts.

The agent makes device memory for the daemon and copies it to pinned host memory and back.  It owns nothing: extents are
descriptors that the daemon and the shims hold, so an agent that dies costs a context and the pins, and the next one
goes on.  An agent ends when the daemon's end of the socket is closed.

Run by `carpool.devices.cuda.agent_link` as
``python -P -m carpool.devices.cuda.agent SOCKET_FD DEVICE LINGER_S [whole]``.

Not yet run on a GPU.
"""

from __future__ import annotations

import operator
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from carpool.devices.base import DeviceError
from carpool.devices.cuda import checkpoint, driver, messages
from carpool.devices.cuda.memory import DriverDevice, Mapped
from carpool.devices.cuda.pinned import PinnedStore, PinningAhead
from carpool.devices.cuda.zeros import BLOCK, ZeroFinder, split, whole_blocks
from carpool.protocol import packets
from carpool.telemetry.nvml import beside, full_name

#: CUDA errors after which nothing works any more in the context where they happened.
_SPOILED = (214, 700, 702, 709, 710, *range(714, 720))


class Agent:
    """Carries out requests.  Extents and stores stay mapped from their first copy until they are forgotten.

    ``whole``: copies leave no zeros out.
    """

    def __init__(self, gpu: DriverDevice, *, whole: bool = False) -> None:
        self._gpu = gpu
        self._extents: dict[int, Mapped] = {}
        self._stores: dict[int, PinnedStore] = {}
        self._ahead = PinningAhead(gpu)
        self._zeros = ZeroFinder(gpu, off=whole)

    def ready(self) -> messages.Ready:
        """Return the agent's first message.  Raises DeviceError."""
        gpu, name = self._gpu, full_name(self._gpu.uuid)
        able = checkpoint.supported()
        return messages.Ready(messages.VERSION, gpu.name, gpu.memory, gpu.granularity, name, able, beside(name))

    def handle(self, request: messages.Asking, fds: list[int]) -> tuple[messages.Answer, list[int]]:
        """Return the answer and its descriptors, which the caller closes.  Raises DeviceError, OSError, ValueError."""
        match request:
            case messages.Create(size):
                return messages.Created(), [self._gpu.create(size)]
            case messages.Room(size):
                os.close(self._gpu.create(size))
                return messages.Done(), []
            case messages.Check(size):
                self._gpu.unmap(self._gpu.open(_only(fds), size))
                return messages.Done(), []
            case messages.Hear():
                return messages.Done(), []
            case messages.Copy():
                self._copy(request, fds)
                return messages.Done(), []

    def pin_ahead(self, request: messages.PinAhead, fds: list[int]) -> None:
        """Begin to pin a store ahead; if that fails, the first copy is slower, and reports the error."""
        with suppress(DeviceError, OSError, ValueError):
            self._ahead.begin(self._store(request.store, _only(fds)), request.size)

    def forget(self, extents: list[int], stores: list[int]) -> None:
        """Unmap extents and unpin stores, by their numbers; unknown numbers are not an error."""
        for number in extents:
            mapped = self._extents.pop(number, None)
            if mapped is not None:
                self._gpu.unmap(mapped)
        for number in stores:
            store = self._stores.pop(number, None)
            if store is not None:
                self._ahead.leave(store)
                store.close()

    def rest(self) -> None:
        """Release everything that costs memory."""
        self.close()
        self.forget(list(self._extents), list(self._stores))
        self._zeros.close()
        self._gpu.rest()

    def close(self) -> None:
        """Pin no more."""
        self._ahead.stop()

    def _copy(self, request: messages.Copy, fds: list[int]) -> None:
        if len(fds) != 2:
            raise ValueError(f"a copy needs two descriptors, not {len(fds)}")
        address = self._extent(request.extent, fds[0], request.extent_size) + request.extent_offset
        if not 0 <= request.extent_offset <= request.extent_offset + request.size <= request.extent_size:
            raise ValueError("a copy beyond the extent")
        store = self._store(request.store, fds[1])
        self._ahead.leave(store)
        begin, end = request.store_offset, request.store_offset + request.size
        if request.out:
            self._copy_out(store, begin, end, address - begin)
        else:
            self._copy_in(store, begin, end, address - begin)

    def _copy_out(self, store: PinnedStore, begin: int, end: int, base: int) -> None:
        """Copy what is not zero on both sides.  ``base``: the address to which the store's offsets are added."""
        blocks = whole_blocks(begin, end)
        zero = self._zeros.find(base + blocks.start * BLOCK, len(blocks))
        left = bytes(map(operator.and_, zero, store.zero(begin, end)))
        store.written(begin, end)
        try:
            for start, stop, skip in split(begin, end, left):
                if not skip:
                    self._copy_part(self._gpu.copy_out, store, start, stop, base)
        finally:
            self._gpu.wait()
        store.cleared(begin, zero)

    def _copy_in(self, store: PinnedStore, begin: int, end: int, base: int) -> None:
        """Copy what may not be zero in the store, and clear the rest."""
        try:
            for start, stop, zero in split(begin, end, store.zero(begin, end)):
                if zero:
                    self._gpu.clear(base + start, stop - start)
                else:
                    self._copy_part(self._gpu.copy_in, store, start, stop, base)
        finally:
            self._gpu.wait()

    def _copy_part(
        self, copy: Callable[[int, int, int], None], store: PinnedStore, begin: int, end: int, base: int
    ) -> None:
        for done, host, size in store.pieces(begin, end - begin):
            copy(base + begin + done, host, size)

    def _extent(self, number: int, fd: int, size: int) -> int:
        """Return the address of an extent, mapped at its first use."""
        if number not in self._extents:
            self._extents[number] = self._gpu.open(fd, size)
        return self._extents[number].address

    def _store(self, number: int, fd: int) -> PinnedStore:
        if number not in self._stores:
            self._stores[number] = PinnedStore(self._gpu, fd)
        return self._stores[number]


def serve(connection: socket.socket, agent: Agent, linger_s: float) -> None:
    """Answer requests until the other end is closed.  ``linger_s``: how long to wait before resting.

    Raises DeviceError when this process cannot go on: the next agent begins anew.
    """
    while True:
        try:
            received = packets.receive(connection, messages.decode_request)
        except (TimeoutError, BlockingIOError):  # the latter without any time
            agent.rest()
            connection.settimeout(None)
            continue
        if received is None:
            return
        request, fds = received
        try:
            _carry_out(connection, agent, request, fds)
        finally:
            _close(fds)
        connection.settimeout(linger_s if isinstance(request, messages.Rest) else None)


def _carry_out(connection: socket.socket, agent: Agent, request: messages.Request, fds: list[int]) -> None:
    match request:
        case messages.PinAhead():
            agent.pin_ahead(request, fds)
        case messages.Forget():
            agent.forget(request.extents, request.stores)
        case messages.Rest():
            pass  # later
        case _:
            _answer(connection, agent, request, fds)


def _answer(connection: socket.socket, agent: Agent, request: messages.Asking, fds: list[int]) -> None:
    made: list[int] = []
    try:
        answer, made = agent.handle(request, fds)
    except (DeviceError, OSError, ValueError) as error:
        _send(connection, failure(error), [])
        if isinstance(error, driver.DriverError) and _spoiled(error):
            raise
        return
    try:
        _send(connection, answer, made)
    finally:
        _close(made)


def _spoiled(error: driver.DriverError) -> bool:
    """Whether the context may be unusable after this error, and with it this process."""
    return error.code in _SPOILED or error.function == "cuStreamSynchronize"


def failure(error: Exception) -> messages.Failed:
    """Return an error as a message."""
    if isinstance(error, driver.DriverError):
        return messages.Failed(error.text, error.function, error.code, error.name)
    return messages.Failed(str(error))


def _send(connection: socket.socket, answer: messages.Answer, fds: list[int]) -> None:
    packets.send(connection, messages.encode(answer), fds)


def _only(fds: list[int]) -> int:
    if len(fds) != 1:
        raise ValueError(f"one descriptor is needed, not {len(fds)}")
    return fds[0]


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def main(arguments: list[str]) -> int:
    """Serve one GPU until the daemon closes its end of the socket.  Returns the exit status; 1: the GPU cannot be used.

    ``arguments``: the socket's descriptor, the GPU's ordinal, for how many seconds an idle agent keeps its context, and
    "whole" if copies leave nothing out.
    """
    connection, ordinal, linger_s = socket.socket(fileno=int(arguments[0])), int(arguments[1]), float(arguments[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which closes the socket
    try:
        driver.start()
        agent = Agent(DriverDevice(ordinal), whole=arguments[3:] == ["whole"])
    except DeviceError as error:
        _send(connection, failure(error), [])
        return 1
    try:
        _send(connection, agent.ready(), [])
        serve(connection, agent, linger_s)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the daemon is gone
    finally:
        agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
