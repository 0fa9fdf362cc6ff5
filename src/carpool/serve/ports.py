"""What the front needs of others, so that it can be tried without them: processes, and who starts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from carpool.protocol.models import ModelInfo, ModelRequest
from carpool.serve.oip.messages import InferRequest, Model, Tensor


class CannotStart(Exception):
    """A worker could not be started, or ended before it was ready.  The text is for people."""


class Prepared(Protocol):
    """A model as workers load it.  ``image``: descriptor of its sealed weights, the receiver's to close."""

    @property
    def image(self) -> int: ...
    @property
    def model(self) -> Model: ...


class Preparing(Protocol):
    async def __call__(
        self, spec: ModelRequest, name: str, *, env: dict[str, str], kept: Path | None, admit: Callable[[int], None]
    ) -> Prepared:
        """What is built and measured is built in a process of its own.  Raises CannotPrepare.

        ``kept``: file of the profile.  ``admit`` hears how many bytes the image will have, and raises OverBudget.
        """


class Handle(Protocol):
    """A worker process that has connected.  Every method may raise WorkerLost when it has died."""

    pid: int
    lost: asyncio.Event

    async def load(self, name: str, prepared: Prepared) -> None:
        """Raises ServeError if the worker says that it cannot."""

    async def unload(self, name: str) -> None: ...

    async def infer(
        self, model: str, requests: Sequence[InferRequest], deadline_us: int | None
    ) -> Sequence[Sequence[Tensor]]:
        """The outputs for each of a batch of requests.  Raises ServeError.  One at a time.

        ``deadline_us``: when the first of them has to be answered (CLOCK_MONOTONIC); None: no matter when.
        """

    def close(self) -> None:
        """Hang up: the process ends."""


class Door(Protocol):
    def expect(self) -> tuple[str, Mapping[str, str], asyncio.Future[Handle]]:
        """A worker's token, what its environment needs to find us, and the worker when it has connected."""


class Job(Protocol):
    """A process that was started.  ``name`` is for people."""

    name: str

    async def ended(self) -> str:
        """Wait until it has; says how it ended, for people."""

    async def cancel(self) -> None:
        """Ask for its end; nothing happens if it has ended."""


class Launcher(Protocol):
    async def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], name: str, priority: int) -> Job:
        """``priority``: among services.  Raises CannotStart."""


class Registry(Protocol):
    """The daemon's list of models.  Every method may raise ClientError."""

    async def models(self) -> list[ModelInfo]:
        """Those of this process's owner."""

    async def environment(self, name: str) -> dict[str, str]:
        """Secrets included."""
