"""Real daemons for tests: started as processes, spoken to over their sockets, killed when a test wants it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.daemon.forks import ForkedDaemon

FAKEJOB = Path(__file__).with_name("fakejob.py")
PATIENCE_S = 30.0
NOBODY = 65534


class Refused(Exception):
    """The daemon answered with an error."""

    def __init__(self, status: int, error: dict[str, str]) -> None:
        super().__init__(f"{status}: {error}")
        self.status, self.code, self.message, self.hint = status, error["code"], error["message"], error["hint"]
        self.answer = status, self.code


def refusal(call: Callable[..., object], *arguments: Any, **fields: Any) -> Refused:
    """The error with which the daemon answers this call."""
    try:
        answer = call(*arguments, **fields)
    except Refused as refused:
        return refused
    raise AssertionError(f"not refused: {answer}")


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float = PATIENCE_S) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Daemon:
    """One home and the daemon that serves it at present."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self.arguments = arguments or ("--device", "host:256MiB")
        self.process: ForkedDaemon | None = None
        self.socket = home / "carpool.sock"
        self.constants: dict[str, object] = {}

    def hurry(self, *names: str, to: object = 0.02) -> Daemon:
        """Daemons here do sooner what they do every now and then, or after a pause: the names of such constants."""
        self.constants |= dict.fromkeys((f"carpool.daemon.{name}" for name in names), to)
        return self

    def start(self) -> dict[str, Any]:
        """Start and wait until it is ready or has failed; returns the line it wrote."""
        read_end, write_end = os.pipe()
        self.process = self.launched(["--home", str(self.home), *self.arguments], write_end)
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            line = pipe.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"the daemon died: {self.process.stderr.read().decode()}")
        return json.loads(line)

    def launched(self, arguments: list[str], ready: int) -> ForkedDaemon:
        """Its process, which writes into ``ready``."""
        from tests.daemon.forks import start  # not for programs that only ask a daemon

        return start(arguments, self.constants, ready)

    def started(self) -> Daemon:
        answer = self.start()
        assert answer.get("ok"), answer
        return self

    def failed(self) -> dict[str, str]:
        """Start a daemon that must not start; returns its error."""
        answer = self.start()
        assert self.process is not None and "error" in answer, answer
        assert self.process.wait(PATIENCE_S) == 1
        assert self.process.stderr is not None
        text = self.process.stderr.read().decode()
        assert answer["error"]["message"] in text and "Traceback" not in text
        return answer["error"]

    def kill(self) -> None:
        """SIGKILL, at whatever it is doing."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def restarted(self) -> Daemon:
        """SIGKILL, and then another daemon of the same home."""
        self.kill()
        return self.started()

    def stop(self) -> None:
        """End all jobs and the daemon."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.put("/v1/policy", {"settings": {"kill_after_us": 100_000}})
            self.post("/v1/shutdown", {"stop_jobs": True})
            assert self.process.wait(PATIENCE_S) == 0
        if self.process.stderr is not None:
            self.process.stderr.close()
        self._remove_groups()

    def _remove_groups(self) -> None:
        """A daemon that was killed leaves them to the next one, which never comes."""
        from carpool.daemon.cgroups.group import Group

        with suppress(OSError):
            for path in json.loads((self.home / "control-groups").read_text()):
                Group(Path(path)).remove()

    def terminate(self) -> None:
        """SIGTERM: jobs go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0

    def log(self) -> str:
        return (self.home / "daemon.log").read_text()

    # Requests

    def request(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
        connection = Connection(self.socket)
        try:
            data = None if body is None else json.dumps(body).encode()
            with suppress(BrokenPipeError):  # a connection that is refused may have been answered before it asks
                connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            self.last_headers = response.headers
            answer = response.read()
            if response.status >= 400:
                raise Refused(response.status, json.loads(answer)["error"])
            return json.loads(answer) if response.headers.get_content_type() == "application/json" else answer
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self.request("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        return self.request("PUT", path, body)

    def submit(self, *argv: str, line: str = "", until: str = "", ended: bool = False, **fields: Any) -> int:
        """Wait, too, until the job has written this line, until this has happened to it, or until it has ended."""
        job = int(self.post("/v1/jobs", submission(*argv, **fields))["id"])
        if line:
            self.until_line(job, line)
        if until:
            self.until(until, job)
        if ended:
            self.wait(job)
        return job

    def python(self, code: str, **fields: Any) -> int:
        """A job of the standard library's Python: without what a user's would import before its script."""
        return self.submit(sys.executable, "-ISu", "-c", code, **fields)

    def fake(self, *steps: str, **fields: Any) -> int:
        """A job that uses its device through `fakejob.py`."""
        return self.submit(sys.executable, "-ISu", str(FAKEJOB), *steps, **fields)

    def show(self, job: int) -> dict[str, Any]:
        return self.get(f"/v1/jobs/{job}")

    def wait(self, job: int) -> dict[str, Any]:
        info = self.get(f"/v1/jobs/{job}/wait?timeout_s={PATIENCE_S}")
        assert info["phase"] == "ended", info
        return info

    def cancel(self, job: int) -> dict[str, Any]:
        return self.post(f"/v1/jobs/{job}/cancel")

    def cancelled(self, job: int) -> dict[str, Any]:
        """The job when it has been cancelled and has ended."""
        self.cancel(job)
        return self.wait(job)

    def cancel_unless_ended(self, job: int) -> None:
        """For a job that may have ended meanwhile."""
        try:
            self.cancel(job)
        except Refused as refused:
            if refused.code != "already_ended":
                raise

    def output(self, job: int) -> str:
        return self.request("GET", f"/v1/jobs/{job}/logs").decode()

    def lines(self, job: int) -> Iterator[str]:
        """The job's output as it appears."""
        return (line.decode().rstrip("\n") for line in self._stream(f"/v1/jobs/{job}/logs?follow=1"))

    def until_line(self, job: int, wanted: str) -> None:
        """Wait until the job has written this line."""
        seen = []
        for line in self.lines(job):
            seen.append(line)
            if line == wanted:  # which a job may write before its shim has said that it runs
                self.until_event(lambda event: event["kind"] in ("ProcessStarted", "Adopted") and event["job"] == job)
                return
        raise AssertionError(f"job {job} ended without {wanted!r}: {seen}, {self.show(job)}")

    def events(self, since: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.get(f"/v1/events?since={since}").splitlines()]

    def until_event(self, wanted: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """The first event that fits, as soon as it has happened."""
        for line in self._stream(f"/v1/events?follow=1&since={since}"):
            event = json.loads(line)
            if wanted(event):
                return event
        raise AssertionError("the daemon stopped before it happened")

    def until(self, kind: str, job: int) -> dict[str, Any]:
        return self.until_event(lambda event: event["kind"] == kind and event["job"] == job)

    def _stream(self, path: str) -> Iterator[bytes]:
        connection = Connection(self.socket)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            while line := response.readline():
                yield line
        finally:
            connection.close()


Make = Callable[..., Daemon]


def until(what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait for what nobody tells."""
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def submission(*argv: str, **fields: Any) -> dict[str, Any]:
    """The body of POST /v1/jobs, with a small environment."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {"argv": list(argv), "cwd": "/", "env": {"PATH": path}} | fields


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    """The shim of a job's main process; 0 if that has ended."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) if alive(pid) else 0


def as_nobody(daemon: Daemon, expression: str, uid: int = NOBODY) -> Any:
    """Evaluate an expression in a process of another user, who may pass through to the daemon's home.

    ``attempt(f)`` gives the code of a refusal.  A test that is not run by root is skipped.
    """
    if os.geteuid() not in (0, uid):
        import pytest  # not for programs that only ask a daemon

        pytest.skip("needs root to become another user")
    daemon.home.parent.chmod(0o711)
    read_end, write_end = os.pipe()
    if (child := os.fork()) == 0:
        with suppress(BaseException), open(write_end, "w") as answer:
            json.dump(_become(uid, daemon.home, expression), answer)
        os._exit(0)
    os.close(write_end)
    with open(read_end) as answer:
        found = json.loads(answer.read())
    os.waitpid(child, 0)
    assert "raised" not in found, found["raised"]
    return found["value"]


def _become(uid: int, home: Path, expression: str) -> dict[str, Any]:
    """The value of the expression, or what was raised instead; nothing of the tests' own rights is left."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    try:
        return {"value": eval(expression, {"daemon": Daemon(home), **HELPERS})}
    except BaseException:  # noqa: BLE001 - the test raises it
        return {"raised": traceback.format_exc()}


def attempt(call: Callable[[], object]) -> object:
    """What it gives, or the code of a refusal."""
    try:
        return call()
    except Refused as refused:
        return refused.code
    except OSError as error:
        return type(error).__name__


#: What an expression for another user's process may name, besides its daemon.
HELPERS = {"attempt": attempt, "refusal": refusal, "os": os, "json": json}
