"""The back end of `carpool serve`: registered models are prepared, computed by workers, replaced, and removed.

Each registration has a task of its own for its whole life: the model is prepared, loaded by the workers of its
environment and serves requests, until the workers refuse it or it is retired.  A model that is registered anew serves
requests in its old form until the new one is loaded.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from carpool.protocol.models import PREPARING, READY, ModelInfo, ModelRequest, ModelState, unavailable
from carpool.protocol.unix_http import ApiError, ClientError
from carpool.serve.metrics import Metrics
from carpool.serve.model.image_store import ImageStore, OverBudget
from carpool.serve.oip.errors import UnknownModel
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import ModelMetadata, Tensor
from carpool.serve.pool.daemon_presence import DaemonPresence
from carpool.serve.pool.launcher import Environment, ModelRegistry
from carpool.serve.pool.pool import Pool
from carpool.serve.prepare.subprocess import CannotPrepare, PreparedModel, Preparing
from carpool.serve.queue.batching import Order, Queue
from carpool.serve.queue.dispatcher import Dispatcher
from carpool.serve.queue.per_environment import Dispatchers

log = logging.getLogger(__name__)

POLL_S = 1.0
#: Times in a row that a model is prepared anew because its code has changed by the time workers import it.
MOST_RENEWALS = 2
AWAY_S = 30.0


@dataclass(frozen=True, slots=True)
class Choices:
    """Options of `carpool serve`.

    ``names``: the models to serve; none: all.  ``profiles``: the directory of profiles; None: they are not kept.
    ``away_s``: how long a request without a deadline waits for a daemon that is away.
    """

    order: Order = Order.FCFS
    most_waiting: int = 128  # requests, for each model
    names: Collection[str] = ()
    profiles: Path | None = None
    away_s: float = AWAY_S


@dataclass(eq=False, slots=True)
class _Served:
    """A model that can be asked: ``key`` is its name among the workers of its environment."""

    model: ModelMetadata
    key: str
    dispatcher: Dispatcher
    deadline_us: int | None
    weights_key: str  # the daemon's key of its weights


class _Registration:
    """``served`` is None while the model cannot be asked; ``reason`` says why.  ``pool``: its workers, once it has any.

    ``renewals``: times in a row it was begun anew because workers found other code than was prepared.
    """

    def __init__(self, info: ModelInfo, renewals: int = 0) -> None:
        self.info = info
        self.renewals = renewals
        self.reason = "it has not been prepared yet"
        self.over_budget = False
        self.served: _Served | None = None
        self.pool: Pool | None = None
        self.life: asyncio.Task[None]

    def state(self) -> ModelState:
        if self.pool is not None and self.pool.out_of_service:
            return unavailable(self.pool.trouble)
        if self.served is not None:
            return ModelState(READY)
        return unavailable(self.reason) if self.life.done() else ModelState(PREPARING)


class Front:
    """`watch` follows the registry for ever; `close` ends everything.

    ``announce`` is called for each model that is ready, or with the reason why a model is not available.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        prepare: Preparing,
        new_pool: Callable[[Environment], Pool],
        store: ImageStore,
        metrics: Metrics,
        choices: Choices,
        announce: Callable[[str, str | None], None],
    ) -> None:
        self._registry = registry
        self._prepare = prepare
        self._store = store
        self._choices = choices
        self._announce = announce
        self._changed = asyncio.Event()  # a state has changed since the last report
        self._registrations: dict[str, _Registration] = {}
        self._asked: dict[str, _Registration] = {}  # by name, what serves: the present or previous one
        self._stored: dict[str, _Registration] = {}  # by name, the registration whose image is in the store
        self._replaced_s: dict[str, float] = {}  # when the latest `--replace` of a name was noticed
        self._heard = False  # the registry has answered at least once
        self._metrics = metrics
        self._daemon = DaemonPresence(choices.away_s)
        self._dispatchers = Dispatchers(new_pool, metrics, choices.order)
        self._preparing = asyncio.Lock()
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    # For the endpoint

    def models(self) -> Mapping[str, ModelMetadata]:
        """Return the models that can be asked."""
        return {name: one.served.model for name, one in self._asked.items() if one.served is not None}

    def unavailable(self) -> Mapping[str, str]:
        """Return the other models, with the reasons."""
        return {name: one.reason for name, one in self._registrations.items() if name not in self._asked}

    def states(self) -> dict[str, ModelState]:
        """Return the states to report; for a model that is registered anew, that of its old form while that serves."""
        states = {name: one.state() for name, one in (self._registrations | self._asked).items()}
        return states | self._with_figures(states)

    def _with_figures(self, states: Mapping[str, ModelState]) -> dict[str, ModelState]:
        """Return the states of the models that can be asked, with their figures."""
        waiting, recent = self.waiting(), self._metrics.recent
        return {
            name: msgspec.structs.replace(
                states[name], figures=recent.of(name, waiting.get(name, 0)), weights_key=one.served.weights_key
            )
            for name, one in self._asked.items()
            if one.served is not None
        }

    def troubles(self) -> Sequence[str]:
        """Return why models are not computed at present; empty if all is well."""
        return self._dispatchers.troubles() or self._without_models()

    def degraded(self) -> Sequence[str]:
        """Return why fewer workers than intended compute."""
        return self._dispatchers.degraded()

    def _without_models(self) -> list[str]:
        """Return why no model can be asked, if models are registered."""
        if not self._heard:
            return ["the registered models are not known yet"]
        if self._asked or not self._registrations:
            return []
        reasons = (f"model {name}: {reason}" for name, reason in sorted(self.unavailable().items()))
        return ["no model can be asked yet", *reasons]

    def waiting(self) -> Mapping[str, int]:
        """Return how many requests wait for each model."""
        waiting = self._dispatchers.waiting()
        return {name: waiting.get(one.served.key, 0) for name, one in self._asked.items() if one.served is not None}

    def workers(self) -> Mapping[str, int]:
        """Return how many processes are in which state."""
        return self._dispatchers.workers()

    async def infer(self, request: InferRequest) -> Sequence[Tensor]:
        """Return a model's outputs.  Raises ServeError."""
        one = self._asked.get(request.model)
        if one is None or one.served is None:
            raise UnknownModel(f"there is no model {request.model!r} any more")
        served = one.served
        timeout_us = served.deadline_us if request.timeout_us is None else request.timeout_us
        async with self._daemon.awaited(has_deadline=timeout_us is not None):
            return await served.dispatcher.infer(served.key, request, timeout_us)

    # The registry

    async def watch(self, poll_s: float = POLL_S) -> None:
        """Follow the registry and report to it, for ever.

        While the registry does not answer everything stays as it is.
        """
        trouble = ""
        while True:
            self._changed.clear()
            try:
                self.update(await self._registry.models())
                self._daemon.is_here()
                trouble = ""
                await self._report()
            except ClientError as error:
                self._note(error)
                if str(error) != trouble:
                    log.warning("models that come and go are not noticed: %s", error)
                trouble = str(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), poll_s)

    async def _report(self) -> None:
        """Report states to the daemon; an error does not affect serving, and the next round tries again."""
        try:
            await self._registry.report(self.states())
        except ClientError as error:
            log.debug("the daemon does not know the states of models: %s", error)

    def _note(self, error: ClientError) -> None:
        """Note that the daemon is away, unless it has refused."""
        if isinstance(error, ApiError):
            self._daemon.is_here()
        else:
            self._daemon.is_away()

    def update(self, infos: Sequence[ModelInfo]) -> None:
        """Begin and retire registrations so that exactly the models in ``infos`` are registered."""
        self._heard = True
        chosen = self._choices.names
        wanted = {info.name: info.registration() for info in infos if not chosen or info.name in chosen}
        for name in (self._registrations.keys() | self._asked.keys()) - wanted.keys():
            self._replaced_s.pop(name, None)
            for gone in filter(None, {self._registrations.pop(name, None), self._asked.pop(name, None)}):
                self._retire(gone)
        for name, info in wanted.items():
            known = self._registrations.get(name)
            if known is not None and known.info == info:
                continue
            if known is not None:
                self._replaced_s[name] = asyncio.get_running_loop().time()
            self._begin(info)

    async def close(self) -> None:
        """End every worker.  Unanswered requests are refused: stop the endpoint before."""
        self._registrations.clear()
        tasks = list(self._tasks)
        for task in tasks:
            _cancel(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, info: ModelInfo, renewals: int = 0) -> None:
        if (known := self._registrations.get(info.name)) is not None and self._asked.get(info.name) is not known:
            self._retire(known)
        registration = self._registrations[info.name] = _Registration(info, renewals)
        registration.life = self._spawn(self._live(registration))
        self._changed.set()

    def _retire(self, registration: _Registration) -> None:
        """End a registration that gets no new requests, once its open requests are answered."""
        self._spawn(self._end(registration))

    async def _end(self, registration: _Registration) -> None:
        if (served := registration.served) is not None:
            await served.dispatcher.unused(served.key)
        _cancel(registration.life)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The life of a registration

    async def _live(self, registration: _Registration) -> None:
        name = registration.info.name
        try:
            await self._serve(registration)
        except ClientError as error:  # the daemon is away: `update` begins anew
            log.warning("model %s: %s", name, error)
            self._registrations.pop(name, None)
            return
        except (CannotPrepare, OverBudget) as error:
            registration.reason = str(error)
        except Exception as error:
            log.exception("an internal error: model %r cannot be served", name)
            registration.reason = f"an internal error: {error!r}"
        finally:
            self._forget(registration)
        self._say(name, registration.reason)
        if (before := self._asked.pop(name, None)) is not None:
            self._retire(before)

    async def _serve(self, registration: _Registration) -> None:
        """Prepare the model and serve it until the workers refuse it.

        Raises ClientError, CannotPrepare, OverBudget.
        """
        info = registration.info
        spec = _spec(info, await self._registry.environment(info.name))
        environment = Environment.of(spec)
        prepared = await self._prepared(registration, spec, dict(environment.variables))
        try:
            if registration.renewals == MOST_RENEWALS:  # presumably the model rewrites its own code
                prepared = prepared._replace(entry=replace(prepared.entry, code=()))
            async with self._dispatchers.of(environment, prepared.entry.code) as dispatcher:
                await self._host(registration, dispatcher, prepared)
        finally:
            os.close(prepared.image)

    async def _prepared(self, registration: _Registration, spec: ModelRequest, env: dict[str, str]) -> PreparedModel:
        """Prepare one model at a time: measuring must not be disturbed, nor the store's budget be promised twice."""
        name = registration.info.name
        profiles = self._choices.profiles

        def admit(size: int) -> None:
            registration.over_budget = True
            self._store.check(name, size)
            registration.over_budget = False

        async with self._preparing:
            registration.reason = "it is being prepared"
            kept = None if profiles is None else profiles / f"{name}.json"
            on_gpu = await self._registry.on_gpus()
            prepared = await self._prepare(spec, name, env=env, kept=kept, on_gpu=on_gpu, admit=admit)
            image = os.dup(prepared.image)
            try:
                self._store.put(name, image, os.fstat(image).st_size)
            except BaseException:
                os.close(image)
                os.close(prepared.image)
                raise
            self._stored[name] = registration
            return prepared

    async def _host(self, registration: _Registration, dispatcher: Dispatcher, prepared: PreparedModel) -> None:
        info, model = registration.info, prepared.model
        key = f"{info.name}@{next(self._numbers)}"
        registration.pool = dispatcher.pool
        hosting = dispatcher.pool.add(key, prepared, self._replaced_s.get(info.name, -math.inf))
        registration.reason = "its workers have not loaded it yet"
        try:
            ends: list[asyncio.Future[Any]] = [hosting.refused, hosting.changed]
            await asyncio.wait([hosting.loaded, *ends], return_when=asyncio.FIRST_COMPLETED)
            if hosting.loaded.done() and not hosting.refused.done():
                queue = Queue(self._choices.most_waiting, max(1, model.max_batch), info.max_delay_us)
                dispatcher.add(key, queue, batches=model.max_batch > 0)
                registration.served = _Served(model, key, dispatcher, info.deadline_us, prepared.entry.daemon_key)
                registration.renewals = 0
                self._switch_to(registration)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not hosting.refused.done() and self._registrations.get(info.name) is registration:
                self._begin(info, registration.renewals + 1)
            registration.reason = await hosting.refused
        finally:
            registration.served = registration.pool = None
            if self._asked.get(info.name) is registration:
                del self._asked[info.name]
            dispatcher.remove(key)
            dispatcher.pool.remove(key)

    def _switch_to(self, registration: _Registration) -> None:
        name = registration.info.name
        before = self._asked.get(name)
        self._asked[name] = registration
        self._say(name, None)
        if before is not None:
            self._retire(before)

    def _say(self, name: str, reason: str | None) -> None:
        self._announce(name, reason)
        self._changed.set()

    def _forget(self, registration: _Registration) -> None:
        name = registration.info.name
        if self._stored.get(name) is registration:
            del self._stored[name]
            self._store.remove(name)
            self._try_again()

    def _try_again(self) -> None:
        """Begin the models anew that did not fit into the store, which has more room now."""
        for one in list(self._registrations.values()):
            if one.over_budget and one.life.done():
                self._begin(one.info)


def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task once: its cleanup must not be interrupted."""
    if not task.cancelling():
        task.cancel()


def _spec(info: ModelInfo, env: dict[str, str]) -> ModelRequest:
    given = {name: getattr(info, name) for name in ModelRequest.__struct_fields__ if name != "env"}
    return ModelRequest(env=env, **given)
