"""The manifests of DRA: what has to be in them, and nothing unknown to the API.  No API server has read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from carpool.cli.commands.integration.k8s import ACCOUNT, CDI_DIRECTORY, KUBELET_DIRECTORY, dra
from carpool.protocol.paths import SYSTEM_HOME
from tests.kubernetes.dra.published import unknown

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install -r requirements/dev.txt)")
DEPLOY = Path(__file__).parents[3] / "docs" / "deploy" / "kubernetes" / "dra"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.fixture
def spec() -> Any:
    (document,) = documents("daemonset.yaml")
    assert document["spec"]["selector"]["matchLabels"] == document["spec"]["template"]["metadata"]["labels"]
    return document["spec"]["template"]["spec"]


def test_it_takes_the_place_of_the_device_plugin(spec: Any) -> None:
    plugin = yaml.safe_load((DEPLOY.parent / "daemonset.yaml").read_text())
    (document,) = documents("daemonset.yaml")
    assert document["metadata"] == plugin["metadata"]
    assert document["spec"]["selector"] == plugin["spec"]["selector"]
    assert spec["containers"][0] == plugin["spec"]["template"]["spec"]["containers"][0], "the same daemon"


def test_the_driver_has_the_nodes_paths_and_alone_a_token(spec: Any) -> None:
    assert (spec["hostPID"], spec["automountServiceAccountToken"]) == (True, False)
    daemon, driver = spec["containers"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounted = {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}
    assert mounted == paths | {"account": str(ACCOUNT)}
    kubelet = {str(KUBELET_DIRECTORY / name) for name in ("plugins", "plugins_registry")}
    assert {*paths.values()} == {str(SYSTEM_HOME), str(CDI_DIRECTORY), *kubelet}
    assert [mount["name"] for mount in daemon["volumeMounts"]] == ["home"]


def test_its_command_has_options_that_exist(spec: Any) -> None:
    command = spec["containers"][1]["command"]
    assert command[:3] == ["carpool", "k8s", "dra"]
    assert CliRunner().invoke(dra, [*command[3:], "--help"]).exit_code == 0
    known = {option for parameter in dra.params for option in parameter.opts}
    assert {word for word in command if word.startswith("--")} <= known


def test_the_driver_may_do_what_it_does_and_no_more(spec: Any) -> None:
    account, role, binding, policy, bound = documents("rbac.yaml")
    assert spec["serviceAccountName"] == account["metadata"]["name"] == binding["subjects"][0]["name"]
    rights = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
    assert rights == {"resourceclaims": ["get"], "resourceslices": ["get", "create", "update"], "nodes": ["get"]}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert bound["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    (subject,) = binding["subjects"]
    named = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    assert named in policy["spec"]["matchConditions"][0]["expression"]


def test_kustomize_lists_what_there_is(spec: Any) -> None:
    (kustomization,) = documents("kustomization.yaml")
    assert {path.name for path in DEPLOY.iterdir()} - {*kustomization["resources"]} == {
        "example.yaml",
        "kustomization.yaml",
    }
    (subject,) = documents("rbac.yaml")[2]["subjects"]
    assert subject["namespace"] == kustomization["namespace"]
    image = kustomization["images"][0]
    assert {container["image"] for container in spec["containers"]} == {f"{image['name']}:{image['newTag']}"}


def test_the_class_and_the_example_are_of_the_published_types() -> None:
    (device_class,) = documents("deviceclass.yaml")
    template, job = documents("example.yaml")
    assert unknown(device_class, "DeviceClass") == unknown(template, "ResourceClaimTemplate") == []
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == device_class["metadata"]["name"]
    pod = job["spec"]["template"]["spec"]
    (claim,) = pod["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert [container["resources"]["claims"] for container in pod["containers"]] == [[{"name": claim["name"]}]]


def test_the_page_shows_the_template_of_the_example() -> None:
    page = (DEPLOY.parents[2] / "kubernetes.md").read_text()
    shown = page.partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(shown) == documents("example.yaml")[0]
