"""OpenAI's paths in front of engines, and those of llama-swap: requests go to the engine of the model that they name.

A request and its answer pass through unchanged, but for the model's name where the engine knows another.  Paths that
are not known here go to the engine all the same: what an engine can do is its own business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDictProxy
from yarl import URL

from carpool.core.spelling import did_you_mean
from carpool.protocol.engines import OFF
from carpool.protocol.http_connections import json_response
from carpool.serve.engines.engine import Engine
from carpool.serve.engines.engines import Engines
from carpool.serve.engines.figures import Answer
from carpool.serve.engines.requests import Asked
from carpool.serve.http.access import API_KEY, authorized
from carpool.serve.http.bodies import Bodies, HeldBytes
from carpool.serve.http.routes import EndpointRoute
from carpool.serve.oip.errors import EngineLost, ServeError, UnknownModel

#: Headers of one connection (RFC 9110, 7.6.1), and those that the body here no longer matches.
_OF_CONNECTIONS = frozenset(
    [
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("host", "content-length", "expect", "proxy-authorization", "proxy-authenticate"),
    ]
)
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_CODES = {UnknownModel.kind: "model_not_found"}


class EngineRoutes:
    """The paths of engines, for the endpoint.

    ``bodies``: bounds of all requests; ``token``: the server's, for all engines; a client with a key of an engine
    sees and asks that engine alone.
    """

    prefixes: tuple[str, ...] = ("/v1/", "/upstream/", "/running", "/models/", "/api/models/", "/unload", "/health")

    def __init__(self, engines: Engines, bodies: Bodies, token: str | None) -> None:
        self._engines = engines
        self._bodies = bodies
        self._token = token

    def routes(self) -> Sequence[EndpointRoute]:
        """Return the paths."""
        return [
            EndpointRoute("GET", "/v1/models", self._models, counted=False),
            EndpointRoute("GET", "/v1/models/{model:.+}", self._model, counted=False),
            EndpointRoute("POST", "/v1/{path:.+}", self._by_model),
            EndpointRoute("*", "/upstream/{model}/{path:.*}", self._by_path),
            EndpointRoute("GET", "/running", self._running, counted=False),
            EndpointRoute("GET", "/health", self._health, counted=False),
            EndpointRoute("GET", "/unload", self._unload, counted=False),
            *(
                EndpointRoute("POST", f"{path}/unload", self._unload, counted=False)
                for path in ("/models", "/api/models")
            ),
            EndpointRoute("POST", "/api/models/unload/{model:.+}", self._unload, counted=False),
        ]

    def admits(self, request: web.Request) -> bool:
        """Whether a client has a key of an engine."""
        return any(engine.keys is not None for engine in self._visible(request).values())

    def failed(self, status: int, kind: str, text: str) -> web.Response:
        """Return the answer to a failed request, in OpenAI's form."""
        return json_response(_error(status, kind, text), status)

    # What there is

    def _visible(self, request: web.Request) -> dict[str, Engine]:
        """Return the engines that the client may use, by model."""
        headers = request.headers
        has_token = self._token is not None and authorized(headers, self._token)
        open_to_all = self._token is None or has_token
        return {
            model: engine
            for model, engine in self._engines.models().items()
            if has_token or (open_to_all if engine.keys is None else any(authorized(headers, k) for k in engine.keys))
        }

    def _of_model(self, request: web.Request, model: str) -> Engine:
        """Return the engine that answers to a model.  Raises UnknownModel."""
        visible = self._visible(request)
        if model not in visible:
            known = ", ".join(visible) or "none"
            raise UnknownModel(f"there is no model {model[:200]!r}; {did_you_mean(model, visible)}known: {known}")
        return visible[model]

    async def _models(self, request: web.Request) -> web.Response:
        data = [_described(model, engine) for model, engine in self._visible(request).items()]
        return json_response({"object": "list", "data": data})

    async def _model(self, request: web.Request) -> web.Response:
        model = request.match_info["model"]
        return json_response(_described(model, self._of_model(request, model)))

    async def _running(self, request: web.Request) -> web.Response:
        running = [_running(model, each) for model, each in self._visible(request).items() if each.state != OFF]
        return json_response({"running": running})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _unload(self, request: web.Request) -> web.Response:
        """End the engine of a model, or all."""
        model = request.match_info.get("model")
        ended = self._visible(request).values() if model is None else [self._of_model(request, model)]
        await asyncio.gather(*(engine.stop() for engine in {*ended}))
        return web.Response(text="OK")

    # Requests

    async def _by_model(self, request: web.Request) -> web.StreamResponse:
        """Pass a request to the engine of the model that its body names."""
        with HeldBytes(self._bodies) as held:
            body, media = await held.read(request), request.headers.get("Content-Type", "")
            asked = Asked.of(body, media)
            engine = self._of_model(request, asked.model)
            if (known_as := engine.spec.upstream) is not None and known_as != asked.model:
                body = asked.renamed(known_as)
            return await self._passed(request, engine, request.rel_url.raw_path_qs, body)

    async def _by_path(self, request: web.Request) -> web.StreamResponse:
        """Pass a request to the engine that its path names, without the part of the path that names it."""
        with HeldBytes(self._bodies) as held:
            engine = self._of_model(request, request.match_info["model"])
            target = "/" + request.rel_url.raw_path_qs.split("/", 3)[3]
            return await self._passed(request, engine, target, await held.read(request))

    async def _passed(self, request: web.Request, engine: Engine, target: str, body: bytes) -> web.StreamResponse:
        """Answer as the engine does.  Raises ServeError if the engine cannot answer at all."""
        passing = _Passing(self._engines, engine, request)
        try:
            async with engine.request() as url:
                return await passing.answer(f"{url}{target}", self._kept(request), body)
        except ServeError as error:
            passing.ended(error.kind)
            raise
        except BaseException:
            passing.ended("client_gone")
            raise

    def _kept(self, request: web.Request) -> list[tuple[str, str]]:
        """Return the headers for the engine; our own token or a key of any engine is not among them."""
        dropped = {"content-encoding"}
        keys = [key for engine in self._engines.models().values() for key in engine.keys or ()]
        if self._token is not None or any(authorized(request.headers, key) for key in keys):
            dropped |= {"authorization", API_KEY.lower()}
        return [(name, value) for name, value in _end_to_end(request.headers) if name.lower() not in dropped]


