"""Large bodies of one user's requests."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack

from carpool.daemon.api.context import MOST_AT_ONCE, SMALL
from tests.daemon.daemon_harness import Daemon, submission


def begun(daemon: Daemon, length: int) -> socket.socket:
    """A request whose body does not come, as far as the daemon has been told to read it."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(daemon.socket))
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 100")
    return connection


def test_a_few_are_read_at_a_time_and_the_others_wait(daemon: Daemon) -> None:
    large = submission("true", env={"A": "x" * SMALL})
    answers: list[int] = []
    with ExitStack() as stack:
        slow = [stack.enter_context(begun(daemon, SMALL + 1)) for _ in range(MOST_AT_ONCE)]
        waiting = threading.Thread(target=lambda: answers.append(daemon.post("/v1/jobs", large)["id"]))
        waiting.start()
        assert daemon.wait(daemon.submit("true"))["outcome"] == "succeeded", "small ones do not wait"
        assert answers == []
        slow[0].close()
        waiting.join(30)
    (job,) = answers
    assert daemon.wait(job)["outcome"] == "succeeded"


def test_a_body_of_unknown_length_counts_as_large(daemon: Daemon) -> None:
    body = json.dumps(submission("true")).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with ExitStack() as stack:
        slow = [stack.enter_context(begun(daemon, SMALL + 1)) for _ in range(MOST_AT_ONCE)]
        late = stack.enter_context(socket.socket(socket.AF_UNIX))
        late.connect(str(daemon.socket))
        late.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
        daemon.wait(daemon.submit("true"))
        late.setblocking(False)
        try:
            early = late.recv(100)
        except BlockingIOError:
            early = b""
        slow[0].close()
        late.settimeout(30)
        assert early == b"" and late.recv(100).startswith(b"HTTP/1.1 201")
