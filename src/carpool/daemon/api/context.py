"""The daemon's parts that request handlers need, and the caller of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from aiohttp import web

from carpool.core.events import Event
from carpool.core.machine import Machine
from carpool.core.model import JobId, Settings
from carpool.daemon.api.visibility import Viewer
from carpool.daemon.config.limits import UserLimits, Visibility
from carpool.daemon.config.options import DaemonOptions
from carpool.daemon.config.settings import CurrentSettings
from carpool.daemon.hooks.base import JobHooks
from carpool.daemon.jobs.submissions import SubmissionRate
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.journal.events import Feed
from carpool.daemon.journal.models import Controls, Models, RegisteredModel
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.journal.turns import PastTurns
from carpool.daemon.journal.usage import DeviceHistory
from carpool.daemon.metrics.page import DaemonMetrics
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.system.errors import RequestError
from carpool.daemon.system.peer import peer_credentials, peer_groups, person_of
from carpool.daemon.telemetry.service import TelemetryService
from carpool.protocol.api import ControlGroups
from carpool.protocol.display import user_name
from carpool.protocol.engines import MOST_ENGINES, EngineState, Wish
from carpool.protocol.models import NOT_SERVED, PREPARING, READY, UNAVAILABLE, ModelInfo, ModelState
from carpool.protocol.paths import Home
from carpool.protocol.units import format_duration

T = TypeVar("T")

SMALL = 64 << 10  # bytes: such bodies never wait
MOST_AT_ONCE = 4
#: Returns the bytes by device of weights, given the owner's uid and the weights' key.
Whereabouts = Callable[[int, str], dict[str, int]]
#: Where several fronts of one user serve a model, the state that tells most of whether requests are answered.
_RANK = {READY: 0, PREPARING: 1, UNAVAILABLE: 2}


@dataclass(slots=True)
class Context:
    """The parts of the daemon that requests read or change."""

    home: Home
    privileges: Privileges
    uid: int
    started_us: int
    jobs: JobTable
    seating: SeatAllocator
    store: JournalStore
    models: Models
    model_states: ModelStates
    engine_states: EngineStates
    feed: Feed
    machine: Machine
    post: Callable[[Event], None]
    settings: CurrentSettings
    limits: UserLimits
    submission_rate: SubmissionRate
    bodies: LargeBodies
    admin_gid: int | None  # number of `UserLimits.admin_group`
    apply_settings: Callable[[Settings], Awaitable[None]]
    controls: Controls
    telemetry: TelemetryService
    history: DeviceHistory
    turns: PastTurns
    metrics: DaemonMetrics
    options: DaemonOptions
    notice: str  # what users are told of the journal; empty: nothing
    control_groups: ControlGroups
    gone: Container[JobId]  # numbers of jobs of which the journal has lost the record
    hooks: JobHooks
    stop: Callable[[bool], None]
    ready: asyncio.Event  # set when all jobs of an earlier daemon have been adopted
    stopping: asyncio.Event


CONTEXT: web.AppKey[Context] = web.AppKey("context", Context)


@dataclass(frozen=True, slots=True)
class Caller:
    """The user at the other end of the connection."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()  # supplementary ones


#: Callers by connection: the kernel keeps the credentials that the caller had when connecting.
_CALLERS: WeakKeyDictionary[asyncio.Transport, Caller] = WeakKeyDictionary()
#: Where a request keeps its caller, which several parts ask for.
_CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


def caller(request: web.Request) -> Caller:
    """Return the caller, from the connection's credentials, which the kernel vouches for."""
    found = request.get(_CALLER)
    if found is None:
        found = request[_CALLER] = _at_the_other_end(request)
    return found


def known_uid(request: web.Request) -> int | None:
    """Return the uid of the caller; None if `caller` has not been called for this request yet."""
    found = request.get(_CALLER)
    return None if found is None else found.uid


def _at_the_other_end(request: web.Request) -> Caller:
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport else None
    if transport is None or connection is None:
        raise RequestError(400, "no_connection", "the connection is gone")
    found = _CALLERS.get(transport)
    if found is None:
        _, uid, gid = peer_credentials(connection)
        found = _CALLERS[transport] = Caller(uid, gid, peer_groups(connection))
    return found


def administers(context: Context, who: Caller) -> bool:
    """Whether the caller is root, the user who runs the daemon, or a member of `UserLimits.admin_group`."""
    return who.uid in (0, context.uid) or context.admin_gid in (who.gid, *who.groups)


def viewer(context: Context, who: Caller) -> Viewer:
    """Return the viewer for this user, with the visibility that the limits set; administrators see everything."""
    sees = Visibility.ALL if administers(context, who) else context.limits.visibility
    return Viewer(who.uid, sees, context.jobs.owner)


