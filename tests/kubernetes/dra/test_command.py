"""What `carpool k8s dra` refuses, and where it finds the API server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from carpool.cli.base.cli_error import Problem
from carpool.cli.commands.integration.k8s import _cluster
from carpool.cli.main import cli

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")


def problem(*options: str) -> str:
    result = CliRunner().invoke(cli, ["k8s", "dra", *options])
    if isinstance(result.exception, Problem):
        return f"{result.exception.info.message}; {result.exception.info.hint}"
    return result.output


def test_bad_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "plugins_registry").mkdir()
    here = ["--kubelet-dir", str(tmp_path)]
    assert "plugins_registry is not a directory: no kubelet has run here" in problem("--kubelet-dir", "/none")
    assert "the API server is unknown; give --api-server URL" in problem(*here)
    assert "begins with https://; give --api-server" in problem(*here, "--api-server", "http://127.0.0.1:1")
    assert "No such option" in problem(*here, "--resource", "carpool.dev/gpu")
    assert "too small" in problem(*here, "--shares", "0")


def test_a_pod_finds_the_api_server_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = []
    for host in ("10.0.0.1", "fd00::1"):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        found.append(_cluster())
    assert found == ["https://10.0.0.1:443", "https://[fd00::1]:443"]
