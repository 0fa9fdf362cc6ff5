"""Workers as plain processes, without a daemon; and models that only a test's registry knows."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from carpool.protocol.api import SubmitRequest
from carpool.protocol.models import ModelInfo
from carpool.runtime.launch import plain_environment
from tests.serve.fakes import FakeRegistry


class PlainJob:
    def __init__(self, process: Process) -> None:
        self.name = f"process {process.pid}"
        self.number = self.pid = process.pid
        self.process = process

    async def ended(self) -> str:
        return f"exit status {await self.process.wait()}"

    async def cancel(self) -> None:
        with suppress(ProcessLookupError):
            self.process.terminate()
        await self.process.wait()

    async def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    async def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def is_reachable(self) -> bool:
        return True


class PlainLauncher:
    """``jobs``: all that were started."""

    def __init__(self) -> None:
        self.jobs: list[PlainJob] = []

    async def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], name: str, priority: int) -> PlainJob:
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=plain_environment(dict(env)), stdin=DEVNULL, start_new_session=True
        )
        self.jobs.append(PlainJob(process))
        return self.jobs[-1]

    async def left(self) -> list[tuple[Any, PlainJob]]:
        return []

    async def submit(self, request: SubmitRequest) -> PlainJob:
        return await self.start(request.argv, request.cwd, request.env, request.name, request.service or 0)

    def kill(self, pid: int) -> None:
        (job,) = [job for job in self.jobs if job.process.pid == pid]
        job.process.send_signal(signal.SIGKILL)


class Registry(FakeRegistry):
    """Models of `tests.serve.hosted`, in this interpreter."""

    def __init__(self, root: Path, variables: Mapping[str, str]) -> None:
        super().__init__()
        self._root = root
        self._variables = dict(os.environ) | dict(variables)

    def host(self, name: str, factory: str = "", **changes: Any) -> ModelInfo:
        where = {"python": sys.executable, "cwd": str(self._root), "max_batch": 4}
        return self.add(name, factory=f"tests.serve.hosted:{factory or name}", **where | changes)

    async def environment(self, name: str) -> dict[str, str]:
        return self._variables
