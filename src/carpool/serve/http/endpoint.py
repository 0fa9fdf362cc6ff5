"""The HTTP server of `carpool serve`: the Open Inference Protocol in front of a back end that computes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

import carpool
from carpool.protocol.http_connections import json_response
from carpool.protocol.models import DEFAULT_CONNECTIONS
from carpool.serve.http.access import authorized, check_address, check_origin
from carpool.serve.http.bodies import Bodies, HeldBytes, header_bytes, may_send
from carpool.serve.http.connections import WRONG_EXPECT, ConnectionLimits, Listener
from carpool.serve.http.routes import EndpointRoute, Handler, RouteGroup
from carpool.serve.metrics import Metrics
from carpool.serve.oip.codec import decode_request, encode_response
from carpool.serve.oip.errors import (
    BodyTooSlow,
    ModelUnavailable,
    NotAuthorized,
    ServeError,
    ShuttingDown,
    UnknownModel,
)
from carpool.serve.oip.messages import UNAVAILABLE, VERSION, IndexEntry, InferRequest, Message, describe
from carpool.serve.oip.values import ModelMetadata, Tensor

log = logging.getLogger(__name__)
#: Makes the answer to a failed request from a status, a kind of error, and a text.
ErrorForm = Callable[[int, str, str], web.Response]

LONGEST_ERROR = 2000  # letters: names in a request may be as long as its body
#: Paths that need no token, because supervisors of processes have none.
OPEN_PATHS = ("/health", "/v2/health/live", "/v2/health/ready")
EXTENSIONS = ("binary_tensor_data", "model_repository")


class Backend(Protocol):
    """The back end that computes, called from the endpoint's event loop only."""

    def models(self) -> Mapping[str, ModelMetadata]:
        """Return the models that can be asked now."""

    def unavailable(self) -> Mapping[str, str]:
        """Return the other models, with the reason why each cannot be asked."""

    def troubles(self) -> Sequence[str]:
        """Return why models are not computed at present, or why no model can be asked; empty if all is well."""

    def degraded(self) -> Sequence[str]:
        """Return why models are computed by fewer workers than intended; empty if they are not."""

    def waiting(self) -> Mapping[str, int]:
        """Return how many requests wait for each model."""

    def workers(self) -> Mapping[str, int]:
        """Return how many worker processes are in which state."""

    async def infer(self, request: InferRequest) -> Sequence[Tensor]:
        """Return the outputs of the model, at least those that are wanted.

        Raises ServeError.  It is cancelled when the client has gone: a computation that has not begun is dropped.
        """


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The endpoint's address, access control and limits."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    token: str | None = None
    largest_body: int = 64 << 20  # bytes, after decompression
    body_bytes: int = 512 << 20  # of all requests that are not answered
    connections: int = DEFAULT_CONNECTIONS
    patience_s: float = 10.0  # longest time of a client for a head, for the next bytes of a body, for an answer
    drain_s: float = 30.0  # how long `stop` waits for requests that are being computed


