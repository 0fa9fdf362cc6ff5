"""Containers of runc whose processes join a daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from carpool.protocol.api import JobInfo
from tests.containers.bundle import Bundle, bind, of_docker
from tests.e2e.watching import joined
from tests.leftovers import MARK, RUN
from tests.live import PATIENCE_S, Meeting, python_path

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.live import Workload

#: Of a container's root, outside.
MAPPED = 100_000
#: Within it runc has removed a container that has ended.
ENDS_S = 30.0
#: Variables and mounts.
Given = tuple[dict[str, str], list[dict[str, Any]]]
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")


class Container:
    """``out``: where its script writes; ``shared``: the directory that it may write to."""

    def __init__(self, state: Path, bundle: Bundle, name: str, shared: Path) -> None:
        self._runc, self.name, self.out = ["runc", "--root", str(state)], name, shared / name
        self._id = bundle.id
        self._command = [*self._runc, "run", "--bundle", str(bundle.directory), self._id]
        self.process = self._run()

    def _run(self) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(self._command, text=True, **pipes)

    def restart(self) -> None:
        """With all that it was started with, once it has ended."""
        self.end()
        self.process = self._run()

    def job(self, daemon: Daemon) -> JobInfo:
        """Once the daemon knows of it."""
        return joined(daemon, self.name)

    def pid(self) -> int:
        """Of its first process, outside."""
        done = subprocess.run([*self._runc, "state", self._id], capture_output=True, text=True, check=True)
        return int(json.loads(done.stdout)["pid"])

    def end(self) -> str:
        """What it wrote to standard error, once it has ended."""
        return self.process.communicate(timeout=PATIENCE_S)[1]

    def result(self, daemon: Daemon) -> Any:
        errors = self.end()
        assert self.process.returncode == 0, f"{errors}\n{daemon.story()}"
        assert "carpool: " not in errors, f"{errors}\n{daemon.story()}"
        return json.loads(self.out.read_text())

    def remove(self) -> None:
        """Whatever state it is in; runc removes what has ended by itself."""
        if self.process.returncode is not None:
            return
        subprocess.run([*self._runc, "kill", self._id, "KILL"], check=False, capture_output=True)
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=ENDS_S)  # runc removes what it has made
        subprocess.run([*self._runc, "delete", "--force", self._id], check=False, capture_output=True)
        self.process.kill()
        self.process.communicate()


class Containers:
    """Starts containers, and removes them in the end.  They wait for each other at ``meeting``."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="cp-"))  # short: paths of sockets are limited to 107 bytes
        self.root.chmod(0o711)
        self.shared = self.root / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self.meeting = Meeting(self.shared / "meet")
        self.meeting.path.chmod(0o666)
        self._started: list[Container] = []

    def start(
        self,
        daemon: Daemon,
        command: list[str] | Workload,
        host_uid: int | None = None,
        *,
        meet: bool = False,
        ballast_mib: int = 0,
        memory: str = "",
    ) -> Container:
        """With what `carpool docker-args` says, otherwise as `run`."""
        given = of_docker(docker_args(daemon, self.next_name, *(["--mem", memory] if memory else [])))
        return self.run(given, command, host_uid, meet=meet, ballast_mib=ballast_mib)

    @property
    def next_name(self) -> str:
        """Of the container that is started next, and of its job."""
        return f"container{len(self._started)}"

    def run(
        self,
        given: Given,
        command: list[str] | Workload,
        host_uid: int | None = None,
        *,
        meet: bool = False,
        ballast_mib: int = 0,
    ) -> Container:
        """``host_uid``: of its root; None: without a user namespace."""
        name, (variables, mounts) = self.next_name, given
        variables = variables | self._of_tests(meet) | {"BALLAST_MIB": str(ballast_mib)}
        variables["PYTHONPATH"] += f":{python_path()}"
        words = command if isinstance(command, list) else command.command(self.shared / name)
        bundle = Bundle(self.root / name, host_uid)
        bundle.make(words, variables, [*mounts, bind(self.shared, self.shared, writable=True)])
        self._started.append(Container(self.root / "state", bundle, name, self.shared))
        return self._started[-1]

    def _of_tests(self, meet: bool) -> dict[str, str]:
        meeting = {"MEETING_POINT": str(self.meeting.path)} if meet else {}
        return THREADS | {MARK: RUN, "HOME": "/tmp", "PATH": f"{Path(sys.executable).parent}:/usr/bin"} | meeting

    def close(self) -> None:
        self.meeting.close()
        for container in self._started:
            container.remove()
        shutil.rmtree(self.root)


def until(daemon: Daemon, kind: str, job: int) -> None:
    with closing(daemon.client.events(follow=True)) as events:
        assert any(event.kind == kind and event.job == job for event in events)


def ended(daemon: Daemon, job: int) -> JobInfo:
    info = daemon.client.wait(job, PATIENCE_S)
    assert info.phase == "ended", daemon.story()
    return info


def docker_args(daemon: Daemon, name: str, *options: str) -> list[str]:
    command = [sys.executable, "-m", "carpool.cli", "docker-args", "--home", str(daemon.home), "--name", name, "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    arguments: list[str] = json.loads(done.stdout)
    return arguments


def skip_without_runc() -> None:
    if os.geteuid() != 0:
        pytest.skip("containers of other users' ids are root's to start")
    if shutil.which("runc") is None:
        pytest.skip("runc is not installed (Debian: apt-get install runc)")
