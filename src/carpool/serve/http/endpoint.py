"""The HTTP server of `carpool serve`: the Open Inference Protocol before a back end that computes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web

import carpool
from carpool.serve.http.auth import authorized, check_address
from carpool.serve.http.request_body import decompressed
from carpool.serve.metrics import MEDIA, Metrics
from carpool.serve.oip.errors import (
    BodyTooLarge,
    ModelUnavailable,
    NotAuthorized,
    QueueFull,
    ServeError,
    ShuttingDown,
    StartError,
    UnknownModel,
    WrongInput,
)
from carpool.serve.oip.messages import LENGTH_HEADER, UNAVAILABLE, VERSION, IndexEntry, InferRequest, describe
from carpool.serve.oip.requests import decode_request
from carpool.serve.oip.responses import encode_response
from carpool.serve.oip.values import ModelMetadata, Tensor

log = logging.getLogger(__name__)
#: For aiohttp, which would tell of malformed HTTP, with its bytes: anybody could fill the log, a token may be in them.
_no_log = logging.getLogger(f"{__name__}.http")
_no_log.disabled = True
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONGEST_ERROR = 2000  # letters: names in a request may be as long as its body
#: Whoever looks after processes has no token.
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
EXTENSIONS = ("binary_tensor_data", "model_repository")


class Backend(Protocol):
    """What computes.  It is called from the endpoint's event loop only."""

    def models(self) -> Mapping[str, ModelMetadata]:
        """Those that can be asked now."""

    def unavailable(self) -> Mapping[str, str]:
        """The others that there are, and why each cannot be asked."""

    def troubles(self) -> Sequence[str]:
        """Why models that can be asked are not computed at present; none: all are."""

    def waiting(self) -> Mapping[str, int]:
        """How many requests wait for each model."""

    def workers(self) -> Mapping[str, int]:
        """How many worker processes are in which state."""

    async def infer(self, request: InferRequest) -> Sequence[Tensor]:
        """The outputs of the model, at least those that are wanted.

        Raises ServeError.  When it is cancelled, the client has gone: what has not begun is not computed.
        """


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Where the endpoint listens, whom it answers, and its limits."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    token: str | None = None
    largest_body: int = 64 << 20  # bytes, after decompression
    drain_s: float = 30.0  # so long `stop` waits for requests that are being computed


