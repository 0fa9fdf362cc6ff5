"""The example of the page: its template as a scheduler would allocate it, its script with what the CDI file says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kubernetes.dra.cdi_edits import outside
from tests.live import PATIENCE_S, python_path

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemons
    from tests.kubernetes.dra.conftest import DraNode
    from tests.kubernetes.dra.standins import StandInApiServer

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install -r requirements/dev.txt)")
EXAMPLE = Path(__file__).parents[3] / "docs" / "deploy" / "kubernetes" / "dra" / "example.yaml"
STAYS = "tests/kubernetes/dra/test_manifests.py::test_the_class_and_the_example_are_of_the_published_types"


@pytest.mark.nightly("a daemon, a driver and PyTorch", stays=STAYS)
def test_the_script_of_the_example_is_a_job_with_the_options_of_its_claim(
    dra_node: DraNode, api_server: StandInApiServer, daemons: Daemons, jobs_environment: dict[str, str]
) -> None:
    template, job = yaml.safe_load_all(EXAMPLE.read_text())
    devices = template["spec"]["spec"]["devices"]
    (request,), (config,) = devices["requests"], devices["config"]
    parameters = config["opaque"]["parameters"]
    memory = request["exactly"]["capacity"]["requests"]["memory"]
    daemon = daemons("host:3GiB")
    dra_node.run(daemon.home)
    claim = api_server.claim("train-x", parameters, request=request["name"], memory=memory, pod="train-x")
    (device,) = dra_node.kubelet.prepare(claim)[claim.uid].devices
    variables = outside(dra_node.cdi, *device.cdi_device_ids)
    variables["PYTHONPATH"] += f":{python_path()}"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = [sys.executable, *container["command"][1:]]
    done = subprocess.run(
        command, env=jobs_environment | variables, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("trained\n", "")
    (found,) = daemon.client.jobs()
    ended = daemon.client.wait(found.id, PATIENCE_S)
    assert (ended.name, ended.outcome, ended.weight, ended.time_us) == ("train-x", "succeeded", 200, 7_200_000_000)
    assert (ended.estimate_source, ended.iterations > 100) == ("hint", True)
