"""Starts workers as jobs of the daemon, which is needed for nothing else, and asks the daemon for models.

The protocols say what the front needs, so that tests can replace it.

The properties that models must have in common to share worker processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.client import DaemonClient
from carpool.protocol.models import ModelInfo, ModelRequest, ModelState
from carpool.protocol.unix_http import ApiError, ClientError

#: Variables that shells, terminals and sessions set for themselves: they differ, and mean nothing to a model.
_OF_SESSIONS = frozenset(
    [
        "_",
        "COLUMNS",
        "DISPLAY",
        "LINES",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "SSH_AUTH_SOCK",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "STY",
        "TERM",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "VTE_VERSION",
        "WINDOW",
        "WINDOWID",
        "XDG_SESSION_ID",
    ]
)


@dataclass(frozen=True, slots=True)
class Environment:
    """The place of workers and their priority among services, the same for all models of a process."""

    python: str
    cwd: str
    priority: int
    variables: tuple[tuple[str, str], ...] = field(repr=False)  # secrets may be among them

    @classmethod
    def of(cls, spec: ModelRequest) -> Environment:
        """Return the environment that a model needs, without the variables of a session."""
        variables = ((name, value) for name, value in spec.env.items() if name not in _OF_SESSIONS)
        return cls(spec.python, spec.cwd, spec.priority, tuple(sorted(variables)))


log = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT_S = 10.0  # for one answer of the daemon
NOT_FOUND = 404
SERVER_ERROR = 500  # and above: the daemon cannot answer at present
GPU = "cuda"  # the device kind of GPUs
POLL_S = 0.5  # between two looks at a worker that has not connected yet


class CannotStart(Exception):
    """A worker could not be started, or ended before it was ready.  The text is for users."""


class WorkerJob(Protocol):
    """A process that was started.  ``name`` is for users."""

    name: str

    async def ended(self) -> str:
        """Wait until the process has ended, and return how, for users."""

    async def cancel(self) -> None:
        """Ask the process to end; does nothing if it has ended."""


class Launcher(Protocol):
    """Starts jobs that are workers."""

    async def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], name: str, priority: int) -> WorkerJob:
        """Start a worker.  ``priority``: among services.  Raises CannotStart."""


class ModelRegistry(Protocol):
    """The daemon's registry of models.  Every method may raise ClientError."""

    async def models(self) -> list[ModelInfo]:
        """Return the models of this process's owner."""

    async def environment(self, name: str) -> dict[str, str]:
        """Return a model's environment, secrets included."""

    async def report(self, states: Mapping[str, ModelState]) -> None:
        """Report the states of the models that this process serves.

        The report counts until the next one, or this process's end.
        """

    async def on_gpus(self) -> bool:
        """Whether all workers are on GPUs, because there are no other devices."""


class DaemonQueries:
    """Asks the daemon from the event loop.  Every query uses a connection of its own, in a thread."""

    def __init__(self, home: Path, *, poll_s: float = POLL_S) -> None:
        self.poll_s = poll_s
        self._home = home

    async def ask(self, question: Callable[[DaemonClient], T]) -> T:
        """Run ``question`` with a client in a thread, and return its result.  Raises ClientError."""

        def asked() -> T:
            with self.client() as client:
                return question(client)

        return await asyncio.to_thread(asked)

    def client(self) -> DaemonClient:
        """Return a client that has not connected yet."""
        return DaemonClient(self._home, timeout_s=TIMEOUT_S)


class DaemonRegistry:
    """The registered models of one owner, and the devices.  `close` it at the end."""

    def __init__(self, daemon: DaemonQueries, owner: int) -> None:
        self._daemon = daemon
        self._owner = owner
        self._lasting = daemon.client()  # a report counts as long as its connection is open

    async def models(self) -> list[ModelInfo]:
        """Return the owner's models; the daemon tells administrators of all users' models.  Raises ClientError."""
        return [info for info in await self._daemon.ask(DaemonClient.models) if info.owner == self._owner]

    async def environment(self, name: str) -> dict[str, str]:
        """Return a model's environment.  Raises ClientError."""
        return await self._daemon.ask(lambda client: client.model_environment(name))

    async def report(self, states: Mapping[str, ModelState]) -> None:
        """Report states.

        Raises ClientError, also if the connection was to an earlier daemon: the next report reconnects.
        """
        await asyncio.to_thread(self._lasting.report_serving, states)

    async def on_gpus(self) -> bool:
        """Whether all devices are GPUs.  Raises ClientError."""
        return {device.kind for device in await self._daemon.ask(DaemonClient.devices)} == {GPU}

    def close(self) -> None:
        """Close the connection, after which the daemon takes the models for not served."""
        self._lasting.close()


