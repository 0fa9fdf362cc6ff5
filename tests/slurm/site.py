"""A Slurm cluster whose nodes have a Carpool daemon each, set up with the files of `docs/deploy/slurm`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from carpool.protocol.api import JobInfo
from tests.e2e.conftest import THREADS, Daemon, Setup
from tests.leftovers import MARK, RUN
from tests.live import PATIENCE_S, Workload
from tests.slurm.cluster import NODES, Cluster

CONTRIB = Path(__file__).parents[2] / "docs" / "deploy" / "slurm"
SHARD = "--gres=shard:1"
#: Turns are short, however much of the time goes into moving memory.
QUICK = {"max_move_share_ppm": 1_000_000, "forced_after_us": 1_000_000}


def until(what: Callable[[], object], story: Callable[[], str]) -> None:
    """Ask again and again, for what nobody tells."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, story()
        time.sleep(0.02)


class SlurmJob:
    """A job of Slurm's: ``out`` is the file for its script's results, ``log`` what it prints."""

    def __init__(self, site: Site, number: str, out: Path, log: Path) -> None:
        self.site, self.id, self.out, self.log = site, number, out, log

    def wait(self) -> str:
        """Slurm's state at its end."""
        return self.site.cluster.wait(self.id)

    def result(self) -> dict[str, Any]:
        """What its script wrote, once all of it has ended well."""
        state = self.wait()
        assert state == "COMPLETED", f"{state}\n{self.log.read_text()}{self.site.story()}"
        assert "carpool" not in self.log.read_text(), self.log.read_text()
        result: dict[str, Any] = json.loads(self.out.read_text())
        return result

    def jobs(self) -> list[JobInfo]:
        """Carpool's jobs of it so far."""
        all_jobs = (job for daemon in self.site.daemons.values() for job in daemon.client.jobs())
        return [job for job in all_jobs if job.launcher == f"slurm {self.id}"]

    def job(self) -> JobInfo:
        """The one, as soon as it has joined."""
        self.site.until(self.jobs)
        (job,) = self.jobs()
        return job

    def ended(self) -> JobInfo:
        """The one, as soon as it has ended."""
        self.site.until(lambda: self.job().phase == "ended")
        return self.job()

    def iterates(self, more: int = 5) -> None:
        """Returns when it has done so many iterations more than now."""
        goal = self.job().iterations + more
        self.site.until(lambda: self.job().iterations >= goal)


class Site:
    """``device``: of each node's daemon."""

    def __init__(self, environment: Mapping[str, str], *, device: str = "host:96MiB", shards: int = 4, **settings: int) -> None:  # fmt: skip  # noqa: E501
        self.root = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.environment = {**environment, **dict.fromkeys(THREADS, "1"), MARK: RUN}
        setup = Setup(devices=(device,), settings=QUICK | settings)
        self.daemons: dict[str, Daemon] = {}
        self._started: list[subprocess.Popen[str]] = []
        self._count = 0
        for node in NODES:
            self.daemons[node] = Daemon(self._home(node), dict(self.environment), setup)
        prologs = {"TaskProlog": self._script("task_prolog"), "Epilog": self._script("epilog")}
        cluster = self.root / "slurm"
        cluster.mkdir()
        self.cluster = Cluster(cluster, self.environment, prologs, shards=shards)

    def _home(self, node: str) -> Path:
        return self.root / f"home-{node}"

    def _script(self, name: str) -> Path:
        """The one of `docs/deploy/slurm`, with the places that its reader is to change."""
        text = (CONTRIB / name).read_text()
        places = {
            "/opt/carpool/bin/python": sys.executable,
            "/opt/carpool/slurm": str(CONTRIB),
            "/var/lib/carpool": str(self._home("$SLURMD_NODENAME")),
        }
        for place, ours in places.items():
            assert place in text
            text = text.replace(place, ours)
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def sbatch(self, command: Workload | str, *options: str, shard: str = SHARD, **variables: str) -> SlurmJob:
        """A batch script of one command; or the script's text."""
        self._count += 1
        out = self.root / f"out{self._count}"
        text = command if isinstance(command, str) else shlex.join(command.command(out))
        script = self.root / f"batch{self._count}"
        script.write_text(f"#!/bin/bash\n{text}\n")
        log = self.root / f"log{self._count}"
        words = ["sbatch", "--parsable", f"--output={log}", *filter(None, [shard]), *options, str(script)]
        number = self.cluster.command(*words, **variables).split(";")[0]
        return SlurmJob(self, number, out, log)

    def srun(self, workload: Workload, *options: str, **variables: str) -> tuple[subprocess.Popen[str], Path]:
        """A step with an allocation of its own, in the background, and the file for its results."""
        self._count += 1
        out = self.root / f"out{self._count}"
        self._started.append(
            self.cluster.popen("srun", "--quiet", SHARD, *options, *workload.command(out), **variables)
        )
        return self._started[-1], out

    def until(self, what: Callable[[], object]) -> None:
        until(what, self.story)

    def nothing_left(self) -> None:
        """No job, no memory, on any node."""
        self.until(lambda: not any(device.used_bytes or device.jobs for device in self._devices()))

    def _devices(self) -> list[Any]:
        return [device for daemon in self.daemons.values() for device in daemon.client.devices()]

    def story(self) -> str:
        """For messages."""
        carpool = "".join(f"\n--- carpool of {node}\n{daemon.story()}" for node, daemon in self.daemons.items())
        logs = "".join(f"\n--- {path.name}\n{path.read_text(errors='replace')}" for path in self.root.glob("log*"))
        return carpool + logs + self.cluster.story()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        try:
            if hasattr(self, "cluster"):
                self.cluster.close()
        finally:
            for daemon in self.daemons.values():
                daemon.close()
            with suppress(OSError):
                subprocess.run(["rm", "-rf", str(self.root)], check=False)
