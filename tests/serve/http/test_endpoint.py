"""The endpoint over real sockets: paths, errors, limits, stopping, clients that go."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carpool.serve.http.endpoint import Endpoint, EndpointOptions
from carpool.serve.oip.errors import StartError
from carpool.serve.oip.messages import LENGTH_HEADER
from tests.serve.backend import FAILURES, MODELS, PATIENCE_S, NumpyBackend
from tests.serve.conftest import OPTIONS, Server, Start

X = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
AFFINE = "/v2/models/affine/infer"


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(server: Server, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    host, _, port = server.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def infer(server: Server, body: Any = X, model: str = "affine", **headers: str) -> Answer:
    return ask(server, "POST", f"/v2/models/{model}/infer", body, headers)


def timed(timeout_us: int, **more: int) -> dict[str, Any]:
    return X | {"parameters": {"timeout": timeout_us, **more}}


def metrics(server: Server) -> dict[str, float]:
    lines = ask(server, "GET", "/metrics").body.decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


# Paths


def test_what_is_there(server: Server) -> None:
    assert ask(server, "GET", "/v2").json["extensions"] == ["binary_tensor_data", "model_repository"]
    assert ask(server, "GET", "/v2/health/live").json == {"live": True}
    assert ask(server, "GET", "/v2/health/ready").json == {"ready": True}
    index = {entry.pop("name"): entry for entry in ask(server, "POST", "/v2/repository/index").json}
    assert set(index) == {*MODELS, "broken"}
    assert index["affine"] == {"version": "1", "state": "READY", "reason": ""}
    assert index["broken"] == {"version": "1", "state": "UNAVAILABLE", "reason": "its factory raised an error"}


def test_health_says_that_workers_are_missing(server: Server) -> None:
    server.backend.lacking.append("worker job 7 is being replaced: its process is stopped")
    answer = ask(server, "GET", "/v2/health/ready")
    server.backend.lacking.clear()
    assert answer.status == 200, "the others compute"
    assert answer.json == {"ready": True, "degraded": "worker job 7 is being replaced: its process is stopped"}


@pytest.mark.parametrize("prefix", ["/v2/models/affine", "/v2/models/affine/versions/1"])
def test_a_model(server: Server, prefix: str) -> None:
    assert ask(server, "GET", prefix).json == {
        "name": "affine", "versions": ["1"], "platform": "pytorch",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }  # fmt: skip
    assert ask(server, "GET", f"{prefix}/ready").json == {"name": "affine", "ready": True}
    answer = ask(server, "POST", f"{prefix}/infer", X | {"id": "7"})
    output = {"name": "y", "shape": [1, 3], "datatype": "FP32", "data": [3, 5, 7]}
    assert answer.json == {"model_name": "affine", "model_version": "1", "id": "7", "outputs": [output]}


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/v2/models/broken/infer", 503, "model 'broken' is not available: its factory raised an error"),
        ("GET", "/v2/models/broken/ready", 503, "its factory raised an error"),
        ("GET", "/v2/models/q", 404, "there is no model 'q'; known: affine, pair"),
        ("POST", "/v2/models/q/infer", 404, "there is no model 'q'"),
        ("GET", "/v2/models/affine/versions/2/ready", 404, "model 'affine' has no version '2', only 1"),
        ("GET", "/v2/models/affine/config", 404, "GET /v2/models/affine/config: Not Found"),
        ("GET", AFFINE, 405, "Method Not Allowed"),
    ],
)
def test_what_is_not_there(server: Server, method: str, path: str, status: int, text: str) -> None:
    answer = ask(server, method, path)
    assert answer.status == status and text in answer.json["error"]


# Errors


@pytest.mark.parametrize("kind", FAILURES)
def test_errors_of_the_back_end_have_their_status_and_are_counted(server: Server, kind: str) -> None:
    name = f'carpool_request_errors_total{{kind="{kind}",model="fails"}}'
    before = metrics(server).get(name, 0)
    inputs = [{"name": "kind", "datatype": "BYTES", "shape": [1], "data": [kind]}]
    answer = infer(server, {"inputs": inputs}, "fails")
    assert answer.status == FAILURES[kind].status
    assert answer.json == {"error": f"failed as told: {kind}"}
    assert metrics(server)[name] == before + 1


def test_a_mistake_of_the_server_says_so_and_is_no_end(server: Server) -> None:
    body = {"inputs": [{"name": "kind", "datatype": "BYTES", "shape": [1], "data": ["?"]}]}
    answer = infer(server, body, "fails")
    assert answer.status == 500 and "internal error in the server: KeyError('?')" in answer.json["error"]
    assert infer(server).status == 200


def test_a_full_queue_says_when_to_come_again(serving: Start) -> None:
    server = serving(most_waiting=2)
    with ThreadPoolExecutor(2) as pool:
        with server.held():
            waiting = [pool.submit(infer, server) for _ in range(2)]
            server.backend.wait_until_waiting(2)
            answer = infer(server)
            assert metrics(server)['carpool_queue_length{model="affine"}'] == 2
        assert answer.status == 429 and answer.headers["Retry-After"] == "3"
        assert [future.result().status for future in waiting] == [200, 200]


# Bodies


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)]
)
def test_compressed_requests(server: Server, encoding: str, compress: Any) -> None:
    answer = infer(server, compress(json.dumps(X).encode()), **{"Content-Encoding": encoding})
    assert answer.json["outputs"][0]["data"] == [3, 5, 7]


@pytest.mark.parametrize(
    ("encoding", "statuses"),
    [("gzip", {400}), ("deflate", {400}), ("br", {415}), ("gzip, gzip", {415}), ("zstd", {400, 415})],
)
def test_what_cannot_be_decompressed(server: Server, encoding: str, statuses: set[int]) -> None:
    """Also by an encoding that aiohttp knows, and cannot decompress here."""
    answer = infer(server, b"no such thing", **{"Content-Encoding": encoding})
    assert answer.status in statuses and answer.json["error"]


def test_a_body_has_a_limit_also_when_it_is_compressed(server: Server) -> None:
    large = json.dumps(X).encode() + b" " * (2 << 20)
    assert infer(server, large).status == 413
    answer = infer(server, gzip.compress(large), **{"Content-Encoding": "gzip"})
    assert answer.status == 413 and answer.json["error"]


@pytest.mark.parametrize("length", ["x", "-1", "9" * 5000, "", "1.0", "²"])
def test_a_length_that_is_none(server: Server, length: str) -> None:
    answer = infer(server, **{LENGTH_HEADER: length.encode().decode("latin-1")})
    assert answer.status == 400 and answer.json["error"]


def test_an_error_is_not_as_long_as_the_request(server: Server) -> None:
    answer = infer(server, X | {"outputs": [{"name": "q" * 100_000}]})
    assert answer.status == 400 and len(answer.body) < 3000


HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Encoding": st.sampled_from(["gzip", "deflate", "identity", "br", ""]),
        "Content-Type": st.sampled_from(["application/json", "text/plain; charset=q", "multipart/form-data"]),
        LENGTH_HEADER: st.integers(-2, 200).map(str),
    },
)
BODIES = st.one_of(
    st.binary(max_size=100),
    st.binary(max_size=50).map(gzip.compress),
    st.just(json.dumps(X).encode()),
    st.just(gzip.compress(json.dumps(X).encode())),
    st.tuples(st.just(json.dumps(X).encode()), st.integers(0, 90), st.binary(max_size=4)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]
    ),
)


@settings(max_examples=1000)
@example(b"no deflate", {"Content-Encoding": "deflate"}, "affine")  # refused before a handler is called
@given(BODIES, HEADERS, st.sampled_from(["affine", "echo-BYTES", "pair", "q", "%00", "%ff", "%2e%2e", "a%2fb"]))
def test_no_request_is_the_servers_mistake(server: Server, body: bytes, headers: dict[str, str], model: str) -> None:
    answer = infer(server, body, model, **headers)
    assert answer.status == 200 or 400 <= answer.status < 500, answer.body
    assert answer.json.keys() >= ({"outputs"} if answer.status == 200 else {"error"})


@pytest.mark.parametrize(
    "data",
    [
        b"\0\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"POST /v2/models/affine/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /v2/models/affine/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v2/models/affine/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    ],
)
def test_what_is_no_http_harms_nobody(server: Server, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        status = connection.makefile("rb").readline()
    assert status in (b"", b"HTTP/1.0 400 Bad Request\r\n", b"HTTP/1.1 400 Bad Request\r\n")
    assert infer(server).status == 200
    assert caplog.records == []


# Tokens


def test_a_token_opens_everything_but_health_which_is_open(serving: Start) -> None:
    server = serving(replace(OPTIONS, token="s" * 16))
    for header in (
        {},
        {"Authorization": "Bearer " + "t" * 16},
        {"Authorization": "Basic " + "s" * 16},
        {"Authorization": "\xff"},
    ):
        answer = ask(server, "GET", "/v2/models/affine", headers=header)
        assert answer.status == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
        assert ask(server, "GET", "/metrics", headers=header).status == 401
        assert ask(server, "POST", AFFINE, X, header).status == 401
    assert ask(server, "GET", "/v2/health/ready").status == 200
    assert infer(server, Authorization="bearer " + "s" * 16).status == 200


async def test_other_addresses_need_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(StartError, match="a token is needed"):
            Endpoint(NumpyBackend(), EndpointOptions(host))
    for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost"):
        Endpoint(NumpyBackend(), EndpointOptions(host))


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1, port {port}: .*choose another"):
            await Endpoint(NumpyBackend(), EndpointOptions(port=port)).start()


# Stopping, and clients that go


def test_stopping_answers_what_is_there_and_refuses_what_comes(serving: Start) -> None:
    server = serving()
    with ThreadPoolExecutor(1) as pool, server.held():
        waiting = pool.submit(infer, server)
        server.backend.wait_until_waiting(1)
        stopped = server.begin(server.endpoint.stop())
        late = infer(server)
        assert late.status == 503 and late.json == {"error": "the server is stopping"}
        assert late.headers["Connection"] == "close"
        assert ask(server, "GET", "/v2/health/ready").status == 503
        assert ask(server, "GET", "/v2/models/affine/ready").status == 503
        assert ask(server, "GET", "/v2/health/live").status == 200
        assert not stopped.done()
        server.run(server.backend.hold(False))
        assert waiting.result().json["outputs"][0]["data"] == [3, 5, 7]
        stopped.result(PATIENCE_S)


def test_stopping_does_not_wait_for_ever(serving: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = serving(replace(OPTIONS, drain_s=0.01))
    with ThreadPoolExecutor(1) as pool, server.held():
        waiting = pool.submit(infer, server)
        server.backend.wait_until_waiting(1)
        server.run(server.endpoint.stop())
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            waiting.result()
    server.backend.wait_until_waiting(0)
    assert "not answered within 0.01 s: 1 requests" in caplog.text


def test_latencies_are_counted(serving: Start) -> None:
    server = serving()
    assert infer(server).status == 200
    values = metrics(server)
    assert values['carpool_request_seconds_count{model="affine"}'] == 1
    assert values['carpool_request_seconds_bucket{le="+Inf",model="affine"}'] == 1
    assert values['carpool_request_seconds_sum{model="affine"}'] > 0


@pytest.mark.parametrize("path", [b"/v2", b"/unknown"])
@pytest.mark.parametrize(("expect", "status"), [(b"100-continue", b"100"), (b"\xff", b"417")])
def test_what_a_client_may_expect(server: Server, path: bytes, expect: bytes, status: bytes) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nExpect: " + expect + b"\r\n\r\n")
        assert connection.makefile("rb").readline().split()[1] == status
