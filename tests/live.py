"""What tests with real daemons and real jobs have in common, whatever the device."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.client import DaemonClient

BARE_SERVER = Path(__file__).parent / "e2e" / "bare_server.py"
WORKLOADS = Path(__file__).parent / "workloads"
#: Less than a whole test may take; a busy machine needs a lot of it.
PATIENCE_S = 240.0
#: As a grace: a loaded machine may keep a job from its CPU for longer than the usual one, and its turn would go away.
NEVER_US = 600_000_000


def python_path(*directories: str | Path) -> str:
    """``directories`` before what processes of tests find anyway: `tests/lean`, except in `make test-all`."""
    return os.pathsep.join([*map(str, directories), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass(frozen=True)
class Script:
    """A script of a directory with its arguments (after the file for results)."""

    DIRECTORY: ClassVar[Path]
    name: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def named(cls, text: str) -> Self:
        name, *arguments = text.split()
        return cls(name, tuple(arguments))

    def command(self, out: Path) -> list[str]:
        return [sys.executable, str(self.DIRECTORY / f"{self.name}.py"), str(out), *self.arguments]


class Workload(Script):
    """One of those that tests on every rig run: its name, and what follows its result file on its command line."""

    DIRECTORY = WORKLOADS


class BareRuns:
    """Results of scripts run without Carpool, each computed once."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._directory = directory
        self._results: dict[Script, dict[str, Any]] = {}
        self._server = subprocess.Popen(
            [sys.executable, str(BARE_SERVER)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def result(self, script: Script) -> dict[str, Any]:
        if script not in self._results:
            self._results[script] = self._run(script)
        return self._results[script]

    def _run(self, script: Script) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        out = self._directory / f"out{len(self._results)}"
        log = out.with_suffix(".log")
        print(json.dumps([str(log), *script.command(out)[1:]]), file=self._server.stdin)
        code = self._server.stdout.readline().strip()
        assert code == "0", f"{script} fails without Carpool, too ({code}):\n{log.read_text()}"
        result: dict[str, Any] = json.loads(out.read_text())
        return result

    def close(self) -> None:
        self._server.communicate(timeout=PATIENCE_S)


class Meeting:
    """Where scripts wait for each other before they begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._listener.settimeout(PATIENCE_S)

    def arrive(self, count: int) -> list[socket.socket]:
        """The next ``count`` scripts are there, and wait until they may `go` on."""
        return [self._listener.accept()[0] for _ in range(count)]

    def go(self, waiting: Sequence[socket.socket]) -> None:
        for connection in waiting:
            connection.sendall(b"!")
            connection.close()

    def begin(self, count: int, *, together: bool = False) -> None:
        """Let the next ``count`` scripts go, all at once; and then keep them `together`."""
        (self.together if together else self.go)(self.arrive(count))

    def together(self, waiting: Sequence[socket.socket]) -> None:
        """Let them go, and wait for each other every few iterations: none is through before all have had turns."""
        for connection in waiting:
            connection.sendall(b"=")
        threading.Thread(target=_keep_together, args=(waiting,), daemon=True).start()

    def close(self) -> None:
        self._listener.close()


def _keep_together(scripts: Sequence[socket.socket]) -> None:
    """Until one is left.  One that has ended is waited for no more."""
    with ExitStack() as stack:
        for script in scripts:
            stack.enter_context(script)
        while len(scripts) > 1:
            scripts = [script for script in scripts if _comes(script)]
            for script in scripts:
                with suppress(OSError):  # it was killed meanwhile
                    script.sendall(b".")


def _comes(script: socket.socket) -> bool:
    with suppress(OSError):
        return bool(script.recv(1))
    return False


class Running:
    """A job that has been submitted."""

    def __init__(self, daemon: LiveDaemon, number: int, out: Path) -> None:
        self._daemon, self.id, self.out = daemon, number, out

    def info(self) -> JobInfo:
        return self._daemon.client.job(self.id)

    def wait(self) -> JobInfo:
        info = self._daemon.client.wait(self.id, PATIENCE_S)
        assert info.phase == "ended", f"job {self.id} still {info.phase}: {info.reason}\n{self._daemon.story()}"
        return info

    def log(self) -> str:
        return (self._daemon.home / "jobs" / str(self.id) / "log").read_text()

    def signal(self, number: signal.Signals) -> None:
        pid = self.info().pid
        assert pid is not None
        os.kill(pid, number)

    def result(self) -> dict[str, Any]:
        """What it wrote, once it has ended well."""
        info = self.wait()
        ending = f"{info.outcome} {info.exit_code} {info.signal} {info.reason}"
        assert info.outcome == "succeeded", f"{info.command} {ending}\n{self.log()}\n{self._daemon.story()}"
        assert "carpool: warning" not in self.log(), self.log()
        result: dict[str, Any] = json.loads(self.out.read_text())
        return result


class LiveDaemon:
    """A daemon with a state directory of its own.

    ``environment``: that of its jobs; ``own``: the daemon's, if it is another than that of the tests.  ``BEFORE`` is a
    command that runs the daemon's command.
    """

    BEFORE: ClassVar[Sequence[str]] = ()

    def __init__(
        self, home: Path, options: Sequence[str], environment: dict[str, str], own: Mapping[str, str] | None = None
    ) -> None:
        self.home, self._options, self._environment, self._own = home, options, environment, own
        home.mkdir(exist_ok=True)  # a test may have mounted something there
        self.meeting = Meeting(home / "meet")
        self._count = 0
        self.start()

    def start(self) -> None:
        """Also after `kill`."""
        ready, write = os.pipe()
        command = [*self.BEFORE, sys.executable, "-m", "carpool.daemon", "--home", str(self.home), *self._options]
        self._process = subprocess.Popen(
            [*command, f"--ready-fd={write}"], pass_fds=(write,), start_new_session=True, env=self._own
        )
        os.close(write)
        with open(ready) as pipe:
            answer = json.loads(pipe.readline() or "{}")
        assert answer.get("ok"), f"the daemon did not start: {answer}"
        self.client = DaemonClient(self.home)

    def kill(self) -> None:
        """At once, whatever it is doing; its jobs go on."""
        self._process.kill()
        self._process.wait()

    def submit_script(
        self,
        script: Script,
        *,
        meet: bool = False,
        before: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        again: Running | None = None,
        **request: Any,
    ) -> Running:
        """``before`` is a command that runs the script's command, ``env`` what its environment has besides.

        ``again``: it writes to the same file as that one, so that its command is the same.
        """
        self._count += 1
        out = self.home / f"out{self._count}" if again is None else again.out
        environment = self._environment | dict(env or {})
        environment |= {"MEETING_POINT": str(self.meeting.path)} if meet else {}
        argv = [*before, *script.command(out)]
        submission = SubmitRequest(argv=argv, cwd=str(self.home), env=environment, **request)
        return Running(self, self.client.submit(submission), out)

    def story(self) -> str:
        """For messages: what the jobs say, and the end of the daemon's log."""
        lines = [
            f"{job.id} {job.phase} {job.outcome} turn={job.holds_turn} alone={job.alone} {job.reason}"
            for job in self.client.jobs()
        ]
        log = (self.home / "daemon.log").read_text().splitlines()[-30:]
        return "\n".join([*lines, *log])

    def close(self) -> None:
        """Stop the jobs and the daemon, whatever state they are in."""
        self.meeting.close()
        if self._process.poll() is not None:  # a test gave up while no daemon lived
            self.start()
        try:
            with DaemonClient(self.home) as client:  # a test may have left its own in the middle of an answer
                client.shutdown(stop_jobs=True)
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
