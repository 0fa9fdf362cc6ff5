"""What the endpoint holds for clients, and how long it waits for them: bodies, heads, connections, answers."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from http.client import HTTPResponse

import pytest

from carpool.serve.http.connections import ClientConnection
from tests.serve.backend import PATIENCE_S
from tests.serve.conftest import OPTIONS, Server, Start
from tests.serve.http.test_endpoint import AFFINE, X, infer, metrics

SOON = replace(OPTIONS, patience_s=0.05)
BODY = json.dumps(X).encode()
BEGUN = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-a: "
MIB = 1 << 20


def head(length: int, path: str = AFFINE, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(stack: ExitStack, server: Server, *sent: bytes) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    connection = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
    for data in sent:
        connection.sendall(data)
    return connection


def heads(connection: socket.socket) -> str:
    """All that comes until the server closes."""
    with connection.makefile("rb") as answer:
        return answer.read().decode()


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Status and body of the next answer; the server may wait for more before it closes."""
    answer = HTTPResponse(connection)
    answer.begin()
    return answer.status, answer.read().decode()


def until_held(server: Server, size: int) -> None:
    server.until(lambda: server.endpoint.bodies.held == size)


def clients(server: Server) -> list[ClientConnection]:
    return list(server.endpoint._runner.server.connections)


def until_idle(server: Server, count: int = 1) -> None:
    """So many clients are there whose next head the server waits for."""
    server.until(lambda: sum(client._waiter is not None for client in clients(server)) == count)


# Bodies


def test_bodies_beyond_the_limit_are_refused_and_given_back(serving: Start, stack: ExitStack) -> None:
    server = serving(replace(OPTIONS, body_bytes=2 * MIB))
    half = [connect(stack, server, head(MIB), b" " * (MIB - 1)) for _ in range(2)]
    until_held(server, 2 * MIB - 2)
    answer = infer(server)
    assert answer.status == 503 and answer.headers["Retry-After"] == "1"
    assert "the bodies of all requests have 2097152 bytes" in answer.json["error"]
    assert metrics(server)['carpool_request_errors_total{kind="server_busy",model="affine"}'] == 1
    half[0].close()
    until_held(server, MIB - 1)
    assert infer(server).status == 200
    half[1].sendall(b"}")  # it is no JSON
    assert answer_of(half[1])[0] == 400
    until_held(server, 0)


def test_bytes_of_a_request_are_held_until_it_is_answered(serving: Start, stack: ExitStack) -> None:
    server = serving()
    with server.held():
        waiting = connect(stack, server, head(len(BODY)), BODY)
        server.backend.wait_until_waiting(1)
        until_held(server, len(BODY))
        gone = connect(stack, server, head(len(BODY)), BODY)
        server.backend.wait_until_waiting(2)
        gone.close()
        server.backend.wait_until_waiting(1)
        until_held(server, len(BODY))
    assert answer_of(waiting)[0] == 200
    until_held(server, 0)
    assert server.backend.answered == 1, "the other one was not computed"
    assert metrics(server)['carpool_request_errors_total{kind="client_gone",model="affine"}'] == 1


def test_decompressed_bytes_count(serving: Start, stack: ExitStack) -> None:
    server = serving(replace(OPTIONS, body_bytes=3 * MIB // 2))
    text = json.dumps({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": ["a" * (MIB - 200)]}]})
    small = gzip.compress(text.encode())
    with server.held():
        sent = head(len(small), "/v2/models/echo-BYTES/infer", "Content-Encoding: gzip") + small
        connect(stack, server, sent)
        server.backend.wait_until_waiting(1)
        until_held(server, len(text))
        answer = infer(server, small, "echo-BYTES", **{"Content-Encoding": "gzip"})
        assert answer.status == 503 and "the bodies of all requests" in answer.json["error"]


def test_values_that_are_larger_than_their_text_count(serving: Start, stack: ExitStack) -> None:
    server = serving()
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 9999], "data": [1] * 9999}]}, separators=(",", ":")
    ).encode()
    with server.held():
        connect(stack, server, head(len(body), "/v2/models/echo-FP64/infer") + body)
        server.backend.wait_until_waiting(1)
        until_held(server, 8 * 9999)


def test_a_body_that_says_it_is_too_large_is_not_read(serving: Start, stack: ExitStack) -> None:
    assert answer_of(connect(stack, serving(), head(MIB + 1), b"{"))[0] == 413


