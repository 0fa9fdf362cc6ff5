"""A stand-in for the daemon: HTTP over a Unix socket, whose answers a test sets and whose requests it can look at."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from carpool.protocol.api import (
    API_VERSION,
    PROTOCOL_HEADER,
    DeviceInfo,
    DeviceList,
    JobInfo,
    LaneInfo,
    MovedInfo,
    StoreInfo,
    TelemetryHistory,
    TelemetryInfo,
)


@dataclass
class Request:
    method: str
    path: str
    query: str
    body: Any


@dataclass
class Answer:
    body: bytes
    status: int = 200


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), status)


def problem(status: int, code: str, message: str, hint: str = "") -> Answer:
    return as_json({"error": {"code": code, "message": message, "hint": hint}}, status)


Reaction = Answer | Callable[[Request], Answer]
#: By parameters of queries, the answers where the reaction is all that there is: no earlier page, and no array.
NOTHING_MORE = {"before": Answer(b""), "array": as_json({"jobs": []})}


@dataclass
class StandIn:
    """``reactions`` maps "METHOD /path" to an answer or to a function that makes one."""

    home: Path
    protocol: str | None = str(API_VERSION)
    reactions: dict[str, Reaction] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> StandIn:
        self.home.mkdir(exist_ok=True)
        self._server = _Server(str(self.home / "carpool.sock"), _Handler)
        self._server.standin = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        (self.home / "carpool.sock").unlink(missing_ok=True)

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        reaction = self.reactions.get(f"{request.method} {request.path}")
        if reaction is None:
            return problem(404, "unknown_path", f"the stand-in has no answer to {request.method} {request.path}")
        if callable(reaction):
            return reaction(request)
        return next((empty for name, empty in NOTHING_MORE.items() if f"{name}=" in request.query), reaction)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    standin: StandIn


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        answer = self.server.standin.answer(Request(self.command, path, query, body))
        self.send_response(answer.status)
        if self.server.standin.protocol is not None:
            self.send_header(PROTOCOL_HEADER, self.server.standin.protocol)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.body:  # the other side may be gone already
            self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - names that http.server looks for


def job(number: int = 1, **changes: Any) -> JobInfo:
    """A running job, with changes."""
    facts: dict[str, Any] = {
        "id": number,
        "name": "",
        "owner": 1000,
        "command": ["python", "train.py"],
        "phase": "running",
        "outcome": None,
        "exit_code": None,
        "signal": None,
        "reason": None,
        "device": "host0",
        "lane": 1,
        "holds_turn": False,
        "weight": 100,
        "persistent_bytes": 10 << 20,
        "ephemeral_bytes": 30 << 20,
        "persistent_limit": 12 << 20,
        "ephemeral_limit": 32 << 20,
        "scratch_bytes": 0,
        "iterations": 25,
        "iterations_total": 100,
        "iteration_us": 2500,
        "device_us": 62_500,
        "switches": 3,
        "residue_bytes": 4096,
        "started_us": 1_000_000,
        "submitted_us": 0,
        "ended_us": None,
        "cwd": "/data",
        "pid": 4242,
    }
    return JobInfo(**{**facts, **changes})


def ended(number: int, outcome: str = "succeeded", **changes: Any) -> JobInfo:
    facts: dict[str, Any] = {"phase": "ended", "outcome": outcome, "exit_code": 0, "ended_us": 5_000_000, "lane": None}
    return job(number, **{**facts, **changes})


HOST = TelemetryInfo(
    level="host",
    age_us=400_000,
    total_bytes=1 << 30,
    used_bytes=128 << 20,
    busy_ppm=370_000,
    sm_active_ppm=250_000,
    sm_occupancy_ppm=120_000,
    missing={"power_mw": "measured of GPUs only", "temperature_c": "measured of GPUs only"},
)


def device(
    jobs: list[int], holder: int | None = None, waiting: list[int] | None = None, name: str = "host0", **changes: Any
) -> DeviceInfo:
    moved = changes.pop("moved", MovedInfo())
    lane = LaneInfo(id=1, owner=1000, size_bytes=32 << 20, jobs=jobs, holder=holder, waiting=waiting or [])
    sizes = {"capacity_bytes": 1 << 30, "granted_bytes": 256 << 20, "used_bytes": 128 << 20, "free_bytes": 768 << 20}
    control = {"quantum_us": 50_000, "quantum_from": "policy", "oversubscribe": "auto", "stored_bytes": 512 << 20}
    facts = {"lanes": [lane], "jobs": jobs, "queue": [], **sizes, **control, "telemetry": HOST, **changes}
    return DeviceInfo(id=name, kind="host", moved=moved, **facts)


def load_of(name: str) -> dict[str, Answer]:
    """What a daemon answers that has just started when `carpool top` asks for the load of a device."""
    past = TelemetryHistory(name, 0, 0, 10_000_000, "memory", [])
    return {f"GET /v1/devices/{name}/telemetry": Answer(msgspec.json.encode(past))}


def device_list(*devices: DeviceInfo) -> Answer:
    """The answer to GET /v1/devices."""
    return Answer(msgspec.json.encode(DeviceList([*devices], StoreInfo(8 << 30, True, 1 << 30, 512 << 20))))
