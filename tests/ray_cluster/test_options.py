"""What `carpool.ray` makes of options and of the variables of a node, without Ray."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import carpool.ray
from carpool.ray import BadOption, NodeNotReady
from carpool.ray.environment import RayJobOptions


def test_options_are_those_of_carpool_env() -> None:
    made = carpool.ray.runtime_env({"env_vars": {"SEED": "1"}}, name="trial", memory="3MiB/4MiB", time="1h", weight=3)
    wanted = {
        "name": "trial",
        "persistent_bytes": 3 << 20,
        "ephemeral_bytes": 4 << 20,
        "weight": 3,
        "time_us": 3_600_000_000,
    }
    assert made == {"env_vars": {"SEED": "1"}, "carpool": wanted}


def test_what_is_not_said_is_not_there() -> None:
    """Ray reuses a worker for equal environments only."""
    assert carpool.ray.runtime_env() == {"carpool": {}}
    nothing = dict.fromkeys(RayJobOptions.__annotations__)
    assert carpool.ray.runtime_env(**nothing) == {"carpool": {}}  # type: ignore[arg-type]
    assert carpool.ray.options(shares=0.5)["resources"] == {"carpool": 0.5}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"wieght": 3}, "there is no option 'wieght'"),
        ({"weight": "much"}, "weight"),
        ({"memory": "3 apples"}, "apples"),
    ],
)
def test_bad_options_are_named(option: dict[str, object], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        carpool.ray.runtime_env(**option)  # type: ignore[arg-type]


def test_other_plugins_of_a_node_stay() -> None:
    other = {"class": "other.Plugin"}
    made = carpool.ray.node_variables({"RAY_RUNTIME_ENV_PLUGINS": json.dumps([other])})
    ours = {"class": "carpool.ray.plugin.CarpoolPlugin"}
    assert json.loads(made["RAY_RUNTIME_ENV_PLUGINS"]) == [other, ours]
    assert carpool.ray.node_variables(made) == made


@pytest.mark.parametrize("text", ["{", '"words"', "[1]"])
def test_plugins_that_cannot_be_read(text: str) -> None:
    with pytest.raises(NodeNotReady, match="unset it"):
        carpool.ray.node_variables({"RAY_RUNTIME_ENV_PLUGINS": text})


def test_a_node_in_a_job_is_refused() -> None:
    with pytest.raises(NodeNotReady, match="outside of jobs"):
        carpool.ray.node_variables({"CARPOOL_JOB": "3"})


def test_a_node_without_the_plugin_or_a_daemon_has_no_shares(tmp_path: object) -> None:
    with pytest.raises(NodeNotReady, match="does not name Carpool's plugin"):
        carpool.ray.node_resources(environ={})
    env = carpool.ray.node_variables({}) | {"CARPOOL_HOME": str(tmp_path)}
    with pytest.raises(NodeNotReady, match="carpool up"):
        carpool.ray.node_resources(environ=env)


def test_ray_is_not_imported() -> None:
    code = "import sys, carpool, carpool.ray; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_says_what_is_missing_in_one_line() -> None:
    command = [sys.executable, "-m", "carpool.ray", "resources"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("carpool: error: ")
    assert len(done.stderr.splitlines()) == 1
