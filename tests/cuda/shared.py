"""Daemons that tests use one after another: each test finds an idle GPU and leaves one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cuda.rig import Daemon, Daemons
from tests.devices.cuda_stub import Stub
from tests.leftovers import kept
from tests.live import Meeting


class Shared:
    """One daemon on stub GPUs of these sizes."""

    def __init__(
        self, library: Path, jobs: Mapping[str, str], memory: Sequence[int], *devices: str, options: Sequence[str] = ()
    ) -> None:
        """``jobs``: their environment."""
        with pytest.MonkeyPatch.context() as patch:
            self._stub = Stub(library, patch)
            self._stub.devices(*memory)
            self._variables = self._stub.environment()
            self._daemons = Daemons(self._stub, jobs)
            self._daemon = self._daemons(*devices, options=options)
        self._uses = 0

    @contextmanager
    def in_use(self, patch: pytest.MonkeyPatch) -> Iterator[Daemon]:
        """By a test, whose own processes see the GPU, too."""
        for name, value in self._variables.items():
            patch.setenv(name, value)
        self._meet_anew()
        log = self._daemon.home / "daemon.log"
        begin = log.stat().st_size
        yield self._daemon
        kept.update(self._daemon.agents())  # one that has died has a successor, which lives as long as the daemon
        self._daemon.end_all()
        self._stub.wait_until_free()
        said = log.read_bytes()[begin:]
        assert b"Traceback" not in said and b"device agent" not in said, said.decode()

    def _meet_anew(self) -> None:
        """Whoever has come too late for an earlier test waits for nobody in this one."""
        self._uses += 1
        self._daemon.meeting.close()
        self._daemon.meeting = Meeting(self._daemon.home / f"meet{self._uses}")

    def close(self) -> None:
        self._daemons.close()
        self._stub.remove()