class Endpoint:
    """`start` it, and `stop` it in the end."""

    def __init__(self, backend: Backend, options: EndpointOptions, metrics: Metrics | None = None) -> None:
        """``metrics``: where the back end counts, too.  Raises StartError."""
        check_address(options.host, options.token)
        self.metrics = Metrics() if metrics is None else metrics
        self._backend = backend
        self._options = options
        self._stopping = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._runner = web.AppRunner(
            self._app(),
            access_log=None,
            logger=_no_log,
            handle_signals=False,
            auto_decompress=False,  # what is wrong there is said in the protocol's form
            handler_cancellation=True,
            shutdown_timeout=options.drain_s,
        )

    async def start(self) -> str:
        """Listen; the URL.  Raises StartError."""
        await self._runner.setup()
        host, port = self._options.host, self._options.port
        try:
            await web.TCPSite(self._runner, host, port, backlog=1024).start()
        except OSError as error:
            await self._runner.cleanup()
            raise StartError(f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port") from None
        address = self._runner.addresses[0]
        return f"http://[{address[0]}]:{address[1]}" if ":" in address[0] else f"http://{address[0]}:{address[1]}"

    async def stop(self) -> None:
        """Refuse new requests, answer those that are in flight, close."""
        self._stopping = True
        try:
            await asyncio.wait_for(self._idle.wait(), self._options.drain_s)
        except TimeoutError:
            log.warning("not answered within %g s: %d requests", self._options.drain_s, self._in_flight)
        await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=self._options.largest_body)
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/v2", self._server),
            ("GET", "/v2/health/live", self._live),
            ("GET", "/v2/health/ready", self._ready),
            ("POST", "/v2/repository/index", self._index),
            ("GET", "/metrics", self._metrics),
        ]
        for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            routes += [
                ("POST", f"{model}/infer", self._infer),  # tried first, as it is asked most
                ("GET", f"{model}/ready", self._model_ready),
                ("GET", model, self._model_metadata),
            ]
        for method, path, handler in routes:
            app.router.add_route(method, path, handler, expect_handler=_expected)
        return app

    # Around every request

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_token(request)
            return await handler(request)
        except ServeError as error:
            return error_response(error)
        except web.HTTPException as error:
            text = f"{request.method} {request.path}: {error.reason}"
            return json_response({"error": text[:LONGEST_ERROR]}, error.status)
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            return json_response({"error": f"internal error in the server: {error!r}"[:LONGEST_ERROR]}, 500)

    def _check_token(self, request: web.Request) -> None:
        token = self._options.token
        if token is None or request.path in OPEN_PATHS:
            return
        if not authorized(request.headers.get("Authorization"), token):
            raise NotAuthorized("the header `Authorization: Bearer TOKEN` is missing, or its token is wrong")

    # Requests

    async def _server(self, _: web.Request) -> web.Response:
        return json_response({"name": "carpool", "version": carpool.__version__, "extensions": EXTENSIONS})

    async def _live(self, _: web.Request) -> web.Response:
        return json_response({"live": True})

    async def _ready(self, _: web.Request) -> web.Response:
        """Whether all models can be computed; those that were never available are no reason to send nobody here."""
        reasons = ["the server is stopping"] if self._stopping else self._backend.troubles()
        if reasons:
            return json_response({"ready": False, "reason": "; ".join(reasons)[:LONGEST_ERROR]}, 503)
        return json_response({"ready": True})

    async def _index(self, _: web.Request) -> web.Response:
        entries = {name: IndexEntry(name) for name in self._backend.models()}
        for name, reason in self._backend.unavailable().items():
            entries[name] = IndexEntry(name, state=UNAVAILABLE, reason=reason)
        return json_response([entry for _, entry in sorted(entries.items())])

    async def _metrics(self, _: web.Request) -> web.Response:
        text = self.metrics.text(self._backend.waiting(), self._backend.workers())
        return web.Response(body=text.encode(), headers={"Content-Type": MEDIA})

    async def _model_metadata(self, request: web.Request) -> web.Response:
        return json_response(describe(self._model(request)))

    async def _model_ready(self, request: web.Request) -> web.Response:
        model = self._model(request)
        return json_response({"name": model.name, "ready": not self._stopping}, 503 if self._stopping else 200)

    async def _infer(self, request: web.Request) -> web.Response:
        begin, name = time.monotonic(), ""
        self._in_flight += 1
        self._idle.clear()
        try:
            model = self._model(request)
            name = model.name
            if self._stopping:
                raise ShuttingDown("the server is stopping")
            body = await _body(request, self._options.largest_body)
            asked = decode_request(model, body, _header_bytes(request))
            message = encode_response(asked, await self._backend.infer(asked))
        except (Exception, asyncio.CancelledError) as error:
            self.metrics.failed(name, _kind(error))
            raise
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
        self.metrics.answered(name, time.monotonic() - begin)
        return web.Response(body=message.body, headers=message.headers)

    def _model(self, request: web.Request) -> ModelMetadata:
        """That of the path.  Raises UnknownModel, ModelUnavailable."""
        name, models = request.match_info["model"], self._backend.models()
        model = models.get(name)
        if model is None:
            if (reason := self._backend.unavailable().get(name)) is not None:
                raise ModelUnavailable(f"model {name!r} is not available: {reason}")
            raise UnknownModel(f"there is no model {name!r}; known: {', '.join(models) or 'none'}")
        if (version := request.match_info.get("version", VERSION)) != VERSION:
            raise UnknownModel(f"model {name!r} has no version {version!r}, only {VERSION}")
        return model


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """aiohttp's own one fails over a header that is no text."""
    if request.headers["Expect"].lower() != "100-continue":
        return json_response({"error": "the header Expect may only be `100-continue`"}, 417)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # as if nothing had been sent yet
    return None


async def _body(request: web.Request, largest: int) -> bytes:
    """Decompressed.  Raises WrongInput, WrongEncoding, BodyTooLarge."""
    try:
        body = await request.read()
    except web.RequestPayloadError as error:
        raise WrongInput(f"the body cannot be read: {error}") from None
    except web.HTTPRequestEntityTooLarge:
        raise BodyTooLarge(f"the body has more than {largest} bytes") from None
    return decompressed(body, request.headers.get("Content-Encoding", ""), largest)


def _header_bytes(request: web.Request) -> int | None:
    """How long the JSON is, where binary data follows it.  Raises WrongInput."""
    text = request.headers.get(LENGTH_HEADER)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise WrongInput(f"{LENGTH_HEADER} is {text!r}; it must be a number of bytes")
    return int(text)


def _kind(error: BaseException) -> str:
    if isinstance(error, ServeError):
        return error.kind
    return "client_gone" if isinstance(error, asyncio.CancelledError) else "internal"


def json_response(value: object, status: int = 200) -> web.Response:
    """An answer with a body in JSON."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def error_response(error: ServeError) -> web.Response:
    """The answer to a request that failed: the status of its error and a body as the protocol wants it."""
    response = json_response({"error": str(error)[:LONGEST_ERROR]}, error.status)
    if isinstance(error, QueueFull):
        response.headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, NotAuthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ShuttingDown):
        response.force_close()
    return response
