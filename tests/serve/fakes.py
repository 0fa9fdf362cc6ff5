"""Stand-ins for what the front needs of others: workers that compute with NumPy in this process, and fail as told.

They check what their user has promised: one thing at a time, and only with models that have been loaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from carpool.devices import memfd
from carpool.protocol.api import ErrorInfo
from carpool.protocol.models import ModelInfo, ModelRequest, ModelState
from carpool.protocol.unix_http import ApiError, ClientError
from carpool.serve.model.image_store import write_image
from carpool.serve.oip.errors import ComputationLeft, ModelFailed, WorkerLost
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import ModelMetadata, Tensor
from carpool.serve.plan.manifest import SourceFile
from carpool.serve.pool.launcher import CannotStart, Environment
from carpool.serve.pool.pool import Pool, RestartPauses
from carpool.serve.prepare.subprocess import CannotPrepare
from carpool.serve.wire.messages import Cost
from tests.serve.backend import MODELS, PATIENCE_S, answers

ENVIRONMENT = Environment("/usr/bin/python3", "/shop", 100, (("PATH", "/usr/bin"),))
PAUSES = RestartPauses(0.0, 0.0, 0.0)
SIZE = memfd.PAGE
COST = Cost(compute_us=7, copied_groups=0, copied_bytes=0)


async def until(reached: Callable[[], object], what: str = "") -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(PATIENCE_S):
        while not reached():  # noqa: ASYNC110  # there is no event for what tests look at
            await asyncio.sleep(0.001)


def image(size: int = SIZE) -> int:
    return write_image("fake", size, [])


@dataclass(frozen=True)
class FakePrepared:
    """``image`` is a descriptor, or -1 where nobody looks at it."""

    model: ModelMetadata
    image: int = -1
    entry: FakeManifest = field(default_factory=lambda: FakeManifest())


@dataclass(frozen=True)
class FakeManifest:
    code: tuple[SourceFile, ...] = ()
    daemon_key: str = "00000000000000ff"


@dataclass(eq=False)
class FakeHandle:
    number: int
    fakes: Fakes
    pid: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    models: dict[str, Any] = field(default_factory=dict)
    finish: asyncio.Event = field(default_factory=asyncio.Event)  # lets this one go, once
    busy: bool = False
    closed: bool = False
    stopped: bool = False
    has_begun: bool = True
    made_way: int = 0
    killed: bool = False
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    cost: Cost = COST

    async def load(self, name: str, prepared: Any) -> None:
        await self._do("load", name)
        if (error := self.fakes.refused.get(prepared.model.name)) is not None:
            raise error
        self.models[name] = prepared.model

    async def unload(self, name: str) -> None:
        await self._do("unload", name)
        del self.models[name]

    async def infer(self, model: str, requests: Sequence[InferRequest], deadline_us: int | None) -> list[list[Tensor]]:
        assert model in self.models, f"{model} is asked before it is loaded"
        self.fakes.batches.append((self.number, model, len(requests), deadline_us))
        await self._do("infer", model)
        if any(map(self.fakes.deadly, requests)):
            self.die()
            raise WorkerLost("it died of this request")
        if any(map(self.fakes.wrong, requests)):
            raise ModelFailed("the model raised an error")
        return answers(requests[0].model, list(requests))

    def leave(self) -> None:
        self.leaving.set()

    def make_way(self) -> None:
        self.made_way += 1

    def is_stopped(self) -> bool:
        return self.stopped

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.closed = True

    def die(self) -> None:
        self.lost.set()

    async def _do(self, what: str, name: str) -> None:
        """One at a time; held where the test wants that, until it lets go or the worker dies."""
        assert not self.busy and not self.closed, f"{what} of {name}: the worker is busy or closed"
        self.busy = True
        self.fakes.doing[self] = what
        try:
            self.leaving.clear()
            events = [self.lost, self.finish, self.fakes.gate(what)]
            events += [self.leaving] if self.fakes.can_be_left else []
            waits = [asyncio.ensure_future(event.wait()) for event in events]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                self.finish.clear()
        finally:
            self.busy = False
            del self.fakes.doing[self]
        if (what, name.partition("@")[0]) in self.fakes.dies:
            self.die()
        if self.lost.is_set():
            raise WorkerLost("it has died")
        if self.leaving.is_set() and self.fakes.can_be_left:
            raise ComputationLeft("nobody waits")


@dataclass(eq=False)
class FakeJob:
    name: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False

    async def ended(self) -> str:
        await self.over.wait()
        return "exit code 1"

    async def cancel(self) -> None:
        self.cancelled = True


class Fakes:
    """Launcher and door.  Tests change its attributes, which say what goes wrong."""

    def __init__(self) -> None:
        self.unstartable = 0  # so many starts fail
        self.stillborn = 0  # so many jobs end before they connect
        self.can_be_left = True  # models, while they compute
        self.slow = False  # they do not connect before `connect` is called
        self.starting: list[str] = []
        self.dies: set[tuple[str, str]] = set()  # ("load", model): that kills the worker
        self.refused: dict[str, Exception] = {}  # models that workers refuse to load
        self.deadly: Callable[[InferRequest], bool] = lambda request: False
        self.wrong: Callable[[InferRequest], bool] = lambda request: False
        self.started: list[tuple[Sequence[str], str, Mapping[str, str], int]] = []
        self.jobs: list[FakeJob] = []
        self.handles: list[FakeHandle] = []
        self.batches: list[tuple[int, str, int, int | None]] = []  # worker, model, requests, deadline
        self.doing: dict[FakeHandle, str] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._expected: dict[str, asyncio.Future[Any]] = {}
        self._numbers = count(1)

    # What is held

    def hold(self, what: str) -> None:
        """Workers begin with "load", "unload" or "infer", and stop there."""
        self._gates[what] = asyncio.Event()

    def let_go(self, what: str) -> None:
        self._gates.pop(what).set()

    def gate(self, what: str) -> asyncio.Event:
        if what in self._gates:
            return self._gates[what]
        open_gate = asyncio.Event()
        open_gate.set()
        return open_gate

    # Ports

    def expect(self) -> tuple[str, Mapping[str, str], asyncio.Future[Any]]:
        token = f"token-{next(self._numbers)}"
        self._expected[token] = asyncio.get_running_loop().create_future()
        return token, {"FAKE_TOKEN": token}, self._expected[token]

    async def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], name: str, priority: int) -> FakeJob:
        self.started.append((argv, cwd, env, priority))
        await asyncio.sleep(0)
        if self.unstartable:
            self.unstartable -= 1
            raise CannotStart("no daemon is running")
        job = FakeJob(f"job {len(self.jobs) + 1}")
        self.jobs.append(job)
        if self.stillborn:
            self.stillborn -= 1
            job.over.set()
            return job
        self.starting.append(env["FAKE_TOKEN"])
        if not self.slow:
            self.connect()
        return job

    def connect(self) -> None:
        """Whoever has been started."""
        while self.starting:
            self.handles.append(FakeHandle(len(self.handles) + 1, self))
            self._expected.pop(self.starting.pop(0)).set_result(self.handles[-1])

    # What tests ask

    def pool(self, standby: int = 2, environment: Environment = ENVIRONMENT, pauses: RestartPauses = PAUSES) -> Pool:
        return Pool(environment, self, self, standby=standby, pauses=pauses)

    def computing(self) -> list[FakeHandle]:
        return [handle for handle, what in self.doing.items() if what == "infer"]

    def alive(self) -> list[FakeHandle]:
        return [handle for handle in self.handles if not handle.lost.is_set() and not handle.closed]


class FakeRegistry:
    """``away``: nobody answers.  ``refuses``: the daemon has too much to do."""

    def __init__(self) -> None:
        self.infos: dict[str, ModelInfo] = {}
        self.away = False
        self.refuses = False
        self.gpus = False
        self.asked = 0
        self.reports: list[dict[str, ModelState]] = []
        self.deaf = False  # the daemon is of a version that knows no reports

    def add(self, name: str, **changes: Any) -> ModelInfo:
        facts: dict[str, Any] = {
            "name": name, "owner": os.geteuid(), "factory": "shop:model", "weights": None, "deadline_us": None,
            "max_batch": 8, "max_delay_us": 0, "priority": 100, "python": "/usr/bin/python3", "cwd": "/shop",
            "variables": 1, "added_us": len(self.infos),
        }  # fmt: skip
        self.infos[name] = ModelInfo(**facts | changes)
        return self.infos[name]

    async def models(self) -> list[ModelInfo]:
        self.asked += 1
        self._check()
        return list(self.infos.values())

    async def environment(self, name: str) -> dict[str, str]:
        self._check()
        return {"PATH": "/usr/bin", "SHLVL": str(self.asked)}

    async def report(self, states: Mapping[str, ModelState]) -> None:
        self._check()
        if self.deaf:
            raise ApiError(404, ErrorInfo("unknown_path", "PUT /v1/serving: Not Found"))
        self.reports.append(dict(states))

    async def on_gpus(self) -> bool:
        self._check()
        return self.gpus

    def _check(self) -> None:
        if self.away:
            raise ClientError("not_running", "no daemon is running")
        if self.refuses:
            raise ApiError(503, ErrorInfo("busy", "too many requests"))


@dataclass
class FakePreparing:
    """Makes images of ``sizes``; ``failing`` says why a model cannot be prepared; ``gate`` holds what is begun.

    ``code``: what factories import.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Event | None = None
    code: tuple[SourceFile, ...] = ()
    begun: list[tuple[str, ModelRequest, Path | None]] = field(default_factory=list)
    on_gpu: list[bool] = field(default_factory=list)
    running: int = 0
    images: list[int] = field(default_factory=list)

    async def __call__(
        self,
        spec: ModelRequest,
        name: str,
        *,
        env: dict[str, str],
        kept: Path | None,
        on_gpu: bool,
        admit: Callable[[int], None],
    ) -> FakePrepared:
        assert not self.running, "two models are prepared at once"
        self.begun.append((name, spec, kept))
        self.on_gpu.append(on_gpu)
        self.running += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            if name in self.failing:
                raise CannotPrepare(self.failing[name])
            size = self.sizes.get(name, SIZE)
            admit(size)
            self.images.append(image(size))
            return FakePrepared(MODELS[name], self.images[-1], FakeManifest(self.code))
        finally:
            self.running -= 1
