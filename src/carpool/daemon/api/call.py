"""The argument of handlers: a request with its caller, what the caller may see, and what path, query and body say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeVar

import msgspec
from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context, administers, caller, removed_text, viewer, was_removed
from carpool.daemon.api.entrance import PLACE
from carpool.daemon.api.visibility import Viewer
from carpool.daemon.config.limits import Visibility
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.system.errors import RequestError
from carpool.protocol.display import user_name

T = TypeVar("T")
D = TypeVar("D", int, None)
#: Digits of a job's number, which fits into 64 bits.
LONGEST_ID = 19
LARGEST_NUMBER = 2**62


class ApiCall:
    """One request, as its handler sees it."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.context: Context = request.app[CONTEXT]
        self.who = caller(request)

    @property
    def sight(self) -> Viewer:
        """The jobs and names that the caller may see."""
        return viewer(self.context, self.who)

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return self.request.match_info[name]

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which the request only waits, and is not in work."""
        return self.request[PLACE].aside(self.request)

    def require_admin(self, what: str) -> None:
        """Refuse callers who are not administrators.  Raises RequestError 403."""
        context = self.context
        if not administers(context, self.who):
            group = [f"members of group {context.limits.admin_group}"] if context.limits.admin_group else []
            others = ", ".join([*([user_name(context.uid)] if context.uid else []), *group])
            only = f"only {others + ' and ' if others else ''}root may"
            text = f"user {user_name(self.who.uid)} may not {what}; {only}"
            raise RequestError(403, "not_operator", text, "ask an administrator of the daemon")

    def require_owner(self, job: JobRecord | EndedJob, what: str) -> None:
        """Refuse callers who are neither the job's owner nor administrators.  Raises RequestError 403."""
        if self.who.uid != job.owner and not administers(self.context, self.who):
            text = f"job {job.number} belongs to user {user_name(job.owner)}"
            raise RequestError(403, "not_owner", f"{text}; user {user_name(self.who.uid)} may not {what}")

    def known_job(self, number: int) -> JobRecord | EndedJob | None:
        """Return the job with this number; None: there is none that the caller may know of."""
        jobs = self.context.jobs
        job = jobs.live.get(number) or jobs.ended.get(number)
        return job if job is not None and self.sight.knows(job.owner) else None

    def job(self, what: str = "") -> JobRecord | EndedJob:
        """Return the job that the path names.  Raises RequestError 404, also for a job hidden from the caller.

        ``what``: only its owner and administrators may do that with it.  Raises RequestError 403.
        """
        text = self.path("id")
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_ID else 0
        job = self.known_job(number)
        if job is None:
            raise self._no_job(number, text[:LONGEST_ID])
        if what:
            self.require_owner(job, what)
        return job

    def _no_job(self, number: int, text: str) -> RequestError:
        """Return the error for a job that is not found; a removed job is told apart only if the caller may know."""
        context = self.context
        if number in context.gone and self.sight.sees is not Visibility.OWN and context.jobs.owner(number) is None:
            lost = f"the journal has no record of job {number} that can be read"
            return RequestError(404, "unknown_job", lost, "carpool doctor --journal says what is known of the job")
        if was_removed(context, number, self.who):
            return RequestError(404, "removed_job", *removed_text(context, number))
        return unknown_job(text)

    async def body(self, kind: type[T]) -> T:
        """Read the body and decode it as ``kind``.  Raises RequestError 400, which names the field."""
        async with AsyncExitStack() as stack:
            async with self.aside():
                reading = self.context.bodies.reading(self.who.uid, self.request.content_length)
                await stack.enter_async_context(reading)
                body = await self.request.read()
            return decode_body(body, kind)

    def fraction(self, name: str, largest: float) -> float | None:
        """Return a query parameter.  Raises RequestError 400 unless the value is a number from 0 to ``largest``."""
        text = self.request.query.get(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= largest:
            raise RequestError(400, "bad_parameter", f"{name}={text} is not a number from 0 to {largest:g}")
        return value

    def number(self, name: str, default: D, largest: float = LARGEST_NUMBER) -> int | D:
        """Return a query parameter, rounded down.  Raises RequestError 400 as `fraction` does."""
        value = self.fraction(name, largest)
        return default if value is None else int(value)

    def flag(self, name: str) -> bool:
        """Whether a query parameter is on; a missing one is off.  Raises RequestError 400."""
        text = self.request.query.get(name, "0")
        if text not in ("0", "1", "false", "true"):
            raise RequestError(400, "bad_parameter", f"{name}={text} is neither 0 nor 1")
        return text in ("1", "true")


#: Answers a request with what becomes its JSON, or with a whole response.
Handler = Callable[[ApiCall], Awaitable[object]]


def unknown_job(number: int | str) -> RequestError:
    """Return the error for a job that does not exist, or is hidden from the caller."""
    return RequestError(404, "unknown_job", f"there is no job {number}", "carpool ls --all lists them")


def decode_body(body: bytes, kind: type[T]) -> T:
    """Decode a body as ``kind``.  Raises RequestError 400, which names the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:  # also for text that is not UTF-8
        raise RequestError(400, "bad_request", f"the body is not a {kind.__name__}: {error}") from None
