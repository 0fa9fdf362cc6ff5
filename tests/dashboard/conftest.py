"""A real daemon and a real `carpool dashboard` beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.live import LiveDaemon, python_path

PATIENCE_S = 60.0
QUICK = Path(__file__).with_name("quick.py")


class Answer(NamedTuple):
    """What the server has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Page:
    """The process, and a browser's questions without the browser.

    ``patience_ms``: how long who connects may take to say the token.
    """

    def __init__(self, home: Path, *options: str, patience_ms: int = 60_000) -> None:
        command = [sys.executable, "-P", str(QUICK), str(patience_ms), "dashboard", "--json", "--home", str(home)]
        environment = os.environ | {"PYTHONPATH": python_path()}
        self.process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.said: dict[str, str] = json.loads(line)
        self.url, _, self.link = self.said["url"].partition("/#link=")
        self.token = ""

    def ask(self, method: str, path: str, body: object = None, token: str | None = None, **headers: str) -> Answer:
        """``token``: None: the page's own."""
        data = None if body is None else json.dumps(body).encode()
        given = {"Carpool-Token": self.token if token is None else token, **headers}
        request = urllib.request.Request(self.url + path, data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def follow_link(self) -> Page:
        self.token = self.ask("POST", "/api/session", {"link": self.link}).json()["token"]
        return self

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            _, errors = self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
        assert self.process.returncode == 0 and not errors, errors


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Short: sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def live(place: Path) -> Iterator[LiveDaemon]:
    daemon = LiveDaemon(place / "home", ["--device=host:64MiB"], dict(os.environ))
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def page(live: LiveDaemon) -> Iterator[Page]:
    page = Page(live.home).follow_link()
    yield page
    page.close()
