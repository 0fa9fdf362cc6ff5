"""The front's side of its workers: a socket to which they connect, and a handle on each."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from carpool.protocol.packets import STOPPED, stat_fields
from carpool.serve.oip.errors import (
    CodeChanged,
    ComputationLeft,
    ModelFailed,
    ModelTooLarge,
    StartError,
    UnknownModel,
    WorkerLost,
    WrongInput,
)
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import Tensor
from carpool.serve.prepare.subprocess import PreparedModel
from carpool.serve.wire.channel import SOCKET, TOKEN, AsyncChannel, peer
from carpool.serve.wire.messages import (
    Answer,
    Begun,
    Broken,
    Cost,
    Failed,
    Frame,
    FromWorker,
    Hello,
    Infer,
    Leave,
    Load,
    MakeWay,
    TooMuch,
    Unload,
    heads,
)

log = logging.getLogger(__name__)


_ERRORS = {
    error.kind: error for error in (WrongInput, UnknownModel, ModelFailed, ModelTooLarge, CodeChanged, ComputationLeft)
}

#: Time until accepting a worker is tried again.
_JAMMED_S = 1.0


class Handle:
    """A connected worker.  ``lost`` is set when it has died, or has sent an invalid message.

    ``cost``: of its latest batch; ``has_begun``: it has the turn for the batch that it computes.
    """

    def __init__(self, channel: AsyncChannel, pid: int) -> None:
        self.pid = pid
        self.lost = asyncio.Event()
        self.cost = Cost(0, 0, 0)
        self._channel = channel
        self._asked: dict[int, asyncio.Future[Any]] = {}  # by the number of the message
        self._numbers = count(1)
        self.has_begun = False
        self._computing: int | None = None  # the number of the message
        self._loop = asyncio.get_running_loop()
        self._process = _process(pid)
        if self._process is not None:  # children that outlive it may hold its end of the connection open
            self._loop.add_reader(self._process, self._lose)
        self._listening = self._loop.create_task(self._listen())

    async def load(self, name: str, prepared: PreparedModel) -> None:
        """Have the worker load a model, in place of one of this name.  Raises CodeChanged, ModelFailed, WorkerLost."""
        number = next(self._numbers)
        message = Load(number, name, prepared.entry, prepared.model.max_batch)
        await self._ask(number, lambda: self._channel.send(message, fd=prepared.image))

    async def unload(self, name: str) -> None:
        """Have the worker unload a model, after everything that was asked for before.  Raises WorkerLost."""
        self._check()
        self._channel.send(Unload(name))

    async def infer(self, model: str, requests: Sequence[InferRequest], deadline_us: int | None) -> list[list[Tensor]]:
        """Return the outputs of each request of a batch.  ``deadline_us``: on CLOCK_MONOTONIC.  One call at a time.

        Raises ComputationLeft after `leave`, WorkerLost, and other kinds of ServeError.  If the call is cancelled, the
        worker computes all the same.
        """
        assert self._computing is None, "a worker computes one batch at a time"
        inputs = [request.inputs for request in requests]
        number = next(self._numbers)
        message = Infer(number, model, heads(inputs), deadline_us)
        self._computing, self.has_begun = number, False
        try:
            answer: Frame = await self._ask(number, lambda: self._channel.send(message, inputs))
        except TooMuch as error:
            raise ModelFailed(str(error)) from None
        finally:
            self._computing = None
        if not isinstance(answer.message, Answer) or len(answer.requests) != len(requests):
            self._lose()
            raise WorkerLost(f"worker {self.pid} did not answer the request that it was sent")
        self.cost = answer.message.cost
        return answer.requests

    def leave(self) -> None:
        """Tell the worker that no client waits for its computation: it stops where the model can be left."""
        if self._computing is not None:
            self._channel.send(Leave(self._computing))

    def make_way(self) -> None:
        """Tell the worker that another model has less time: it gives its turn away where the model can be left."""
        if self._computing is not None:
            self._channel.send(MakeWay(self._computing))

    def is_stopped(self) -> bool:
        """Whether the process is stopped by a signal or a debugger."""
        return any(state in STOPPED for state in stat_fields(self.pid)[:1])

    def kill(self) -> None:
        """Kill the process, even if it is stopped: its turn is free at once."""
        if not self.lost.is_set() and self._process is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def close(self) -> None:
        """Hang up; the worker ends after its present computation."""
        self._listening.cancel()
        self._lose()

    async def _ask(self, number: int, send: Callable[[], None]) -> Any:
        self._check()
        answer = self._asked[number] = self._loop.create_future()
        try:
            send()
            return await answer
        finally:
            del self._asked[number]

    def _check(self) -> None:
        if self.lost.is_set():
            raise WorkerLost(f"worker {self.pid} has died")

    async def _listen(self) -> None:
        try:
            while frame := await self._channel.receive():
                self._hear(frame)
        except Broken as error:
            log.warning("worker %d: %s", self.pid, error)
        finally:
            self._lose()

    def _hear(self, frame: Frame) -> None:
        """Handle a message; an answer may no longer be waited for.  Raises Broken."""
        message = frame.message
        if isinstance(message, Hello):
            raise Broken("it says hello twice")
        if isinstance(message, Begun):
            self.has_begun = message.number == self._computing
            return
        answer = self._asked.get(message.number)
        if answer is None or answer.done():
            return
        if isinstance(message, Failed):
            answer.set_exception(_ERRORS[message.kind](message.text))
        else:
            answer.set_result(frame)

    def _lose(self) -> None:
        if self.lost.is_set():
            return
        self.lost.set()
        self._channel.close()
        if self._process is not None:
            self._loop.remove_reader(self._process)
            os.close(self._process)
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerLost(f"worker {self.pid} has died"))


def _process(pid: int) -> int | None:
    """Return a pidfd of the process; None if it has ended, or is not visible from here."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


