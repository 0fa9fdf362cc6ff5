"""Which requests are in work: two of a person, and the others in order."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from carpool.daemon.api import entrance
from carpool.daemon.api.context import MOST_AT_ONCE, SMALL
from carpool.daemon.api.entrance import FOR_ROOT, IN_WORK, SHARE_OF_NEWCOMERS, Connections, RequestQueue
from carpool.daemon.system import peer
from carpool.daemon.system.peer import person_of
from carpool.protocol.packets import readable
from tests.daemon.daemon_harness import Connection, Daemon, Make, Refused, as_nobody, submission, until

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


def sent(daemon: Daemon, request: bytes) -> socket.socket:
    """A connection over which these bytes have been sent."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(daemon.socket))
    connection.sendall(request)
    return connection


@contextmanager
def _half_bodies(daemon: Daemon, count: int) -> Iterator[None]:
    half = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    found = [sent(daemon, half) for _ in range(count)]
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


def test_whoever_does_not_take_a_list_keeps_others_waiting_for_a_while_only(make_daemon: Make) -> None:
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


# Large bodies of one user's requests


def begun(daemon: Daemon, length: int) -> socket.socket:
    """A request whose body does not come, as far as the daemon has been told to read it."""
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    connection = sent(daemon, head.encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 100")
    return connection


def test_a_few_are_read_at_a_time_and_the_others_wait(daemon: Daemon) -> None:
    """A body of unknown length counts as large."""
    large, body = submission("true", env={"A": "x" * SMALL}), json.dumps(submission("true")).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answers: list[int] = []
    with ExitStack() as stack:
        slow = [stack.enter_context(begun(daemon, SMALL + 1)) for _ in range(MOST_AT_ONCE)]
        waiting = threading.Thread(target=lambda: answers.append(daemon.post("/v1/jobs", large)["id"]))
        waiting.start()
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        unknown = stack.enter_context(sent(daemon, head + chunked))
        assert daemon.wait(daemon.submit("true"))["outcome"] == "succeeded", "small ones do not wait"
        assert answers == [] and not readable(unknown.fileno())
        slow[0].close()
        waiting.join(30)
        assert unknown.recv(100).startswith(b"HTTP/1.1 201")
    (job,) = answers
    assert daemon.wait(job)["outcome"] == "succeeded"


# Many connections of one user


MOST = 5


@pytest.fixture
def narrow(make_daemon: Make) -> Daemon:
    return make_daemon(limits=f"connections = {MOST}\n").started()


@contextmanager
def connected(path: Path, kind: socket.SocketKind) -> Iterator[list[socket.socket]]:
    """As many connections as are allowed, which say nothing."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket(socket.AF_UNIX, kind)) for _ in range(MOST)]
        for each in found:
            each.connect(str(path))
        yield found


def answered(daemon: Daemon) -> str:
    """The code of a refusal, or "" """
    try:
        daemon.get("/v1/version")
    except Refused as refused:
        assert refused.status == 429 and "limits.toml" in refused.hint
        return refused.code
    return ""


def test_a_user_has_only_so_many_connections(narrow: Daemon) -> None:
    with connected(narrow.socket, socket.SOCK_STREAM) as found:
        assert answered(narrow) == "too_many_connections"
        found[0].sendall(b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := found[0].recv(65536):
            answer += part
        assert json.loads(answer.rpartition(b"\r\n\r\n")[2]), "those that were let in are served"
        assert answered(narrow) == ""
    assert narrow.log().count("connections to the daemon already") >= 1


def test_others_are_let_in(narrow: Daemon) -> None:
    with connected(narrow.socket, socket.SOCK_STREAM):
        assert as_nobody(narrow, "attempt(lambda: daemon.get('/v1/jobs')['jobs'])") == []


def test_sessions_that_never_register_are_dropped(narrow: Daemon) -> None:
    path = narrow.home / "session.sock"
    with connected(path, socket.SOCK_SEQPACKET), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as another:
        another.settimeout(30)
        another.connect(str(path))
        assert another.recv(1) == b""
    assert narrow.wait(narrow.submit("true"))["outcome"] == "succeeded"


def test_a_person_of_many_uids_has_the_limit_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("1000:300000:65536\n")
    monkeypatch.setattr(peer, "SUBUIDS", tmp_path / "subuid")
    found = Connections(MOST, Path("limits.toml"))
    for uid in range(300_000, 300_000 + MOST):
        assert found.refusal(uid) is None
        found.come(person_of(uid))
    assert all(found.refusal(uid) is not None for uid in (300_777, 1000))
    assert found.refusal(1001) is None
    found.go(1000)
    assert found.refusal(300_777) is None


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Uids from 1000 on have as many of 64 connections as are there for users who have some."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (128, 128))
    found = Connections(1000, Path("limits.toml"))
    uid = 1000
    while found.refusal(uid) is None:
        for _ in range(16):
            if found.refusal(uid) is None:
                found.come(uid)
        uid += 1
        found.come(uid)
    return found


def test_the_last_connections_are_for_users_who_have_none(full: Connections) -> None:
    strangers = []
    while full.refusal(uid := 2000 + len(strangers)) is None:
        full.come(uid)
        strangers.append(uid)
    assert 8 <= len(strangers) <= 64 // SHARE_OF_NEWCOMERS
    assert "users who have none" in getattr(full.refusal(strangers[0]), "message", "")


def test_root_comes_in_however_many_there_are(full: Connections) -> None:
    for uid in range(2000, 2100):
        if full.refusal(uid) is None:
            full.come(uid)
    for _ in range(FOR_ROOT):
        assert full.refusal(0) is None
        full.come(0)
    assert full.refusal(0) is not None, "descriptors come to an end"
