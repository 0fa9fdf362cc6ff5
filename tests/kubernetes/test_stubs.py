"""The modules of the kubelet's APIs are what `make k8s-stubs` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_generated_modules_are_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed (pip install -r requirements/dev.txt)")
    kinds = ("python", "pyi", "grpc_python")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "src", *(f"--{kind}_out={tmp_path}" for kind in kinds)]
    sources = sorted((ROOT / "src/carpool/kubernetes").rglob("*.proto"))
    subprocess.run([*command, *(str(path.relative_to(ROOT)) for path in sources)], check=True, cwd=ROOT)
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(made) == len(kinds) * len(sources) == 9
    for path in made:
        assert path.read_text() == (ROOT / "src" / path.relative_to(tmp_path)).read_text(), "run `make k8s-stubs`"
