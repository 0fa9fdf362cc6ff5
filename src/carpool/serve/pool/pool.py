"""The worker processes of one environment: started, given their models, replaced when they die.

There is one more process than may compute at once, so that at any time one is idle: it copies the next model's weights
while another computes, takes the place of one that dies, and learns new models.  No locks: everything happens in one
event loop between two awaits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from carpool.serve.oip.errors import CodeChanged, ServeError, WorkerLost
from carpool.serve.pool.launcher import CannotStart, Environment, Launcher, WorkerJob
from carpool.serve.pool.worker_handle import Handle, WorkerSocket
from carpool.serve.prepare.subprocess import PreparedModel

log = logging.getLogger(__name__)

ARGUMENTS = ("-P", "-m", "carpool.serve.worker")
#: Time between two checks whether workers are stopped.
LOOK_S = 0.1
#: Workers in a row that die while loading a model, after which the model counts as the cause.
MOST_DEATHS = 2


class WorkerState(StrEnum):
    """The state of a worker.  ``LOST``: it died or hung, and is being replaced."""

    STARTING = "starting"
    LOADING = "loading"
    IDLE = "idle"
    COMPUTING = "computing"
    LOST = "lost"


@dataclass(eq=False, slots=True)
class PoolWorker:
    """A connected process.

    ``begun_s``: before its process was started; ``models``: the keys of its loaded models; ``last``: the key that it
    computed last; ``given_up``: it was alive when it was given up; ``renewed``: it was replaced without a fault;
    ``seen_stopped``: at the last look.
    """

    handle: Handle
    job: WorkerJob
    begun_s: float
    state: WorkerState = WorkerState.STARTING
    models: set[str] = field(default_factory=set)
    last: str = ""
    given_up: bool = False
    renewed: bool = False
    seen_stopped: bool = False


class Hosting:
    """A model in a pool.  ``loaded`` is done when every ready worker has it; ``refused`` says why none will.

    ``since_s``: only workers that were begun later load it; ``changed`` is done when a worker has found other code than
    was prepared.
    """

    def __init__(self, prepared: PreparedModel, since_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.prepared = prepared
        self.since_s = since_s
        self.changed: asyncio.Future[None] = loop.create_future()
        self.loaded: asyncio.Future[None] = loop.create_future()
        self.refused: asyncio.Future[str] = loop.create_future()
        self.deaths = 0


@dataclass(frozen=True, slots=True)
class RestartPauses:
    """Pauses between two attempts to start a worker, in seconds; doubled from one failure to the next.

    ``ending_s``: how long a worker that has died is waited for, so that its job ends on its own and is not cancelled.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    ending_s: float = 10.0


