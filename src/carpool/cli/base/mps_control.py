"""Start, query and stop NVIDIA's ``nvidia-cuda-mps-control``, without a shell, with its directories in Carpool's.

The program's documentation: ``-d`` starts the control daemon in the background; without options it reads commands from
its standard input and sends them to the daemon whose pipe is in ``CUDA_MPS_PIPE_DIRECTORY``.  Servers are started by
the first program that uses one, as that program's user; programs of another user wait until they have ended.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.protocol.paths import Home
from carpool.protocol.user_names import user_name

PROGRAM = "nvidia-cuda-mps-control"
PATIENCE_S = 30.0
LONGEST_PATH = 90  # its sockets are below the pipe directory, and paths of sockets have at most 107 bytes
COST = (
    "The price: all jobs under MPS share one fault domain (a fault in one job ends all of them), and MPS serves one\n"
    "user at a time (jobs of another user wait until the first user's jobs have ended)."
)
EXPERIMENTAL = "MPS is experimental: Carpool has run with a stand-in for it only."
NO_DRIVER = "MPS is part of NVIDIA's driver for Linux; `carpool doctor` shows what this machine's GPUs support"


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the control daemon runs, where its pipe is, and the process ids of its servers and of their clients."""

    running: bool
    pipe: Path
    servers: list[int] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)


class MpsControl:
    """The MPS control daemon whose directories are in a Carpool home.  Methods raise Problem."""

    def __init__(self, home: Path) -> None:
        paths = Home(home)
        self.pipe, self.log, self._mark = paths.mps_pipe, paths.mps_log, paths.mps_on

    def start(self) -> bool:
        """Start MPS; return False if MPS runs already.  From then on Carpool's daemon directs jobs to MPS."""
        self._program()
        if self._running():
            self._mark.touch()
            return False
        self._directories()
        done = self._run(["-d"])
        if done.returncode or not self._running():
            raise Problem(
                Exit.REFUSED,
                "mps_failed",
                f"the MPS control daemon did not start: {_last_line(done) or f'see {self.log}'}",
                "MPS needs a GPU, and on shared machines often root; see compute modes in `nvidia-smi -q`",
            )
        self._mark.touch()
        return True

    def stop(self) -> bool:
        """Stop the MPS control daemon; return False if it does not run."""
        found = self.status()
        if not found.running:
            self._mark.unlink(missing_ok=True)
            return False
        if found.clients:
            users = ", ".join(map(str, found.clients))
            raise Problem(
                Exit.REFUSED, "mps_in_use", f"programs still use MPS: process {users}", "end these programs first"
            )
        done = self._run([], "quit\n")
        if done.returncode:
            raise Problem(
                Exit.FAILED, "mps_failed", f"MPS did not stop: {_last_line(done)}", f"see the logs in {self.log}"
            )
        self._mark.unlink(missing_ok=True)
        return True

    def status(self) -> Status:
        if not self.pipe.is_dir():
            return Status(False, self.pipe)
        self._program()
        if not self._running():
            return Status(False, self.pipe)
        servers = self._numbers("get_server_list\n")
        clients = [pid for server in servers for pid in self._numbers(f"get_client_list {server}\n")]
        return Status(True, self.pipe, servers, clients)

    def _running(self) -> bool:
        """Whether the MPS control daemon runs: without one, the program fails to send a command."""
        return self.pipe.is_dir() and self._run([], "get_server_list\n").returncode == 0

    def _numbers(self, asked: str) -> list[int]:
        lines = self._run([], asked).stdout.split()
        return [int(line) for line in lines if line.isdecimal()]

    def _directories(self) -> None:
        if len(os.fsencode(self.pipe)) > LONGEST_PATH:
            text = f"{self.pipe} is longer than MPS can use ({LONGEST_PATH} bytes)"
            raise Problem(Exit.REFUSED, "path_too_long", text, "choose a shorter --home (or CARPOOL_HOME)")
        home = self.pipe.parents[1]
        home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)  # as the daemon makes it
        for directory in (self.pipe.parent, self.pipe, self.log):
            directory.mkdir(mode=0o700, exist_ok=True)
            owner = directory.stat().st_uid
            if owner != os.geteuid():
                text = f"{directory} belongs to user {user_name(owner)}, you are {user_name(os.geteuid())}"
                raise Problem(
                    Exit.REFUSED,
                    "not_yours",
                    text,
                    "MPS serves one user at a time: the user who started it has to stop it",
                )

    def _run(self, arguments: list[str], said: str = "") -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }
        command = [self._program(), *arguments]
        try:
            return subprocess.run(
                command, env=environment, input=said, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            text = f"{PROGRAM} did not answer within {PATIENCE_S:.0f} s"
            raise Problem(Exit.TIMEOUT, "mps_hangs", text, f"see the logs in {self.log}, and `nvidia-smi`") from None
        except OSError as error:
            text = f"{command[0]} cannot be run: {error.strerror}"
            raise Problem(Exit.REFUSED, "mps_failed", text, NO_DRIVER) from None

    def _program(self) -> str:
        found = shutil.which(PROGRAM)
        if found is None:
            raise Problem(Exit.NOT_FOUND, "no_mps", f"there is no {PROGRAM} on this machine", NO_DRIVER)
        return found


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else ""
