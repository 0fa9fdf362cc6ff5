"""A private daemon, and `carpool serve` beside it: started in a directory of their own, stopped at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import msgspec

from carpool.protocol.api import ErrorInfo
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.setting_text import setting_text
from tools.demo.jobs import ROOT, environment

STOP_TIMEOUT_S = 60
#: A small language model behind HTTP.
LLM = ROOT / "tools" / "demo" / "programs" / "llm.py"


class DaemonFailed(Exception):
    """The daemon, or its front, did not start; the text says what it said."""


class _Ready(msgspec.Struct, frozen=True):
    pid: int | None = None
    error: ErrorInfo | None = None


class Session:
    """``with Session(home, ["host:192MiB"], "fair") as client``: a running daemon and a client of it."""

    def __init__(
        self,
        home: Path,
        devices: list[str],
        policy: str,
        settings: dict[str, int] | None = None,
        placement: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """``env``: of the daemon; None: this process's."""
        self.home, self._env = home, env
        self._command = [sys.executable, "-m", "carpool.daemon", "--home", str(home), "--policy", policy]
        self._command += [part for device in devices for part in ("--device", device)]
        self._command += [f"--set={setting_text(name, value)}" for name, value in (settings or {}).items()]
        self._command += ["--placement", placement] if placement else []
        self._process: subprocess.Popen[bytes] | None = None
        self._client = DaemonClient(home)

    def __enter__(self) -> DaemonClient:
        self.home.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*self._command, "--ready-fd", str(writer)],
                pass_fds=[writer],
                stdin=subprocess.DEVNULL,
                env=self._env,
            )
        finally:
            os.close(writer)
        with os.fdopen(reader, "rb") as ready:
            line = ready.readline()
        try:
            answer = msgspec.json.decode(line, type=_Ready)
        except msgspec.DecodeError:
            answer = _Ready(error=ErrorInfo("start", f"it ended while it started; see {self.home / 'daemon.log'}"))
        if answer.error is not None:
            self._process.wait()
            raise DaemonFailed(f"the daemon did not start: {answer.error.message}")
        return self._client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Jobs that still run, because the round was given up, are stopped with the daemon."""
        assert self._process is not None
        with suppress(ClientError):
            self._client.shutdown(stop_jobs=True)
        self._client.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(home: Path, engines: Mapping[str, int]) -> Iterator[str]:
    """Start `carpool serve` with language models, and yield its address.  Raises DaemonFailed.

    ``engines``: MiB of the cache of each.
    """
    file = home / "engines.toml"
    commands = {name: [sys.executable, str(LLM), "{port}", str(mib)] for name, mib in engines.items()}
    file.write_text("".join(f"[{name}]\ncmd = {json.dumps(command)}\n" for name, command in commands.items()))
    words = [sys.executable, "-m", "carpool.cli", "serve", "--json", "--port=0", f"--home={home}", f"--engines={file}"]
    with subprocess.Popen(words, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as front:
        try:
            assert front.stdout is not None
            said = json.loads(front.stdout.readline() or "{}")
            if said.get("event") != "serving":
                raise DaemonFailed(f"carpool serve said {said}")
            yield said["url"]
        finally:
            front.terminate()
            front.communicate()
