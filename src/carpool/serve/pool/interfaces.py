"""Interfaces that the front needs, so that tests can replace what is behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from carpool.protocol.models import ModelInfo, ModelRequest, ModelState
from carpool.serve.prepare.subprocess import PreparedModel


class CannotStart(Exception):
    """A worker could not be started, or ended before it was ready.  The text is for users."""


class Preparing(Protocol):
    """Prepares a model for serving: builds, measures and stores it."""

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
        """Prepare a model in a process of its own.  Raises CannotPrepare.

        ``kept``: file of the profile.  ``on_gpu``: whether its workers will be on a GPU.  ``admit`` is told how many
        bytes the image will have, and raises OverBudget.
        """


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
