"""Preparation from the front's side: a process per model returns an entry and an image, or the reason for failing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from carpool.protocol.missing_package import lacks
from carpool.protocol.models import ModelRequest
from carpool.runtime.launch import plain_environment
from carpool.serve.model.image_store import OverBudget, is_image
from carpool.serve.oip.values import ModelMetadata
from carpool.serve.plan.manifest import Manifest, Source
from carpool.serve.wire.channel import AsyncChannel
from carpool.serve.wire.messages import Admit, Admitted, Broken, FromPreparer, NotReady, Prepare, Ready

_LAST_WORDS = 4000  # bytes
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


class CannotPrepare(Exception):
    """The model cannot be served.  The text is for users."""


class PreparedModel(NamedTuple):
    """``image``: descriptor of a sealed image of ``entry.layout.size`` bytes, the receiver's to close."""

    entry: Manifest
    image: int
    model: ModelMetadata


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


async def prepare(
    spec: ModelRequest,
    name: str,
    *,
    env: dict[str, str],
    kept: Path | None,
    on_gpu: bool,
    admit: Callable[[int], None],
) -> PreparedModel:
    """Prepare a model in a process of its interpreter, directory and environment, which is not a job.

    ``kept``: file of the model's profile.  ``on_gpu``: whether its workers will be on a GPU.  ``admit`` is told how
    many bytes the image will have, before it is made, and may raise OverBudget.  Raises CannotPrepare.  If the call is
    cancelled, the process is killed.
    """
    image: int | None = None
    try:
        with tempfile.TemporaryFile() as said:
            async with _started(spec, env, said) as (process, channel):
                source = Source(spec.factory, spec.weights)
                request = Prepare(name, source, spec.max_batch, str(kept) if kept else None, on_gpu)
                prepared = await _converse(channel, request, admit)
                if prepared is None:
                    raise CannotPrepare(await _why(process, said, spec.python))
                image = prepared.image
            return prepared
    except BaseException:
        if image is not None:
            os.close(image)
        raise


@asynccontextmanager
async def _started(
    spec: ModelRequest, env: dict[str, str], said: IO[bytes]
) -> AsyncIterator[tuple[Process, AsyncChannel]]:
    """Run the process, which does not outlive the context, and yield it with its channel.  Raises CannotPrepare."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = AsyncChannel(ours, FromPreparer)
    try:
        with theirs:
            process = await _spawn(spec, env, theirs.fileno(), said)
        try:
            yield process, channel
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    finally:
        channel.close()


async def _spawn(spec: ModelRequest, env: dict[str, str], channel: int, said: IO[bytes]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            spec.python,
            "-P",
            "-m",
            "carpool.serve.prepare.__main__",
            str(channel),
            cwd=spec.cwd,
            env=plain_environment(env),
            stdin=DEVNULL,
            stdout=said,
            stderr=said,
            pass_fds=[channel],
            start_new_session=True,
        )
    except OSError as error:
        raise CannotPrepare(f"{spec.python} cannot be started in {spec.cwd}: {error.strerror or error}") from None


async def _converse(channel: AsyncChannel, request: Prepare, admit: Callable[[int], None]) -> PreparedModel | None:
    """Exchange messages with the process; None if it has ended too early.  Raises CannotPrepare."""
    channel.send(request)
    try:
        while frame := await channel.receive():
            match frame.message:
                case Admit(size=size):
                    admit(size)
                    channel.send(Admitted())
                case NotReady(text=text):
                    raise CannotPrepare(text)
                case Ready(entry=entry, model=model):
                    assert frame.fd is not None
                    return _checked(PreparedModel(entry, frame.fd, model))
    except OverBudget as error:
        raise CannotPrepare(str(error)) from None
    except Broken as error:
        raise CannotPrepare(
            f"the process that prepared {request.name} sent something else than a model: {error}"
        ) from None
    return None


def _checked(prepared: PreparedModel) -> PreparedModel:
    """Check a prepared model.  Raises CannotPrepare."""
    if is_image(prepared.image, prepared.entry.layout.size):
        return prepared
    os.close(prepared.image)
    raise CannotPrepare(
        f"the image of {prepared.model.name} is not a sealed file of {prepared.entry.layout.size} bytes"
    )


async def _why(process: Process, said: IO[bytes], python: str) -> str:
    """Return the reason that a process gave before it ended."""
    status = await process.wait()
    if status < 0:
        return f"the process that prepared the model was killed by {signal.Signals(-status).name}"
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _LAST_WORDS))
    lines = said.read().decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    if missing := _MISSING.match(last):
        return lacks(missing[1], python)
    return f"the process that prepared the model ended (status {status}): {last}"
