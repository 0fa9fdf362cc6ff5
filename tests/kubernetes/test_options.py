"""What `carpool k8s plugin` refuses, and the parts of an answer that need a GPU of a stand-in's."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from carpool.cli.base.cli_error import Problem
from carpool.cli.main import cli

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
from carpool.kubernetes.allocation import Given, GpuAccess, NoShare, Standing, answer, preferred, share_ids

GPU = Given([], {}, "GPU-5a2f")


def problem(*options: str) -> str:
    result = CliRunner().invoke(cli, ["k8s", "plugin", *options])
    return result.exception.info.message if isinstance(result.exception, Problem) else result.output


def test_bad_options_are_refused(tmp_path: Path) -> None:
    here = ["--kubelet-dir", str(tmp_path)]
    assert "not the name of a resource" in problem(*here, "--resource", "gpu")
    assert "is not a directory" in problem("--kubelet-dir", str(tmp_path / "none"))
    assert "'0'" in problem(*here, "--shares", "0") or "too small" in problem(*here, "--shares", "0")
    assert "No such option" in problem(*here, "--share", "1")
    assert "is not one of" in problem(*here, "--gpus", "all")


def test_a_gpu_reaches_its_container_in_the_way_that_was_chosen(tmp_path: Path) -> None:
    about = tmp_path / "0000:01:00.0" / "information"
    about.parent.mkdir()
    about.write_text("Model: \t\t A\nGPU UUID: \t GPU-5a2f\nDevice Minor: \t 3\n")
    assert answer(GPU, GpuAccess.RUNTIME).envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-5a2f"
    assert [device.name for device in answer(GPU, GpuAccess.CDI).cdi_devices] == ["nvidia.com/gpu=GPU-5a2f"]
    nodes = answer(GPU, GpuAccess.NODES, tmp_path).devices
    assert (nodes[0].host_path, nodes[0].container_path, nodes[0].permissions) == ("/dev/nvidia3",) * 2 + ("rw",)
    with pytest.raises(NoShare, match="no GPU GPU-5a2f"):
        answer(GPU, GpuAccess.NODES, tmp_path / "none")


def test_ids_that_are_too_long_for_the_kubelet_are_refused() -> None:
    with pytest.raises(NoShare, match="63 characters"):
        share_ids("x" * 61, 10)


def test_without_a_device_that_has_enough_shares_the_choice_is_short() -> None:
    devices = {"a": Standing(healthy=True, free_bytes=2), "b": Standing(healthy=True, free_bytes=1)}
    assert preferred(["a::0", "b::0", "b::1"], [], 2, devices) == ["b::0", "b::1"]
    assert preferred(["a::0", "b::0"], [], 2, devices) == ["a::0"]
    assert preferred([], [], 1, devices) == []