class Pool:
    """The pool; `close` it at the end.

    ``changed`` is called when a worker has become idle, and when there is trouble; the pool's owner sets it.
    ``trouble`` says why the last attempt to start a worker failed; empty: it did not.
    """

    def __init__(
        self,
        environment: Environment,
        launcher: Launcher,
        door: WorkerSocket,
        *,
        standby: int,
        pauses: RestartPauses | None = None,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.trouble = ""
        self._environment = environment
        self._launcher = launcher
        self._door = door
        self._standby = standby
        self._pauses = pauses or RestartPauses()
        self._hosted: dict[str, Hosting] = {}
        self._workers: list[PoolWorker] = []
        self._loading: asyncio.Task[None] | None = None
        self._fault = ""  # why the last lost worker was lost
        self._looking: asyncio.TimerHandle | None = None
        self._slots = [asyncio.create_task(self._keep()) for _ in range(standby + 1)]
        for slot in self._slots:
            slot.add_done_callback(_report)

    async def close(self) -> None:
        """End all workers, whatever they do."""
        if self._looking is not None:
            self._looking.cancel()
        tasks = [*self._slots, *([self._loading] if self._loading else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Models

    def add(self, key: str, prepared: PreparedModel, since_s: float = -math.inf) -> Hosting:
        """Have workers load a model from now on, before they count as ready.

        Its image must stay until the model is removed.  ``since_s``: in the loop's time; workers that were begun
        earlier are replaced, one after the other.
        """
        self._hosted[key] = Hosting(prepared, since_s)
        self._consider()
        return self._hosted[key]

    def remove(self, key: str) -> None:
        """Remove a model; workers forget it when they are idle.  An unknown key is not an error."""
        self._hosted.pop(key, None)
        self._consider()

    # Workers

    def states(self) -> Counter[str]:
        """Return how many processes are in which state, including those that do not run yet."""
        found = Counter(str(worker.state) for worker in self._workers if not worker.handle.lost.is_set())
        found[WorkerState.STARTING] += len(self._slots) - found.total()
        return found

    @property
    def out_of_service(self) -> bool:
        """Whether no worker can compute, and the last attempt to start one failed."""
        return bool(self.trouble) and not any(map(_is_ready, self._workers))

    @property
    def degraded(self) -> str:
        """Return why fewer workers than intended can compute; empty: none has failed, or all have been replaced."""
        return "" if self._is_complete() else self._fault or self.trouble

    def _is_complete(self) -> bool:
        return sum(map(_is_ready, self._workers)) == len(self._slots)

    @property
    def has_idle(self) -> bool:
        """Whether `take` has a worker."""
        computing = sum(worker.state is WorkerState.COMPUTING for worker in self._workers)
        return computing < self._standby and any(map(_is_idle, self._workers))

    def take(self, key: str) -> PoolWorker:
        """Return an idle worker for one computation of a loaded model, preferably one whose last model it was."""
        idle = [worker for worker in self._workers if _is_idle(worker)]
        worker = min(idle, key=lambda each: each.last != key)
        worker.state, worker.last = WorkerState.COMPUTING, key
        self._look_later()
        return worker

    def give_up(self, worker: PoolWorker, why: str) -> None:
        """Kill a worker at once: another one takes its place, and its computation fails with WorkerLost."""
        log.error("worker %s is replaced: %s", worker.job.name, why)
        self._fault = f"worker {worker.job.name} is being replaced: {why}"
        worker.handle.kill()
        _lose(worker)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Replace workers that are stopped at two looks, because they may have the turn.

        Looks go on while any worker computes.
        """
        self._looking = None
        for worker in [worker for worker in self._workers if not worker.handle.lost.is_set()]:
            stopped = worker.handle.is_stopped()
            if stopped and worker.seen_stopped:
                self.give_up(worker, "its process is stopped")
            worker.seen_stopped = stopped
        if any(worker.state is WorkerState.COMPUTING for worker in self._workers):
            self._look_later()

    def give_back(self, worker: PoolWorker, *, lost: bool = False) -> None:
        """Take a worker back after a computation.  ``lost``: it has died, or is to end: another one takes its place."""
        if lost:
            _lose(worker)
        elif worker.state is WorkerState.COMPUTING:
            worker.state = WorkerState.IDLE
        self._consider()
        self.changed()

    # The life of a worker

    async def _keep(self) -> None:
        """Keep one of the pool's places filled: start one worker after the other."""
        pause_s = self._pauses.first_s
        while True:
            try:
                async with self._started() as worker:
                    self.trouble = ""
                    self._is_current(worker)
                    await worker.handle.lost.wait()
                    how = await self._how_it_ended(worker)
                if worker.renewed:
                    continue
                if not worker.last:
                    raise CannotStart(f"worker {worker.job.name} ended before it computed anything: {how}")
                if not worker.given_up:
                    self._fault = f"worker {worker.job.name} has ended: {how}"
                log.warning("worker %s has ended: %s; another one takes its place", worker.job.name, how)
                pause_s = self._pauses.first_s
            except CannotStart as error:
                self.trouble = str(error)
                log.warning("%s; the next attempt in %g s", error, pause_s)
                self.changed()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._pauses.longest_s)

    async def _how_it_ended(self, worker: PoolWorker) -> str:
        if worker.given_up:
            return "it was given up"
        with suppress(TimeoutError):
            return await asyncio.wait_for(worker.job.ended(), self._pauses.ending_s)
        return "it has hung up"

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[PoolWorker]:
        """Run a worker with all models until the block ends.  Raises CannotStart."""
        begun_s = asyncio.get_running_loop().time()
        _, variables, connected = self._door.expect()
        where, env = self._environment, {**dict(self._environment.variables), **variables}
        try:
            job = await self._launcher.start([where.python, *ARGUMENTS], where.cwd, env, "model worker", where.priority)
            try:
                worker = PoolWorker(await _connected(connected, job), job, begun_s)
                try:
                    self._workers.append(worker)
                    await self._load_all(worker)
                    yield worker
                finally:
                    self._workers.remove(worker)
                    _lose(worker)
            finally:
                await job.cancel()
        finally:
            if not connected.cancel() and not connected.cancelled():  # it may have connected after the wait ended
                connected.result().close()

    async def _load_all(self, worker: PoolWorker) -> None:
        """Load and unload models until the worker has the wanted ones.

        Raises CannotStart if the worker dies of that.
        """
        while (key := self._difference(worker)) is not None:
            hosting = self._hosted.get(key)
            try:
                await self._load(worker, key, hosting)
            except CodeChanged as error:
                _lose(worker)
                raise CannotStart(f"worker {worker.job.name} cannot load model {key!r}: {error}") from None
            except WorkerLost:
                _lose(worker)
                self._died(key)
                raise CannotStart(f"worker {worker.job.name} ended while it loaded model {key!r}") from None

    async def _load(self, worker: PoolWorker, key: str, hosting: Hosting | None) -> None:
        if hosting is None:
            await worker.handle.unload(key)
            worker.models.discard(key)
            return
        try:
            await worker.handle.load(key, hosting.prepared)
        except CodeChanged:
            if not hosting.changed.done():
                hosting.changed.set_result(None)
            raise
        except WorkerLost:
            raise
        except ServeError as error:
            self._refuse(key, str(error))
        else:
            hosting.deaths = 0
            worker.models.add(key)

    def _difference(self, worker: PoolWorker) -> str | None:
        """Return a model that the worker has and should not have, or lacks; None if there is none."""
        wanted = {key for key, hosting in self._hosted.items() if hosting.since_s <= worker.begun_s}
        return next(iter(sorted(worker.models ^ wanted)), None)

    def _is_too_old(self, worker: PoolWorker) -> bool:
        return any(hosting.since_s > worker.begun_s for hosting in self._hosted.values())

    def _died(self, key: str) -> None:
        if (hosting := self._hosted.get(key)) is not None:
            hosting.deaths += 1
            if hosting.deaths >= MOST_DEATHS:
                self._refuse(key, f"{hosting.deaths} workers in a row have died while they loaded it")

    def _refuse(self, key: str, text: str) -> None:
        """Leave a model out, so that it does not prevent others from being served."""
        if (hosting := self._hosted.pop(key, None)) is not None and not hosting.refused.done():
            hosting.refused.set_result(text)

    # Models come and go while others are computed

    def _consider(self) -> None:
        """Bring one idle worker up to date, unless another is being updated: the others go on computing."""
        if self._loading is None:
            for worker in self._workers:
                if _is_idle(worker) and self._difference(worker) is not None:
                    worker.state = WorkerState.LOADING
                    self._loading = asyncio.create_task(self._bring_up_to_date(worker))
                    self._loading.add_done_callback(_report)
                    return
            self._renew()
        self._announce()

    def _renew(self) -> None:
        """End one idle worker that is too old for a model, if all others are ready."""
        if self._is_complete():
            for worker in self._workers:
                if _is_idle(worker) and self._is_too_old(worker):
                    worker.renewed = True
                    _lose(worker)
                    return

    async def _bring_up_to_date(self, worker: PoolWorker) -> None:
        try:
            await self._load_all(worker)
        except CannotStart as error:
            log.warning("%s", error)
        finally:
            self._loading = None
        self._is_current(worker)

    def _is_current(self, worker: PoolWorker) -> None:
        if worker.state is not WorkerState.LOST:
            worker.state = WorkerState.IDLE
        if self._is_complete():
            self._fault = ""
        self._consider()
        self.changed()

    def _announce(self) -> None:
        """Mark models as loaded that every ready worker has."""
        ready = [worker for worker in self._workers if _is_ready(worker)]
        for key, hosting in self._hosted.items():
            if ready and not hosting.loaded.done() and all(key in worker.models for worker in ready):
                hosting.loaded.set_result(None)


def _is_ready(worker: PoolWorker) -> bool:
    return worker.state in (WorkerState.LOADING, WorkerState.IDLE, WorkerState.COMPUTING)


def _is_idle(worker: PoolWorker) -> bool:
    return worker.state is WorkerState.IDLE and not worker.handle.lost.is_set()


async def _connected(connected: asyncio.Future[Handle], job: WorkerJob) -> Handle:
    """Return the worker's handle when it has connected.  Raises CannotStart if its job has ended before."""
    ended = asyncio.ensure_future(job.ended())
    try:
        futures: list[asyncio.Future[Any]] = [connected, ended]
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if connected.done():
            return connected.result()
        raise CannotStart(f"worker {job.name} ended before it was ready: {ended.result()}")
    finally:
        ended.cancel()


def _lose(worker: PoolWorker) -> None:
    """End a worker that has not ended yet; the task that keeps its place starts another one."""
    worker.state = WorkerState.LOST
    worker.given_up = worker.given_up or not worker.handle.lost.is_set()
    worker.handle.close()
    worker.handle.lost.set()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("an internal error: a worker is lost for good", exc_info=error)