class _Passing:
    """One request on its way to an engine, and the answer on its way back."""

    def __init__(self, engines: Engines, engine: Engine, request: web.Request) -> None:
        self._engine = engine
        self._request = request
        self._session = engines.session
        self._figures = engines.figures
        self._begin_s = self._figures.now()
        self._figured: Answer | None = None

    def ended(self, result: str) -> None:
        """Count the request."""
        self._figures.ended(self._engine.name, result, self._figured)

    async def answer(self, url: str, headers: list[tuple[str, str]], body: bytes) -> web.StreamResponse:
        """Pass the answer of the engine on.  Raises EngineLost if there is none."""
        try:
            upstream = await self._session.request(
                self._request.method,
                URL(url, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
            )
        except aiohttp.ClientError as error:
            raise EngineLost(f"{self._engine.name} does not answer: {error}") from None
        async with upstream:
            return await self._pass(upstream)

    async def _pass(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        self._figured = self._figures.answer(upstream.content_type, self._begin_s)
        answer = await self._begun(upstream)
        try:
            async for piece in _pieces(upstream):
                self._figured.passes(piece)
                await answer.write(piece)
        except _Broken:
            return await self._broken(answer, self._figured.streams)
        await answer.write_eof()
        self.ended(str(upstream.status))
        return answer

    async def _begun(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        """Return the answer to the client, whose head has been sent."""
        answer = web.StreamResponse(status=upstream.status, reason=upstream.reason)
        answer.headers.extend(_end_to_end(upstream.headers))
        if upstream.content_length is not None and self._request.method != "HEAD":
            answer.content_length = upstream.content_length
        await answer.prepare(self._request)
        return answer

    async def _broken(self, answer: web.StreamResponse, streams: bool) -> web.StreamResponse:
        """End an answer whose engine has died: a stream by an event that says so, another in its midst."""
        text = f"{self._engine.name} has ended in the middle of its answer"
        if streams:
            error = msgspec.json.encode(_error(EngineLost.status, EngineLost.kind, text))
            await answer.write(b"data: " + error + b"\n\n")
            await answer.write_eof()
        elif self._request.transport is not None:
            self._request.transport.abort()
        self.ended(EngineLost.kind)
        return answer


class _Broken(Exception):
    """The engine has stopped in the middle of its answer."""


async def _pieces(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body as it comes.  Raises _Broken."""
    try:
        async for piece in upstream.content.iter_any():
            yield piece
    except aiohttp.ClientError:
        raise _Broken from None


def _end_to_end(headers: CIMultiDictProxy[str]) -> list[tuple[str, str]]:
    """Return the headers that do not belong to a connection."""
    named = {name.strip().lower() for line in headers.getall("Connection", ()) for name in line.split(",")}
    dropped = _OF_CONNECTIONS | named
    return [(name, value) for name, value in headers.items() if name.lower() not in dropped]


def _described(model: str, engine: Engine) -> dict[str, object]:
    return {"id": model, "object": "model", "created": 0, "owned_by": engine.name, "state": engine.state}


def _running(model: str, engine: Engine) -> dict[str, object]:
    """Return what llama-swap says of a model."""
    ttl_us = engine.spec.ttl_us
    return {
        "model": model,
        "name": engine.name,
        "state": engine.state,
        "proxy": engine.url,
        "ttl": 0 if ttl_us is None else ttl_us // 1_000_000,
        "in_flight": engine.in_flight,
    }


def _error(status: int, kind: str, text: str) -> dict[str, object]:
    family = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    param = "model" if kind == UnknownModel.kind else None
    return {"error": {"message": text, "type": family, "param": param, "code": _CODES.get(kind, kind)}}
