"""What the front needs of others, so that it can be tried without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from carpool.protocol.models import ModelInfo, ModelRequest, ModelState
from carpool.serve.prepare.subprocess import PreparedModel


class CannotStart(Exception):
    """A worker could not be started, or ended before it was ready.  The text is for people."""


class Preparing(Protocol):
    """Makes a model ready to be served: builds, measures and stores it."""

    async def __call__(
        self,
        spec: ModelRequest,
        name: str,
        *,
        env: dict[str, str],
        kept: Path | None,
        on_gpu: bool,
        admit: Callable[[int], None],
    ) -> PreparedModel:
        """What is built and measured is built in a process of its own.  Raises CannotPrepare.

        ``kept``: file of the profile.  ``on_gpu``: its workers will be.  ``admit`` hears how many bytes the
        image will have, and raises OverBudget.
        """


class WorkerJob(Protocol):
    """A process that was started.  ``name`` is for people."""

    name: str

    async def ended(self) -> str:
        """Wait until it has; says how it ended, for people."""

    async def cancel(self) -> None:
        """Ask for its end; nothing happens if it has ended."""


class Launcher(Protocol):
    """Starts jobs that are workers."""

    async def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], name: str, priority: int) -> WorkerJob:
        """``priority``: among services.  Raises CannotStart."""


class ModelRegistry(Protocol):
    """What the daemon knows.  Every method may raise ClientError."""

    async def models(self) -> list[ModelInfo]:
        """Those of this process's owner."""

    async def environment(self, name: str) -> dict[str, str]:
        """Secrets included."""

    async def report(self, states: Mapping[str, ModelState]) -> None:
        """What becomes of the models that this process serves.  It counts until the next report, or this process's
        end."""

    async def on_gpus(self) -> bool:
        """Whether all workers are on GPUs: there are no other devices."""
