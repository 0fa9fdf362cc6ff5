"""A Ray cluster on this machine: each node has a Carpool daemon with a home of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import carpool.ray
from carpool.protocol.api import JobInfo
from tests.e2e.watching import until
from tests.live import PATIENCE_S, LiveDaemon, Workload
from tests.ray_cluster import workers

#: A turn may change hands at every iteration, and memory moves whatever that costs.
EAGER = ("quantum_us=0", "max_switch_share_ppm=1000000", "max_move_share_ppm=1000000", "warm_limit=16", "max_lanes=1")
#: What a cluster of tests does without; each is a process of Python.
LEAN = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
#: What tasks are called: their workers live on.
TASK = "task"
#: Ray's workers have a niceness of 15 otherwise, and hardly run on a busy machine.
URGENT = {"RAY_worker_niceness": "0"}
#: As many as fit beside anything else: what shares bound is not what most tests are about.
SHARES = 16


class Node:
    """``place``: a resource that this node alone has."""

    def __init__(self, daemon: LiveDaemon, handle: Any, place: str) -> None:
        self.daemon, self.handle, self.place = daemon, handle, place

    def options(self, others: dict[str, Any] | None = None, **job: Any) -> dict[str, Any]:
        """Of an actor or a task that is to run here."""
        made = carpool.ray.options(others, **job)
        return {**made, "resources": {**made["resources"], self.place: 0.01}, "num_cpus": 0}

    def jobs(self) -> list[JobInfo]:
        return self.daemon.client.jobs()

    def job_of(self, pid: int) -> JobInfo:
        """The job that this process is, as soon as it is one."""
        with closing(self.daemon.client.events(follow=True)) as events:
            for event in events:
                if event.kind == "Submitted" and (found := self._with(event.job, pid)):
                    return found
        raise AssertionError(f"process {pid} has not joined\n{self.daemon.story()}")

    def _with(self, job: int | None, pid: int) -> JobInfo | None:
        info = self.daemon.client.job(job or 0)
        return info if info.pid == pid else None

    def until(self, kind: str, job: int, since: int = 0) -> None:
        with closing(self.daemon.client.events(follow=True, since=since)) as events:
            assert any(event.kind == kind and event.job == job for event in events), self.daemon.story()

    def ended(self, job: int) -> JobInfo:
        info = self.daemon.client.wait(job, PATIENCE_S)
        assert info.phase == "ended", self.daemon.story()
        return info


class Nodes:
    """The cluster and its driver, which is this process."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        import ray
        from ray.cluster_utils import Cluster

        ray.cloudpickle.register_pickle_by_value(workers)
        self._root, self._environment, self._numbers = root, environment, itertools.count()
        self._outs = itertools.count()
        self._cluster = Cluster()
        self.nodes: list[Node] = []
        self._class, self._actors = ray.remote(workers.Runner), []

    def add(
        self, device: str = "host:96MiB", *, shares: int = SHARES, cpus: int = 1, variables: Mapping[str, str] = {}
    ) -> Node:
        """``cpus``: as many workers are started beforehand."""
        number = next(self._numbers)
        options = [f"--device={device}", "--policy=fair", "--threads=1", *(f"--set={one}" for one in EAGER)]
        daemon = LiveDaemon(self._root / f"d{number}", options, self._environment)
        place = f"place{number}"
        self.nodes.append(Node(daemon, None, place))  # ended whatever happens next
        variables = {"CARPOOL_HOME": str(daemon.home), **URGENT, **variables}
        variables |= carpool.ray.node_variables(variables)
        resources = {**carpool.ray.node_resources(shares, environ=variables), place: 1.0}
        self.nodes[-1].handle = self._start(env_vars=variables, resources=resources, num_cpus=cpus)
        return self.nodes[-1]

    def _start(self, **about: Any) -> Any:
        head = {} if self.nodes[1:] else {"temp_dir": str(self._root / "ray"), **LEAN}
        return self._cluster.add_node(**head, **about)

    def connect(self) -> None:
        import ray

        ray.init(address=self._cluster.address, namespace="tests")

    def out(self) -> Path:
        return self._root / f"out{next(self._outs)}"

    def actor(self, node: Node, others: dict[str, Any] | None = None, *, restarts: int = 0, **job: Any) -> Any:
        """A `workers.Runner` there."""
        self._actors.append(self._class.options(**node.options(others, **job), max_restarts=restarts).remote())
        return self._actors[-1]

    def kill_actors(self) -> None:
        """Their memory has left the devices when this returns."""
        import ray

        while self._actors:
            ray.kill(self._actors.pop())
        for node in self.nodes:
            until(lambda node=node: all(job.phase == "ended" for job in node.jobs() if job.name != TASK), node.daemon)

    def start(self, runner: Any, workload: Workload, **variables: str) -> Any:
        """The results of a script in an actor, when they are there."""
        return runner.run.remote(workload.command(self.out())[1:], **variables)

    def remove(self, node: Node) -> None:
        """At once, as a machine that fails: Ray's processes there are killed."""
        self._cluster.remove_node(node.handle, allow_graceful=False)
        self.nodes.remove(node)

    def warnings(self) -> list[str]:
        """What Carpool has said in Ray's workers."""
        logs = (self._root / "ray").glob("session_*/logs/worker-*.err")
        lines = itertools.chain.from_iterable(log.read_text(errors="replace").splitlines() for log in logs)
        return [line for line in lines if "carpool: " in line]

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()
        for node in self.nodes:
            with suppress(FileNotFoundError):
                node.daemon.close()


def get(*references: Any) -> list[Any]:
    """What Ray has for these, in time.  Raises what their code did."""
    import ray

    found: list[Any] = ray.get(list(references), timeout=PATIENCE_S)
    return found


def restarted(actor: Any) -> int:
    """The process of an actor that Ray starts again, as soon as it answers."""
    import ray

    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(ray.exceptions.ActorUnavailableError):
            return int(get(actor.pid.remote())[0])
        time.sleep(0.1)
    raise AssertionError("the actor has not been started again")
