"""A Slurm cluster of this machine's own: munged, slurmctld and nodes, each a real daemon; no systemd, no fixed port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.live import PATIENCE_S

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "squeue")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
#: Files that stand for a node's GPUs: Slurm only looks whether they are there.
GPUS = ("/dev/null", "/dev/zero")
NODES = ("n1", "n2")
POLL_S = 0.05
END_S = 20.0
#: Of a node, whatever this machine has.
SIZE = "CPUs=64 RealMemory=4096"

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/%n
SlurmctldPidFile={root}/ctld.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/log/ctld
SlurmdLogFile={root}/log/%n
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
GresTypes=gpu,shard
KillWait={kill_wait_s}
"""


def why_not() -> str:
    """Why no cluster can be started here, for people; empty: it can be."""
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "slurmd starts jobs as other users, and needs root"


def _free_ports(count: int) -> list[int]:
    """Nobody listens there now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """``variables``: of the nodes' daemons, by the name of the node; ``shards``: of each GPU."""

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str],
        prologs: Mapping[str, Path],
        *,
        shards: int = 4,
        gpus: Sequence[str] = GPUS[:1],
        kill_wait_s: int = 30,
    ) -> None:
        self.root, self.path = root, PATH
        root.chmod(0o755)
        self._socket = root / "munge" / "socket"
        self.environment = {**environment, "SLURM_CONF": str(root / "slurm.conf"), "PATH": PATH}
        for name in ("munge", "state", "log", "out", *NODES):
            (root / name).mkdir(mode=0o755)
        self._write(prologs, shards, gpus, kill_wait_s)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start_munge()
        for name in ("slurmctld", *NODES):
            self.start(name)
        self._until_ready()

    def _write(self, prologs: Mapping[str, Path], shards: int, gpus: Sequence[str], kill_wait_s: int) -> None:
        ctl, *ports = _free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        places = {"root": self.root, "socket": self._socket, "host": host, "port": ctl, "kill_wait_s": kill_wait_s}
        text = CONFIGURATION.format(**places) + "".join(f"{name}={path}\n" for name, path in prologs.items())
        for node, port in zip(NODES, ports, strict=True):
            gres = f"gpu:{len(gpus)},shard:{shards * len(gpus)}"
            text += f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} {SIZE} Gres={gres}\n"
        partition = f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP\n"
        (self.root / "slurm.conf").write_text(text + partition)
        lines = [f"Name=gpu File={gpu}" for gpu in gpus] + [f"Name=shard Count={shards} File={gpu}" for gpu in gpus]
        (self.root / "gres.conf").write_text("".join(f"NodeName={node} {line}\n" for node in NODES for line in lines))

    def _start_munge(self) -> None:
        directory = self.root / "munge"
        (directory / "key").write_bytes(os.urandom(128))
        (directory / "key").chmod(0o400)
        files = {"socket": self._socket, "key-file": directory / "key", "seed-file": directory / "seed"}
        files |= {"pid-file": directory / "pid", "log-file": directory / "log"}
        self._run("munge", ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in files.items())])
        self._until(self._socket.exists, "munged does not listen")

    def start(self, name: str) -> None:
        """``slurmctld``, or a node; also after its end."""
        command = ["slurmctld", "-D"] if name == "slurmctld" else ["slurmd", "-D", "-N", name]
        self._run(name, command)

    def _run(self, name: str, command: list[str]) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [shutil.which(command[0], path=PATH) or command[0], *command[1:]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._processes[name].kill()
        self._processes[name].wait()

    def command(self, *words: str, directory: Path | None = None, **variables: str) -> str:
        """What a command of Slurm's prints.  Raises AssertionError with its complaint."""
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
            cwd=directory or self.root, env=self.environment | variables,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}{self.story()}"
        return done.stdout.strip()

    def popen(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """The same in the background."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(words, text=True, cwd=self.root, env=self.environment | variables, **pipes)  # type: ignore[call-overload, no-any-return]

    def state(self, job: str) -> str:
        """As in ``scontrol show job``."""
        return self.about(job)["JobState"]

    def saved_jobs(self) -> bytes:
        """What a controller that starts again would know of jobs; it is written some seconds after each change."""
        path = self.root / "state" / "job_state"
        return path.read_bytes() if path.exists() else b""

    def about(self, job: str) -> dict[str, str]:
        """The fields of a job."""
        words = self.command("scontrol", "show", "job", "--oneliner", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str) -> str:
        """The job's state at its end."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
        self._until(lambda: self.state(job) in over, f"Slurm's job {job} does not end")
        return self.state(job)

    def story(self) -> str:
        """For messages: the ends of Slurm's logs."""
        logs = (self.root / "log" / name for name in ("ctld", *NODES))
        return "".join(f"\n--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs if log.exists())

    def _until_ready(self) -> None:
        self._until(self._ready, "the nodes are not idle")

    def _ready(self) -> bool:
        with suppress(AssertionError):
            return self.command("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * len(NODES)
        return False

    def _until(self, what: object, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not what():  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{text}{self.story()}"
            time.sleep(POLL_S)

    def close(self) -> None:
        """End all jobs, then the daemons, whatever state they are in."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            if all(process.poll() is None for process in self._processes.values()):
                self.command("scancel", "--signal=KILL", "--full", "--user=root")
                self.command("scancel", "--user=root")
                self._until(lambda: not self.command("squeue", "--noheader"), "jobs are left")
        for name in reversed(self._processes):
            self._end(name)

    def _end(self, name: str) -> None:
        """As asked, else SIGKILL."""
        self._processes[name].terminate()
        with suppress(subprocess.TimeoutExpired):
            self._processes[name].wait(END_S)
        self.kill(name)
