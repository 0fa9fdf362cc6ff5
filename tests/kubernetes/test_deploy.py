"""The manifests under `deploy/`: what has to be in them for containers to join.  No API server has read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from carpool.cli.commands.integration.k8s import DIRECTORY, RESOURCE, plugin
from carpool.protocol.paths import SYSTEM_HOME
from carpool.protocol.session import JoinOptions

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install -r requirements/dev.txt)")
DEPLOY = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes"


def manifest(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture
def spec() -> Any:
    document = manifest("daemonset.yaml")
    template = document["spec"]["template"]
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "DaemonSet")
    assert document["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    return template["spec"]


def test_the_daemon_sees_the_pids_of_pods(spec: Any) -> None:
    assert spec["hostPID"] is True
    assert spec["automountServiceAccountToken"] is False


def test_paths_are_the_same_in_the_containers_and_on_the_node(spec: Any) -> None:
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    assert set(volumes.values()) == {str(SYSTEM_HOME), str(DIRECTORY)}
    for container in spec["containers"]:
        assert all(volumes[mount["name"]] == mount["mountPath"] for mount in container["volumeMounts"])


def test_the_commands_have_options_that_exist(spec: Any) -> None:
    daemon, own = (container["command"] for container in spec["containers"])
    assert daemon[:2] == ["carpoold", "--home"]
    assert own[:3] == ["carpool", "k8s", "plugin"]
    assert CliRunner().invoke(plugin, [*own[3:], "--help"]).exit_code == 0
    known = {option for parameter in plugin.params for option in parameter.opts}
    assert {word for word in own if word.startswith("--")} <= known


def test_kustomize_lists_what_there_is(spec: Any) -> None:
    kustomization = manifest("kustomization.yaml")
    assert [(DEPLOY / name).is_file() for name in kustomization["resources"]] == [True]
    image = kustomization["images"][0]
    assert {container["image"] for container in spec["containers"]} == {f"{image['name']}:{image['newTag']}"}


def test_the_example_asks_for_a_share_and_has_options_that_the_daemon_understands() -> None:
    pod = manifest("example-pod.yaml")
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {RESOURCE: 1}
    options = json.loads(pod["metadata"]["annotations"]["carpool.dev/options"])
    assert msgspec.convert(options, JoinOptions).weight == 200