class Endpoint:
    """The HTTP server: `start` it first, and `stop` it at the end."""

    def __init__(
        self,
        backend: Backend,
        options: EndpointOptions,
        metrics: Metrics | None = None,
        groups: Sequence[Callable[[Bodies], RouteGroup]] = (),
    ) -> None:
        """Prepare the server.  Raises StartError.

        ``metrics``: where the back end counts, too.  ``groups``: more paths.
        """
        check_address(options.host, options.token)
        self.bodies = Bodies(options.largest_body, options.body_bytes, options.patience_s)
        self.metrics = Metrics() if metrics is None else metrics
        self._groups = [group(self.bodies) for group in groups]
        self._backend = backend
        self._options = options
        self._stopping = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=options.drain_s)
        limits = ConnectionLimits(options.connections, options.patience_s)
        self._listener = Listener(self._runner, limits)

    async def start(self) -> str:
        """Listen, and return the URL.  Raises StartError."""
        await self._runner.setup()
        try:
            return await self._listener.open(self._options.host, self._options.port)
        except BaseException:
            await self._runner.cleanup()
            raise

    async def stop(self) -> None:
        """Refuse new requests, answer those in flight, and close."""
        self._stopping = True
        try:
            await asyncio.wait_for(self._idle.wait(), self._options.drain_s)
        except TimeoutError:
            log.warning("not answered within %g s: %d requests", self._options.drain_s, self._in_flight)
        self._listener.close()
        await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        routes = [
            EndpointRoute("GET", "/v2", self._server, counted=False),
            EndpointRoute("GET", "/v2/health/live", self._live, counted=False),
            EndpointRoute("GET", "/v2/health/ready", self._ready, counted=False),
            EndpointRoute("POST", "/v2/repository/index", self._index, counted=False),
            EndpointRoute("GET", "/metrics", self._metrics, counted=False),
        ]
        for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            routes += [
                EndpointRoute("POST", f"{model}/infer", self._infer),  # matched first, because it is the most frequent
                EndpointRoute("GET", f"{model}/ready", self._model_ready, counted=False),
                EndpointRoute("GET", model, self._model_metadata, counted=False),
            ]
        for route in itertools.chain(routes, *(group.routes() for group in self._groups)):
            handler = self._counted(route.handler) if route.counted else route.handler
            app.router.add_route(route.method, route.path, handler, expect_handler=self._expected)
        return app

    async def _expected(self, request: web.Request) -> web.StreamResponse | None:
        """Answer the header Expect."""
        return None if await may_send(request) else self._form(request.path)(417, "wrong_expect", WRONG_EXPECT)

    def _counted(self, handler: Handler) -> Handler:
        """Return the handler of requests that are answered before the server stops."""

        async def counted(request: web.Request) -> web.StreamResponse:
            if self._stopping:
                raise ShuttingDown("the server is stopping")
            self._in_flight += 1
            self._idle.clear()
            try:
                return await handler(request)
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._idle.set()

        return counted

    # Around every request

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_client(request)
            return await handler(request)
        except ServeError as error:
            return error_response(error, self._form(request.path))
        except web.HTTPException as error:
            text = f"{request.method} {request.path}: {error.reason}"
            return self._form(request.path)(error.status, "unknown_path", text[:LONGEST_ERROR])
        except ConnectionError:
            return web.Response(status=499)  # the client is gone and does not read this
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            text = f"internal error in the server: {error!r}"
            return self._form(request.path)(500, "internal", text[:LONGEST_ERROR])

    def _check_client(self, request: web.Request) -> None:
        """Check that a client may use the endpoint; pages of other sites do not have the token.

        Raises WrongOrigin, NotAuthorized.
        """
        token = self._options.token
        if token is None:
            check_origin(*(request.headers.getall(name, ()) for name in ("Host", "Origin", "Sec-Fetch-Site")))
        elif request.path not in OPEN_PATHS and not self._is_admitted(request, token):
            raise NotAuthorized("the header `Authorization: Bearer TOKEN` is missing, or its token is wrong")

    def _is_admitted(self, request: web.Request, token: str) -> bool:
        group = self._group(request.path)
        has_token = authorized(request.headers, token)
        return has_token or (group is not None and group.admits(request))

    def _form(self, path: str) -> ErrorForm:
        """Return what makes the body of an error for a path."""
        group = self._group(path)
        return _failed if group is None else group.failed

    def _group(self, path: str) -> RouteGroup | None:
        return next((group for group in self._groups if f"{path}/".startswith(group.prefixes)), None)

    # Requests

    async def _server(self, _: web.Request) -> web.Response:
        return json_response({"name": "carpool", "version": carpool.__version__, "extensions": EXTENSIONS})

    async def _live(self, _: web.Request) -> web.Response:
        return json_response({"live": True})

    async def _ready(self, _: web.Request) -> web.Response:
        """Answer whether models can be computed.

        One model that was never available does not make the server unready; it is unready if that holds for all models.
        """
        reasons = ["the server is stopping"] if self._stopping else self._backend.troubles()
        if reasons:
            return json_response({"ready": False, "reason": "; ".join(reasons)[:LONGEST_ERROR]}, 503)
        degraded = "; ".join(self._backend.degraded())[:LONGEST_ERROR]
        return json_response({"ready": True, "degraded": degraded} if degraded else {"ready": True})

    async def _index(self, _: web.Request) -> web.Response:
        entries = {name: IndexEntry(name) for name in self._backend.models()}
        for name, reason in self._backend.unavailable().items():
            entries[name] = IndexEntry(name, state=UNAVAILABLE, reason=reason)
        return json_response([entry for _, entry in sorted(entries.items())])

    async def _metrics(self, request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        body, media = self.metrics.page(self._backend.waiting(), self._backend.workers(), accept)
        return web.Response(body=body, headers={"Content-Type": media})

    async def _model_metadata(self, request: web.Request) -> web.Response:
        return json_response(describe(self._model(request)))

    async def _model_ready(self, request: web.Request) -> web.Response:
        model = self._model(request)
        return json_response({"name": model.name, "ready": not self._stopping}, 503 if self._stopping else 200)

    async def _infer(self, request: web.Request) -> web.StreamResponse:
        with HeldBytes(self.bodies) as held:
            message = await self._answer(request, held)
            held.count(len(message.body))
            return await _sent(request, web.Response(body=message.body, headers=message.headers))

    async def _answer(self, request: web.Request, held: HeldBytes) -> Message:
        """Compute the answer to a request, and count its result or error.  Raises ServeError."""
        begin, name = time.monotonic(), ""
        try:
            model = self._model(request)
            name = model.name
            asked = await self._asked(request, model, held)
            message = encode_response(asked, await self._backend.infer(asked))
        except (Exception, asyncio.CancelledError) as error:
            self.metrics.failed(name, _kind(error))
            raise
        self.metrics.answered(name, time.monotonic() - begin)
        return message

    async def _asked(self, request: web.Request, model: ModelMetadata, held: HeldBytes) -> InferRequest:
        """Read and decode the body.  Values in JSON may need more bytes than their text.  Raises ServeError."""
        body = await held.read(request)
        asked = decode_request(model, body, header_bytes(request))
        held.count(max(len(body), sum(len(tensor.data) for tensor in asked.inputs)))
        return asked

    def _model(self, request: web.Request) -> ModelMetadata:
        """Return the model that the path names.  Raises UnknownModel, ModelUnavailable."""
        name, models = request.match_info["model"], self._backend.models()
        model = models.get(name)
        if model is None:
            if (reason := self._backend.unavailable().get(name)) is not None:
                raise ModelUnavailable(f"model {name!r} is not available: {reason}")
            raise UnknownModel(f"there is no model {name!r}; known: {', '.join(models) or 'none'}")
        if (version := request.match_info.get("version", VERSION)) != VERSION:
            raise UnknownModel(f"model {name!r} has no version {version!r}, only {VERSION}")
        return model


async def _sent(request: web.Request, answer: web.Response) -> web.Response:
    """Send the answer, and wait until the client has taken it or is gone."""
    await answer.prepare(request)
    await answer.write_eof()
    return answer


def _kind(error: BaseException) -> str:
    if isinstance(error, ServeError):
        return error.kind
    return "client_gone" if isinstance(error, asyncio.CancelledError) else "internal"


def _failed(status: int, _: str, text: str) -> web.Response:
    """Return an error in the form of the Open Inference Protocol."""
    return json_response({"error": text}, status)


def error_response(error: ServeError, form: ErrorForm) -> web.Response:
    """Return the answer to a failed request: ``form`` makes its status and body, and headers say what to do next."""
    response = form(error.status, error.kind, str(error)[:LONGEST_ERROR])
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, NotAuthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ShuttingDown | BodyTooSlow):
        response.force_close()
    return response