class Expected(NamedTuple):
    """A worker that is to connect.  ``env``: additional variables for it; ``handle``: done when it is ready."""

    token: str
    env: dict[str, str]
    handle: asyncio.Future[Handle]


class WorkerSocket:
    """A listening socket in a directory of its own, which only this user may enter."""

    def __init__(self) -> None:
        """Listen.  Raises StartError."""
        self._loop = asyncio.get_running_loop()
        self._expected: dict[str, asyncio.Future[Handle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._knocking: set[AsyncChannel] = set()
        self._directory = Path(tempfile.mkdtemp(prefix="carpool-serve-"))
        self._path = self._directory / "door"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(str(self._path))
        except OSError as error:
            self._remove()
            raise StartError(
                f"workers cannot be waited for at {self._path}: {error}; set TMPDIR to another directory"
            ) from None
        self._listener.listen()
        self._begin(self._open())

    def expect(self) -> Expected:
        """Expect one more worker.  A caller that learns that it will not come cancels the future."""
        token = secrets.token_hex(32)
        handle = self._expected[token] = self._loop.create_future()
        handle.add_done_callback(lambda _: self._expected.pop(token, None))
        return Expected(token, {SOCKET: str(self._path), TOKEN: token}, handle)

    def close(self) -> None:
        """Stop listening; connected workers stay."""
        for task in self._tasks:
            task.cancel()
        for channel in self._knocking:
            channel.close()
        self._loop.remove_reader(self._listener)
        self._remove()
        for handle in list(self._expected.values()):
            handle.cancel()

    def _remove(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        self._directory.rmdir()

    async def _open(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:  # no free descriptor, or too little memory
                log.warning("no worker can be let in now: %s", error)
                await asyncio.sleep(_JAMMED_S)
                continue
            pid, uid = peer(connection)
            channel = AsyncChannel(connection, FromWorker)
            if uid != os.geteuid():
                channel.close()
                continue
            self._knocking.add(channel)
            self._begin(self._greet(channel, pid))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _greet(self, channel: AsyncChannel, pid: int) -> None:
        """Accept a worker that has a token."""
        handle = None
        try:
            frame = await channel.receive()
            handle = self._expected.get(frame.message.token) if frame and isinstance(frame.message, Hello) else None
        except Broken as error:
            log.warning("process %d is not let in as a worker: %s", pid, error)
        self._knocking.discard(channel)
        if handle is None or handle.done():
            channel.close()
        else:
            handle.set_result(Handle(channel, pid))