class DaemonLauncher:
    """Submits workers to the daemon, as services."""

    def __init__(self, daemon: DaemonQueries) -> None:
        self._daemon = daemon

    async def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], name: str, priority: int) -> DaemonJob:
        """Submit a worker.  Raises CannotStart.  A cancelled call leaves no job behind."""
        return await self.submit(SubmitRequest(list(argv), cwd, dict(env), name=name, service=priority))

    async def left(self) -> list[tuple[JobInfo, DaemonJob]]:
        """Return the user's engines that run and that no front serves: an earlier front was killed."""

        def asked(client: DaemonClient) -> list[JobInfo]:
            served = {each.report.job for each in client.engines() if each.owner == os.geteuid()}
            engines = [info for info in client.jobs() if info.engine and info.owner == os.geteuid()]
            return [info for info in engines if info.outcome is None and info.id not in served]

        try:
            return [(info, DaemonJob(self._daemon, info.id)) for info in await self._daemon.ask(asked)]
        except ClientError as error:
            log.info("engines of an earlier server are not taken over: %s", error)
            return []

    async def submit(self, request: SubmitRequest) -> DaemonJob:
        """Submit a service.  Raises CannotStart.  A cancelled call leaves no job behind."""
        submitting = asyncio.create_task(self._daemon.ask(lambda client: client.submit(request)))
        try:
            return DaemonJob(self._daemon, await asyncio.shield(submitting))
        except ClientError as error:
            hint = f"; {error.info.hint}" if error.info.hint else ""
            raise CannotStart(f"the daemon starts no job for it: {error}{hint}") from None
        except asyncio.CancelledError:
            await asyncio.wait({submitting})
            if submitting.exception() is None:
                await DaemonJob(self._daemon, submitting.result()).cancel()
            raise


class DaemonJob:
    """A job of the daemon."""

    def __init__(self, daemon: DaemonQueries, number: int) -> None:
        self.name = f"job {number}"
        self.number = number
        self.pid: int | None = None  # as `ended` hears of it
        self._daemon = daemon

    async def ended(self) -> str:
        """Wait for the end and return how the job ended, for users; retries while the daemon is away or busy."""
        while True:
            try:
                info = await self._daemon.ask(lambda client: client.job(self.number))
            except ClientError as error:
                if isinstance(error, ApiError) and error.status == NOT_FOUND:
                    return str(error)
                log.debug("%s: %s", self.name, error)
            else:
                self.pid = info.pid
                if info.outcome is not None:
                    return f"{_end(info)} (carpool logs {self.number})"
            await asyncio.sleep(self._daemon.poll_s)

    async def cancel(self) -> None:
        """End the job; a worker that runs also ends by itself when the front hangs up."""
        await self._ask(DaemonClient.cancel)

    async def pause(self) -> None:
        """Move the job's memory out of its device, and keep it there."""
        await self._ask(DaemonClient.pause)

    async def resume(self) -> None:
        """Let a paused job go on; retries while the daemon is away."""
        while True:
            if await self._ask(DaemonClient.resume):
                return
            await asyncio.sleep(self._daemon.poll_s)

    async def is_reachable(self) -> bool:
        """Whether the daemon answers."""
        return await self._ask(DaemonClient.job)

    async def _ask(self, question: Callable[[DaemonClient, int], object]) -> bool:
        """Whether the daemon has answered, be it that there is nothing to do."""
        try:
            await self._daemon.ask(lambda client: question(client, self.number))
        except ClientError as error:
            log.debug("%s: %s", self.name, error)
            return isinstance(error, ApiError) and error.status < SERVER_ERROR
        return True


def _end(info: JobInfo) -> str:
    if info.reason is not None:
        return info.reason.text
    return f"killed by signal {info.signal}" if info.signal is not None else f"exit code {info.exit_code}"
