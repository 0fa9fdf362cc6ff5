"""The modules of the kubelet's API are what `make k8s-stubs` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
API = Path("carpool/kubernetes/v1beta1")


def test_generated_modules_are_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed (pip install -r requirements/dev.txt)")
    kinds = ("python", "pyi", "grpc_python")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "src", *(f"--{kind}_out={tmp_path}" for kind in kinds)]
    subprocess.run([*command, f"src/{API}/deviceplugin.proto"], check=True, cwd=ROOT)
    made = sorted((tmp_path / API).iterdir())
    assert [path.name for path in made] == ["deviceplugin_pb2.py", "deviceplugin_pb2.pyi", "deviceplugin_pb2_grpc.py"]
    for path in made:
        assert path.read_text() == (ROOT / "src" / API / path.name).read_text(), "run `make k8s-stubs`"
