"""Around every request: the protocol's version, errors as `ErrorBody`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context, caller, known_uid
from carpool.daemon.api.entrance import PLACE, QUEUE, RequestPlace
from carpool.daemon.system.errors import CarpoolError, JournalFull, RequestError, is_refusal, refusal_text
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.log_setup import REQUEST
from carpool.protocol.api import API_VERSION, PROTOCOL_HEADER, ErrorBody, ErrorInfo
from carpool.protocol.display import user_name
from carpool.protocol.environment import REQUEST_FORM, REQUEST_HEADER, is_request_id, new_request_id
from carpool.protocol.http_connections import json_response

log = logging.getLogger(__name__)
#: Requests for all other paths wait until a restarted daemon has recovered its jobs.
ALWAYS_ANSWERED = ("/v1/version", "/v1/shutdown", "/openapi.json")
#: Rows of a list in one write, and how long a client may take for all of them.
ROWS_AT_ONCE, ANSWER_S = 50, 30.0
#: The id that came with a request, or was given to the request here.
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


def error_response(status: int, info: ErrorInfo) -> web.Response:
    """Return the answer to a refused request, with an `ErrorBody`."""
    return json_response(ErrorBody(info, REQUEST.get()), status)


@web.middleware
async def guard(request: web.Request, handler: Respond) -> web.StreamResponse:
    """Run a handler: set the request's id, check the caller, wait for the end of a restart, answer errors as JSON."""
    given = request.headers.get(REQUEST_HEADER)
    known = request[REQUEST_ID] = given if given is not None and is_request_id(given) else new_request_id()
    mark = REQUEST.set(known)
    try:
        answer = await _guarded(request, handler)
        if log.isEnabledFor(logging.DEBUG):
            cause = caused_by(known_uid(request))
            log.debug("%s %s: status %d", request.method, request.path, answer.status, extra=cause)
        return answer
    finally:
        REQUEST.reset(mark)


async def _guarded(request: web.Request, handler: Respond) -> web.StreamResponse:
    try:
        context = request.app[CONTEXT]
        _check_version(request)
        _check_request_id(request)
        check_user(caller(request).uid, context)
        if request.path not in ALWAYS_ANSWERED:
            await context.ready.wait()
        place = request[PLACE] = RequestPlace(request.app[QUEUE], caller(request).uid)
        async with place.held(request):
            return await handler(request)
    except RequestError as error:
        return error_response(error.status, error.info)
    except JournalFull as error:
        return error_response(507, error.info)
    except web.HTTPException as error:
        return _http_error(request, error)
    except CarpoolError as error:
        return error_response(500, error.info)
    except ConnectionError:
        return web.Response(status=499)  # the client went away in the middle of a stream, and reads no answer
    except Exception as error:  # noqa: BLE001 - every request is answered
        return _failed(request, error)


def _failed(request: web.Request, error: Exception) -> web.Response:
    refusal = is_refusal(error)
    trace, cause = None if refusal else error, caused_by(known_uid(request))
    text = refusal_text(error)
    log.error("%s %s failed: %s", request.method, request.path, text, exc_info=trace, extra=cause)
    if refusal:
        info = ErrorInfo("system_error", f"the system refuses what the daemon needs: {text}", "try again in a moment")
        return error_response(503, info)
    return error_response(500, ErrorInfo("internal", f"internal error in the daemon: {error!r}", "see daemon.log"))


async def list_response(request: web.Request, rows: Sequence[bytes], notice: str) -> web.StreamResponse:
    """Send a `JobList` whose rows are encoded already.

    The request stays in work until the client has taken the answer, which bounds the answers that clients do not take.
    """
    begin, end = b'{"jobs":[', b'],"notice":' + msgspec.json.encode(notice) + b"}"
    length = len(begin) + sum(map(len, rows)) + max(0, len(rows) - 1) + len(end)
    answer = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(length)})
    await answer.prepare(request)
    try:
        async with asyncio.timeout(ANSWER_S):
            for first in range(0, len(rows), ROWS_AT_ONCE):
                await answer.write((b"," if first else begin) + b",".join(rows[first : first + ROWS_AT_ONCE]))
            await answer.write(end if rows else begin + end)
            await answer.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return answer


async def add_protocol_header(request: web.Request, response: web.StreamResponse) -> None:
    """Add headers to an answer: the version of the API, and the id of the request."""
    response.headers[PROTOCOL_HEADER] = str(API_VERSION)
    known = request.get(REQUEST_ID)
    if known is not None:
        response.headers[REQUEST_HEADER] = known


def _check_version(request: web.Request) -> None:
    """Refuse another version of the API; a request without the header (curl, a browser) is taken as of this version."""
    given = request.headers.get(PROTOCOL_HEADER)
    if given is None or given.split(".")[0] == str(API_VERSION):
        return
    raise RequestError(
        409,
        "protocol_mismatch",
        f"this daemon speaks protocol {API_VERSION}, the request {given}",
        "stop it with the carpool that started it (carpool down) and start it again, or use the same version",
    )


def _check_request_id(request: web.Request) -> None:
    """Refuse a malformed request id; a request that came without an id has been given one."""
    if request.headers.get(REQUEST_HEADER, request[REQUEST_ID]) != request[REQUEST_ID]:
        raise RequestError(
            400, "bad_request_id", f"the header {REQUEST_HEADER} is not the id of a request", REQUEST_FORM
        )


def check_user(uid: int, context: Context) -> None:
    """Refuse a user whom this daemon does not serve.  Raises RequestError."""
    mine = context.uid
    if not context.privileges.serves_others and uid not in (0, mine):
        raise RequestError(
            403,
            "other_user",
            f"this daemon belongs to user {user_name(mine)} and serves only that user",
            "start one of your own: carpool up",
        )


def _http_error(request: web.Request, error: web.HTTPException) -> web.Response:
    codes = {404: "unknown_path", 405: "wrong_method", 413: "too_large"}
    info = ErrorInfo(codes.get(error.status, "bad_request"), f"{request.method} {request.path}: {error.reason}")
    return error_response(error.status, info)
