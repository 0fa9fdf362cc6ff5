"""Which requests are in work: two of a person, and the others in order."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from carpool.daemon.api import entrance
from carpool.daemon.api.entrance import IN_WORK, RequestQueue
from tests.daemon.daemon_harness import Connection, Daemon, until

OWNER, OTHER = 1000, 1001


class Requests:
    """They enter in order, and say so."""

    def __init__(self) -> None:
        self.queue, self.begun = RequestQueue(), list[str]()

    def come(self, name: str, person: int = OWNER, *, reads: bool = True) -> asyncio.Task[None]:
        async def enter() -> None:
            await self.queue.enter(person, reads=reads)
            self.begun.append(name)

        return asyncio.create_task(enter())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_two_of_a_person_are_in_work_and_others_do_not_wait_for_them() -> None:
    requests = Requests()
    tasks = [requests.come(f"read {number}") for number in range(4)]
    tasks += [requests.come("change", reads=False), requests.come("of another", OTHER)]
    await settled()
    assert requests.begun == ["read 0", "read 1", "of another"]
    for _ in range(3):
        requests.queue.leave(OWNER)
        await settled()
    assert requests.begun[3:] == ["change", "read 2", "read 3"]
    for _ in range(IN_WORK):
        requests.queue.leave(OWNER)
    requests.queue.leave(OTHER)
    await asyncio.gather(*tasks)
    assert not requests.queue._of, "nothing is kept of persons without requests"


async def test_a_request_that_is_given_up_leaves_no_gap() -> None:
    requests = Requests()
    tasks = [requests.come(str(number)) for number in range(4)]
    await settled()
    tasks[2].cancel()
    requests.queue.leave(OWNER)
    tasks[3].cancel()  # the place has just been passed on to it
    with pytest.raises(asyncio.CancelledError):
        await tasks[3]
    requests.queue.leave(OWNER)
    assert not requests.queue._of


async def test_work_in_slices_gives_way_to_root_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "GIVES_WAY_S", 30.0)
    queue = RequestQueue()
    await queue.enter(OWNER, reads=True)
    await queue.enter(0, reads=True)
    waiting = asyncio.create_task(queue.give_way(OWNER))
    await queue.give_way(0)
    await settled()
    assert not waiting.done()
    queue.leave(0)
    await waiting
    await queue.enter(0, reads=True)
    monkeypatch.setattr(entrance, "GIVES_WAY_S", 0.001)
    await queue.give_way(OWNER)  # root does not hold others up for ever


@contextmanager
def asking(daemon: Daemon, path: str, count: int) -> Iterator[list[http.client.HTTPConnection]]:
    """Requests that have been sent, and whose answers nobody has read."""
    found = [Connection(daemon.socket) for _ in range(count)]
    for connection in found:
        connection.request("GET", path)
    yield found
    for connection in found:
        connection.close()


def test_what_waits_for_a_job_or_its_client_is_not_in_work(daemon: Daemon) -> None:
    job = daemon.submit("sleep", "1000", hold=True)
    many = 3 * IN_WORK
    with (
        asking(daemon, f"/v1/jobs/{job}/wait?timeout_s=600", many) as waiting,
        asking(daemon, f"/v1/jobs/{job}/logs?follow=1", many),
        asking(daemon, "/v1/events?follow=1", many),
        _half_bodies(daemon, many),
    ):
        assert daemon.show(job)["phase"] == "queued"
        daemon.cancel(job)
        assert all(json.loads(each.getresponse().read())["outcome"] == "cancelled" for each in waiting)


@contextmanager
def _half_bodies(daemon: Daemon, count: int) -> Iterator[None]:
    found = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    for each in found:
        each.connect(str(daemon.socket))
        each.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    yield
    for each in found:
        each.close()


def test_answers_come_whatever_has_been_asked_and_left_before(daemon: Daemon) -> None:
    """A client that asks and goes leaves nothing behind that others of its user would wait for."""
    job = daemon.submit("sleep", "1000", hold=True)
    for path in ("/v1/jobs", f"/v1/jobs/{job}/wait?timeout_s=600", "/v1/events?follow=1", "/v1/events?limit=100"):
        for _ in range(20):
            with asking(daemon, path, 1):
                pass
    assert daemon.show(job)["phase"] == "queued"
    daemon.cancel(job)
    assert "Traceback" not in daemon.log()


def test_whoever_does_not_take_a_list_keeps_others_waiting_for_a_while_only(make_daemon: Callable[..., Daemon]) -> None:
    """Of the same user, and what is not taken is no more than that of two requests."""
    daemon = make_daemon().hurry("api.middleware.ANSWER_S", to=0.05).started()
    spec = {"argv": ["true", "x" * 10_000], "cwd": "/", "env": {}, "hold": True}
    daemon.post("/v1/submissions", {"jobs": [spec] * 500, "env": {}, "follows": []})
    with asking(daemon, "/v1/jobs", 3 * IN_WORK):
        assert len(daemon.get("/v1/jobs?limit=10")["jobs"]) == 10


def test_lists_are_whole_while_jobs_come_and_go(daemon: Daemon) -> None:
    """Each answer is JSON, with each job once."""
    held = [daemon.submit("true", hold=True) for _ in range(3)]
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            daemon_job = daemon.submit("true", hold=True)
            with suppress(AssertionError):
                daemon.cancel(daemon_job)

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        for _ in range(20):
            numbers = [job["id"] for job in daemon.get("/v1/jobs")["jobs"]]
            assert numbers == sorted(set(numbers)) and set(held) <= set(numbers)
    finally:
        stop.set()
        busy.join()
    until(lambda: all(job["phase"] != "queued" or job["id"] in held for job in daemon.get("/v1/jobs")["jobs"]))
    assert daemon.get("/v1/jobs?phase=running") == {"jobs": [], "notice": ""}