def test_a_body_that_stops_in_the_middle(serving: Start, stack: ExitStack) -> None:
    server = serving()
    connection = connect(stack, server, head(100), b"{")
    until_held(server, 1)
    server.pass_time(PATIENCE_S)
    status, text = answer_of(connection)
    assert status == 408 and "nothing of the body has come for 240 s" in text
    until_held(server, 0)


# Connections


@pytest.mark.parametrize("before", [b"", head(len(BODY)) + BODY], ids=["first", "next"])
@pytest.mark.parametrize("sent", [b"", BEGUN])
def test_a_head_has_to_come_in_time(serving: Start, stack: ExitStack, before: bytes, sent: bytes) -> None:
    server = serving()
    with connect(stack, server, before + sent).makefile("rb") as answers:
        assert not before or b" 200 " in answers.readline()
        until_idle(server)
        server.pass_time(PATIENCE_S)
        rest = answers.read()
    assert b"HTTP/1.1" not in rest if before else rest == b""


def test_bytes_that_trickle_are_no_head(serving: Start, stack: ExitStack) -> None:
    """The clock runs from the connection on, not from the latest byte."""
    server = serving()
    connection = connect(stack, server, BEGUN)
    until_idle(server)
    connection.settimeout(0.01)
    with suppress(ConnectionError):
        while trickled(connection):
            server.pass_time(PATIENCE_S / 4)


def trickled(connection: socket.socket) -> bool:
    """One more byte is sent, and the server has not closed."""
    connection.sendall(b"a")
    try:
        return bool(connection.recv(1))
    except TimeoutError:
        return True


def test_a_request_that_waits_longer_than_clients_may_is_answered(serving: Start, stack: ExitStack) -> None:
    server = serving()
    with server.held():
        connection = connect(stack, server, head(len(BODY)), BODY)
        server.backend.wait_until_waiting(1)
        idle = connect(stack, server)
        until_idle(server)
        server.pass_time(PATIENCE_S)
        assert heads(idle) == "", "so much time has passed"
    assert answer_of(connection)[0] == 200


def test_an_answer_that_nobody_takes(serving: Start, stack: ExitStack) -> None:
    server = serving(replace(OPTIONS, largest_body=64 * MIB, body_bytes=256 * MIB))
    size = 32 * MIB  # more than the kernel keeps
    prefix = json.dumps(
        {"inputs": [{"name": "x", "datatype": "UINT8", "shape": [1, size], "parameters": {"binary_data_size": size}}],
         "parameters": {"binary_data_output": True}}
    ).encode()  # fmt: skip
    length = f"Inference-Header-Content-Length: {len(prefix)}"
    sent = head(len(prefix) + size, "/v2/models/echo-UINT8/infer", length)
    with server.held():
        connection = connect(stack, server, sent, prefix, bytes(size))
        server.backend.wait_until_waiting(1)
        (client,) = clients(server)  # the body may take its time; the answer may not
        client._limits = replace(client._limits, patience_s=SOON.patience_s)
    until_held(server, 0)
    received = 0
    with suppress(ConnectionError):
        received = len(heads(connection))
    assert received < size, "the connection was closed in the middle of the answer"


def test_no_more_connections_than_the_limit(serving: Start, stack: ExitStack) -> None:
    server = serving(replace(OPTIONS, connections=2))
    first, _ = connect(stack, server, head(len(BODY)), BODY), connect(stack, server, head(len(BODY)), BODY)
    assert answer_of(first)[0] == 200
    refused = heads(connect(stack, server))
    assert refused.startswith("HTTP/1.1 503 ") and "Retry-After: 1" in refused and "too many connections" in refused
    first.close()
    server.until(lambda: len(clients(server)) == 1)
    assert infer(server).status == 200


def test_connections_that_come_at_once_are_counted_too(serving: Start, stack: ExitStack) -> None:
    server, busy = serving(replace(SOON, connections=2)), threading.Event()

    async def block_the_loop() -> None:
        busy.wait(PATIENCE_S)

    blocked = server.begin(block_the_loop())
    connections = [connect(stack, server) for _ in range(20)]
    busy.set()
    blocked.result(PATIENCE_S)
    answers = [heads(connection)[:12] for connection in connections]
    assert sorted(answers) == ["", "", *["HTTP/1.1 503"] * 18]