def was_removed(context: Context, number: int, who: Caller) -> bool:
    """Whether this was a job, has been removed, and the caller may know of other users' jobs."""
    seen = viewer(context, who).sees is not Visibility.OWN
    known = context.jobs.owner(number) is not None or number in context.gone
    return seen and context.jobs.was_given(number) and not known


def removed_text(context: Context, number: int) -> tuple[str, str]:
    """Return the text for people about a removed job, and a hint."""
    limits = context.limits
    kept = f"ended jobs are kept for {format_duration(limits.keep_for)}, {limits.keep_jobs} of one user"
    return f"job {number} ended and has been removed", kept


class LargeBodies:
    """Limits the large bodies of each user that are read at once; an unread body takes only a buffer of memory."""

    def __init__(self) -> None:
        self._of: dict[int, asyncio.Semaphore] = {}

    def reading(self, uid: int, length: int | None) -> AbstractAsyncContextManager[None]:
        """Return the context for reading and decoding a body of this user.  ``length``: bytes; None: unknown."""
        if length is not None and length <= SMALL:
            return nullcontext()
        return self._of.setdefault(person_of(uid), asyncio.Semaphore(MOST_AT_ONCE))


class FrontConnection(Protocol):
    """The connection of a front, which the kernel closes when the front ends, however it ends."""

    def is_closing(self) -> bool:
        """Whether the connection is closed, at either end."""


class FrontReports(Generic[T]):
    """The last report of each front that is connected: a report counts until the next, or its connection's end."""

    def __init__(self) -> None:
        self._reports: dict[FrontConnection, tuple[int, T]] = {}

    def report(self, connection: FrontConnection, uid: int, report: T) -> None:
        """Replace the last report on this connection.  ``uid``: of the process at the other end."""
        self._forget_closed()
        self._reports[connection] = (uid, report)

    def present(self) -> Iterable[tuple[int, T]]:
        """Return each front's user and report."""
        self._forget_closed()
        return self._reports.values()

    def _forget_closed(self) -> None:
        self._reports = {each: report for each, report in self._reports.items() if not each.is_closing()}


class ModelStates(FrontReports[Mapping[str, ModelState]]):
    """The states of models.  A report counts for models of the front's own user only.

    ``where`` says where weights are now.
    """

    def __init__(self, where: Whereabouts = lambda owner, key: {}) -> None:
        super().__init__()
        self._where = where

    def info(self, model: RegisteredModel) -> ModelInfo:
        """Return the model with its state; ``not served`` if no front has reported a state."""
        known = min(self._of(model), key=lambda each: _RANK[each.state], default=None)
        if known is None:
            return model.info(NOT_SERVED)
        key, figures = known.weights_key, known.figures
        return msgspec.structs.replace(
            model.info(known.state, known.reason),
            figures=None if isinstance(figures, msgspec.UnsetType) else figures,
            on_devices={} if isinstance(key, msgspec.UnsetType) else self._where(model.owner, key),
        )

    def _of(self, model: RegisteredModel) -> Iterator[ModelState]:
        for uid, models in self.present():
            if uid == model.owner and model.name in models:
                yield models[model.name]


class EngineStates(FrontReports[Mapping[str, EngineState]]):
    """The states of engines, and what users wish of them: a front hears it with its next report."""

    def __init__(self) -> None:
        super().__init__()
        self._wishes: WeakKeyDictionary[FrontConnection, dict[str, Wish]] = WeakKeyDictionary()

    def report(self, connection: FrontConnection, uid: int, report: Mapping[str, EngineState]) -> None:
        """Replace the last report on this connection.  Raises RequestError if a person's engines are too many."""
        self._reports.pop(connection, None)
        person = person_of(uid)
        theirs = [engines for owner, engines in self.present() if person_of(owner) == person]
        if sum(max(1, len(state.models)) for each in (*theirs, report) for state in each.values()) > MOST_ENGINES:
            text = f"the engines of user {user_name(uid)} have more than {MOST_ENGINES} models"
            raise RequestError(429, "too_many_engines", text, "carpool engine ls lists them")
        super().report(connection, uid, report)

    def wish(self, owner: int, name: str, wish: Wish) -> None:
        """Keep a wish about an engine for the fronts that serve it."""
        for connection, (uid, engines) in self._reports.items():
            if uid == owner and name in engines:
                self._wishes.setdefault(connection, {})[name] = wish

    def wishes(self, connection: FrontConnection) -> dict[str, Wish]:
        """Return the wishes since the last report on this connection, which are fulfilled from now on."""
        return self._wishes.pop(connection, {})
