"""Tune's trials, Train's workers and Serve's replicas are jobs of their node's daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.protocol.api import JobInfo
from tests.live import PATIENCE_S
from tests.ray_cluster.nodes import Nodes
from tests.ray_cluster.test_endings import STAYS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly("a library of Ray's: half a minute", stays=STAYS)

#: A loop for two workers of Train: what a rank computes depends on its number only.
TRAIN = """
import json, sys
import torch
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
import carpool.ray

def loop(config, rank=None):
    import json, ray.train, torch
    rank = ray.train.get_context().get_world_rank() if rank is None else rank
    torch.manual_seed(rank)
    model, data = torch.nn.Linear(64, 64), torch.randn(256, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        loss = model(data).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    open(f"{config['to']}/rank{rank}", "w").write(json.dumps(loss.item()))
"""
#: In front of it, a node and a trainer; or nothing.
SHARED = """
ray.init("local", resources=carpool.ray.prepare_node(), include_dashboard=False)
environment = carpool.ray.runtime_env({"env_vars": {"OMP_NUM_THREADS": "1"}}, name="rank")
scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.01, "carpool": 1})
run = RunConfig(storage_path=sys.argv[2], worker_runtime_env=environment)
TorchTrainer(loop, train_loop_config={"to": sys.argv[1]}, scaling_config=scaling, run_config=run).fit()
ray.shutdown()
"""
ALONE = """
torch.set_num_threads(1)
loop({"to": sys.argv[1]}, 0)
loop({"to": sys.argv[1]}, 1)
"""
#: Two replicas of Serve, asked by their handle.
SERVE = """
import json, os, sys
import ray
from ray import serve
import carpool.ray

class Model:
    def __init__(self):
        import torch
        torch.manual_seed(0)
        self.model = torch.nn.Linear(64, 64)

    def __call__(self, seed):
        import torch
        with torch.no_grad():
            return float(self.model(torch.full((8, 64), float(seed))).sum()), os.getpid()

ray.init('local', resources=carpool.ray.prepare_node(), include_dashboard=False)
options = carpool.ray.options({"env_vars": {"OMP_NUM_THREADS": "1"}}, name="replica")
deployment = serve.deployment(Model, num_replicas=2, ray_actor_options={"num_cpus": 0, **options})
handle = serve.run(deployment.bind(), name="app", route_prefix=None)
answers = [handle.remote(seed).result() for seed in range(8)]
expected = [Model().__call__(seed)[0] for seed in range(8)]
print("RESULT", json.dumps({"same": [a for a, _ in answers] == expected, "pids": sorted({p for _, p in answers})}))
serve.shutdown(); ray.shutdown()
"""


def run(cluster: Nodes, script: list[str]) -> tuple[str, list[JobInfo]]:
    """What a program writes that starts a node of its own, and the jobs that it has made of the first daemon."""
    daemon = cluster.nodes[0].daemon
    before = {job.id for job in daemon.client.jobs()}
    environment = {**os.environ, "CARPOOL_HOME": str(daemon.home), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}

    done = subprocess.run(
        [sys.executable, *script], env=environment, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{daemon.story()}"
    return done.stdout, [job for job in daemon.client.jobs() if job.id not in before]


def test_trials_of_tune_find_the_losses_of_a_queue(cluster: Nodes) -> None:
    """The example, with four trials."""
    script = ["docs/examples/with_ray/sixteen_trials.py", "--trials=4", "--iterations=20", "--read-ms=1"]
    out, jobs = run(cluster, [str(ROOT / script[0]), *script[1:]])
    result = json.loads(out.splitlines()[-1])
    assert (result["trials"], result["same_losses"]) == (4, True)
    assert len([job for job in jobs if job.iterations]) == 4


def test_replicas_of_serve_answer_as_the_model_does(cluster: Nodes) -> None:
    out, jobs = run(cluster, ["-c", SERVE])
    (line,) = [line for line in out.splitlines() if line.startswith("RESULT ")]
    result = json.loads(line.removeprefix("RESULT "))
    assert result["same"]
    assert {job.pid for job in jobs} >= set(result["pids"])
    assert {job.name for job in jobs} == {"replica"}


def test_workers_of_train_compute_what_they_compute_alone(cluster: Nodes, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("shared", "alone")}
    for place in places.values():
        place.mkdir()
    (tmp_path / "shared.py").write_text(TRAIN + SHARED)
    (tmp_path / "alone.py").write_text(TRAIN + ALONE)
    _, jobs = run(cluster, [str(tmp_path / "shared.py"), str(places["shared"]), str(tmp_path)])
    run(cluster, [str(tmp_path / "alone.py"), str(places["alone"])])
    for rank in ("rank0", "rank1"):
        assert (places["shared"] / rank).read_text() == (places["alone"] / rank).read_text()
    assert [job.name for job in jobs if job.iterations] == ["rank", "rank"]
