"""Requests for inference as no client should send them, from random numbers."""

from __future__ import annotations

import json
import random
import socket
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.fates import WIDTH

PATIENCE_S = 60.0
ODD: list[Any] = [None, True, -1, 0, 1.5, 1 << 70, "", "x" * 300, [], [[]], {}, {"a": 1}, "FP32", "BYTES", float("nan")]
HEADERS = ["Inference-Header-Content-Length", "Content-Encoding", "Content-Type", "Expect", "Host"]
VALUES = [
    "-1",
    "0",
    "1",
    "17",
    "99999999999999999999",
    "gzip",
    "deflate",
    "br",
    "chunked",
    "100-continue",
    "",
    "x",
    "\xff",
]


def malformed(chance: random.Random) -> tuple[bytes, bool]:
    """A valid request, spoiled in one of several ways or in some of them, or not at all; whether its end is there."""
    body = _body(chance)
    if chance.random() < 0.4:
        body = _flipped(chance, body)
    headers, path = {"Host": "localhost", "Content-Length": str(len(body))}, "/v2/models/small/infer"
    if chance.random() < 0.3:
        headers[chance.choice(HEADERS)] = chance.choice(VALUES)
    elif chance.random() < 0.1:
        path = f"/v2/{chance.choice(['', '%', 'models/%00/infer', 'é'])}"
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    message = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    return (_flipped(chance, message), False) if chance.random() < 0.1 else (message, True)


def _body(chance: random.Random) -> bytes:
    x = {"name": "x", "datatype": "FP32", "shape": [1, WIDTH], "data": [0.5] * WIDTH}
    what = {"name": "what", "datatype": "INT64", "shape": [1], "data": [0]}
    wanted = {"name": "output", "parameters": {"binary_data": False}}
    request: dict[str, Any] = {"id": "1", "inputs": [x, what], "outputs": [wanted], "parameters": {"priority": 1}}
    for part in chance.sample([request, x, what, wanted], chance.randrange(1, 3)):
        name = chance.choice(sorted(part))
        if chance.random() < 0.2:
            del part[name]
        else:
            part[name] = chance.choice(ODD)
    return json.dumps(request).encode()


def _flipped(chance: random.Random, data: bytes) -> bytes:
    """With other bytes in some places, or only its beginning."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed))]) if chance.random() < 0.3 else bytes(changed)


def status(url: str, message: bytes, whole: bool) -> int:
    """What the answer says to a message that is sent as it is; 0: there was none, which only parts of one may get."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), PATIENCE_S) as connection:
        connection.sendall(message)
        if not whole:
            connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").readline()
    assert answer or not whole, message
    return int(answer.split()[1]) if answer else 0
