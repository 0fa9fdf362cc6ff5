"""The daemon's end of a device agent: starts an agent, asks it, and starts another one when it has died.

A request blocks until it is answered.  That is milliseconds for what the daemon's loop asks (an agent creates and
clears some hundred GB in a second, and an extent is a small part of a device); copies are asked for in pieces and from
a thread, so that they delay the loop by one piece at most.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from carpool.devices.base import DeviceError
from carpool.devices.cuda import messages
from carpool.devices.cuda.driver import DriverError
from carpool.protocol import packets

log = logging.getLogger(__name__)

#: A driver that takes longer than this is taken for one that hangs: the same lease as a job has for its turn, since
#: the daemon's loop waits.  An extent, or a piece of a copy, takes a fraction of a second, a context that is made again
#: about one; what takes longest are messages without an answer before: unpinning hundreds of GB of host stores.
ANSWER_S = 10.0
#: Until an agent is ready: an interpreter starts, and a driver that is not kept loaded initialises every GPU of the
#: machine, for seconds each.
START_S = 30.0
#: An agent whose socket has been closed has nothing left to do.
END_S = 5.0
#: How long to wait for the end of a killed agent.
KILLED_S = 1.0
LINGER_S = 5.0
AGENT = "carpool.devices.cuda.agent"


class AgentDied(DeviceError):
    """The agent has ended, or has not answered in `ANSWER_S`; `AgentLink.ask` starts another and asks again."""


class AgentLink:
    """One agent at a time; the first one is started at once and found ready at the first request."""

    def __init__(
        self,
        ordinal: int,
        *,
        linger_s: float = LINGER_S,
        answer_s: float = ANSWER_S,
        visible: str = "",
    ) -> None:
        """``visible``: the only device that the agent is to see, and thus its number 0."""
        self._ordinal = ordinal
        self._visible = visible
        self._linger_s = linger_s
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._ready: messages.Ready | None = None
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._whole = False  # agents leave nothing out of copies, since one has failed
        self._spawn()

    @property
    def pid(self) -> int | None:
        """The process id of the agent; None if none runs."""
        return self._process.pid if self._process is not None else None

    def ready(self) -> messages.Ready:
        """Return the agent's message about its device; start the agent if necessary.  Raises DeviceError."""
        with self._lock:
            return self._started()

    def ask(self, request: messages.Asking, fds: Sequence[int] = ()) -> list[int]:
        """Send a request; return the answer's descriptors, which the caller owns.  Raises DeviceError, DriverError.

        If the agent has died, or dies of the request, another agent is asked once more.
        """
        with self._lock:
            try:
                return self._ask(request, fds)
            except AgentDied as error:
                log.warning("%s; starting another one", error)
                return self._ask(request, fds)

    def tell(self, message: messages.Telling, fds: Sequence[int] = ()) -> None:
        """Send a message without an answer.  A dead agent needs none: its mappings and pins ended with it."""
        with self._lock:
            if self._socket is None:
                return
            try:
                packets.send(self._socket, messages.encode(message), fds)
            except OSError:
                self._end()

    def close(self) -> None:
        """End the agent for good."""
        with self._lock:
            self._closed = True
            self._end()

    def _ask(self, request: messages.Asking, fds: Sequence[int]) -> list[int]:
        self._started()
        assert self._socket is not None
        try:
            packets.send(self._socket, messages.encode(request), fds)
        except OSError as error:
            raise self._died(str(error)) from None
        try:
            return self._answered()
        except DeviceError:
            self._whole |= isinstance(request, messages.Copy) and request.out
            raise

    def _answered(self) -> list[int]:
        answer, made = self._receive(self._answer_s)
        if isinstance(answer, messages.Failed):
            raise _error(answer)
        return made

    def _started(self) -> messages.Ready:
        """Return the message of an agent that is ready; start the agent if necessary.  Raises DeviceError."""
        if self._closed:
            raise DeviceError(f"the device agent of GPU {self._ordinal} has been closed")
        if self._process is None:
            self._spawn()
        if self._ready is None:
            answer, _ = self._receive(START_S)
            if isinstance(answer, messages.Ready) and answer.version == messages.VERSION:
                self._ready = answer
                return answer
            self._end()
            if isinstance(answer, messages.Failed):
                raise _error(answer)
            raise DeviceError(f"the device agent of GPU {self._ordinal} is of another version of Carpool")
        return self._ready

    def _receive(self, patience_s: float) -> tuple[messages.Answer, list[int]]:
        assert self._socket is not None
        self._socket.settimeout(patience_s)
        try:
            received = packets.receive(self._socket, messages.decode_answer)
        except TimeoutError:
            self._end()  # and no other agent is asked: the driver hangs
            raise DeviceError(f"the device agent of GPU {self._ordinal}: no answer in {patience_s:.0f} s") from None
        except OSError as error:
            raise self._died(str(error)) from None
        except packets.MalformedPacket as error:
            raise self._died(f"its answer cannot be read: {error}") from None
        if received is None:
            raise self._died("it ended")
        return received

    def _died(self, why: str) -> AgentDied:
        self._end()
        return AgentDied(f"the device agent of GPU {self._ordinal} does not work: {why}")

    def _spawn(self) -> None:
        ours, agents = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with agents:
            words = [str(agents.fileno()), str(self._ordinal), str(self._linger_s), *["whole"][: self._whole]]
            visible = {"CUDA_VISIBLE_DEVICES": self._visible} if self._visible else {}
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", AGENT, *words],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[agents.fileno()],
                    env=os.environ | visible,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise DeviceError(f"cannot start the device agent of GPU {self._ordinal}: {error}") from None
        self._socket = ours

    def _end(self) -> None:
        """Close the agent's socket, which ends the agent; kill an agent that hangs in the driver.

        An agent that sleeps in the driver's kernel module ends when the module returns, which is not waited for.
        """
        if self._socket is not None:
            self._socket.close()
        process, self._socket, self._process, self._ready = self._process, None, None, None
        if process is None:
            return
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILLED_S)


def _error(failed: messages.Failed) -> DeviceError:
    if not failed.function:
        return DeviceError(failed.text)
    return DriverError(failed.function, failed.code, failed.name, failed.text)
