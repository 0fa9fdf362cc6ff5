"""A private daemon: started in a directory of its own, spoken to through the client, stopped at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from carpool.protocol.api import ErrorInfo
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.setting_text import setting_text

STOP_TIMEOUT_S = 60


class DaemonFailed(Exception):
    """The daemon did not start; the text says what it said."""


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
