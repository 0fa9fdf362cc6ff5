"""What the front asks of the daemon, and what it makes of the answers; with a stand-in for the daemon."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.protocol.models import ModelState, unavailable
from carpool.protocol.unix_http import ClientError, DaemonNotAnswering
from carpool.serve.pool.launcher import CannotStart, DaemonJob, DaemonLauncher, DaemonQueries, DaemonRegistry
from tests.cli.standin import Request, StandIn, as_json, device, device_list, job, problem

START: tuple[Any, ...] = (["python", "-m", "carpool.serve.worker"], "/shop", {"A": "b"}, "model worker", 7)
INFO = {
    "name": "resnet", "owner": os.geteuid(), "factory": "shop:resnet", "weights": None, "deadline_us": None,
    "max_batch": 8, "max_delay_us": 0, "priority": 100, "python": "/usr/bin/python3", "cwd": "/shop", "variables": 1,
    "added_us": 0,
}  # fmt: skip


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as directory, StandIn(Path(directory)) as standin:
        yield standin


@pytest.fixture
def daemon(standin: StandIn) -> DaemonQueries:
    return DaemonQueries(standin.home, poll_s=0.001)


@pytest.fixture
async def worker(standin: StandIn, daemon: DaemonQueries) -> DaemonJob:
    """Job 17."""
    standin.reactions["POST /v1/jobs"] = as_json({"id": 17}, 201)
    return await DaemonLauncher(daemon).start(*START)


def asked(standin: StandIn) -> list[str]:
    return [f"{request.method} {request.path}" for request in standin.requests]


async def test_models_of_others_are_not_served(standin: StandIn, daemon: DaemonQueries) -> None:
    standin.reactions["GET /v1/models"] = as_json({"models": [INFO, INFO | {"name": "bert", "owner": 4711}]})
    standin.reactions["GET /v1/models/resnet/environment"] = as_json({"env": {"A": "b"}})
    registry = DaemonRegistry(daemon, os.geteuid())
    assert [info.name for info in await registry.models()] == ["resnet"]
    assert await registry.environment("resnet") == {"A": "b"}
    with pytest.raises(ClientError):
        await registry.environment("bert")


async def test_states_are_reported_over_one_connection(standin: StandIn, daemon: DaemonQueries) -> None:
    """Its end is the end of what was reported.  After that, and with another daemon, reports begin anew."""
    standin.reactions["PUT /v1/serving"] = as_json({})
    with closing(DaemonRegistry(daemon, os.geteuid())) as registry:
        await registry.report({"resnet": ModelState("preparing")})
        connection = registry._lasting._connection.sock
        await registry.report({"resnet": ModelState("ready"), "bert": unavailable("no file \udcff")})
        assert registry._lasting._connection.sock is connection is not None
        connection.shutdown(socket.SHUT_RDWR)  # as when the daemon dies
        with pytest.raises(DaemonNotAnswering):
            await registry.report({})
        await registry.report({})
    assert connection.fileno() == -1 and registry._lasting._connection.sock is None
    broken = {"state": "unavailable", "reason": "no file \\udcff"}
    bodies = [
        {"resnet": {"state": "preparing", "reason": ""}},
        {"resnet": {"state": "ready", "reason": ""}, "bert": broken},
    ]
    assert [request.body["models"] for request in standin.requests] == [*bodies, {}]


async def test_workers_are_on_gpus_where_there_is_nothing_else(standin: StandIn, daemon: DaemonQueries) -> None:
    host, gpu = device([]), msgspec.structs.replace(device([], name="cuda0"), kind="cuda")
    found = []
    for devices in ((host,), (host, gpu), (gpu,), (gpu, gpu)):
        standin.reactions["GET /v1/devices"] = device_list(*devices)
        found.append(await DaemonRegistry(daemon, os.geteuid()).on_gpus())
    assert found == [False, False, True, True]


async def test_a_worker_is_a_job_with_a_priority_among_services(standin: StandIn, worker: DaemonJob) -> None:
    argv, cwd, env, name, priority = START
    assert worker.name == "job 17"
    assert standin.requests[0].body == {"argv": argv, "cwd": cwd, "env": env, "name": name, "service": priority}


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"exit_code": 3}, "exit code 3 (carpool logs 17)"),
        ({"signal": 9}, "killed by signal 9 (carpool logs 17)"),
        ({"reason": {"code": "memory", "text": "it ran out of memory"}}, "it ran out of memory (carpool logs 17)"),
    ],
)
async def test_its_end_is_waited_for(standin: StandIn, worker: DaemonJob, facts: dict[str, Any], text: str) -> None:
    ended = msgspec.to_builtins(job(17)) | {"phase": "ended", "outcome": "failed"} | facts
    answers = [problem(500, "busy", "not now"), as_json(msgspec.to_builtins(job(17))), as_json(ended)]
    standin.reactions["GET /v1/jobs/17"] = lambda request: answers.pop(0)
    assert await worker.ended() == text and not answers


async def test_its_end_is_waited_for_while_the_daemon_is_away(
    standin: StandIn, daemon: DaemonQueries, worker: DaemonJob
) -> None:
    ended = msgspec.to_builtins(job(17)) | {"outcome": "cancelled", "exit_code": 0}
    standin.reactions["GET /v1/jobs/17"] = as_json(ended)
    socket, away = standin.home / "carpool.sock", standin.home / "away.sock"
    socket.rename(away)
    waiting = asyncio.create_task(worker.ended())
    with pytest.raises(ClientError):
        await daemon.ask(lambda client: client.version())
    assert not waiting.done()
    away.rename(socket)
    assert await waiting == "exit code 0 (carpool logs 17)"


async def test_a_job_that_the_daemon_has_forgotten_has_ended(standin: StandIn, worker: DaemonJob) -> None:
    standin.reactions["GET /v1/jobs/17"] = problem(404, "unknown_job", "there is no job 17")
    assert await worker.ended() == "there is no job 17"
    await worker.cancel()
    assert asked(standin)[-1] == "POST /v1/jobs/17/cancel", "that it fails is no harm"


async def test_a_worker_that_the_daemon_does_not_start(standin: StandIn, daemon: DaemonQueries) -> None:
    standin.reactions["POST /v1/jobs"] = problem(422, "no_device", "there is no device")
    with pytest.raises(CannotStart, match="the daemon starts no job for it: there is no device"):
        await DaemonLauncher(daemon).start(*START)
    with pytest.raises(CannotStart, match="no daemon is running"):
        await DaemonLauncher(DaemonQueries(standin.home / "none")).start(*START)


async def test_a_refusal_says_what_to_do(standin: StandIn, daemon: DaemonQueries) -> None:
    standin.reactions["POST /v1/jobs"] = problem(403, "not_allowed", "no services for you", "ask for services")
    with pytest.raises(CannotStart, match="no services for you; ask for services"):
        await DaemonLauncher(daemon).start(*START)


async def test_who_is_cancelled_while_it_submits_leaves_no_job_behind(standin: StandIn, daemon: DaemonQueries) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def submit(_: Request) -> Any:
        begun.set()
        assert go_on.wait(60)
        return as_json({"id": 17}, 201)

    standin.reactions["POST /v1/jobs"] = submit
    standin.reactions["POST /v1/jobs/17/cancel"] = as_json(msgspec.to_builtins(job(17)))
    starting = asyncio.create_task(DaemonLauncher(daemon).start(*START))
    assert await asyncio.to_thread(begun.wait, 60)
    starting.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert asked(standin) == ["POST /v1/jobs", "POST /v1/jobs/17/cancel"]
