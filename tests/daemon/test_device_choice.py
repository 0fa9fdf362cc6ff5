"""A daemon that starts without ``--device``: the GPUs that there are, else the host, and afterwards what it had."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.missing_package import extra_hint
from tests.daemon.daemon_harness import Daemon, Make
from tests.devices.cuda_stub import MEMORY, Stub

UNNAMED = ("--threads", "1")


def devices(daemon: Daemon) -> list[str]:
    return [each["id"] for each in daemon.get("/v1/devices")["devices"]]


def started(daemon: Daemon) -> dict[str, Any]:
    """What the daemon told the program that started it."""
    answer = daemon.start()
    assert answer.get("ok"), answer
    return answer


def test_all_gpus_are_used_where_there_are_some(stub: Stub, make_daemon: Make) -> None:
    stub.devices(MEMORY, MEMORY // 2)
    daemon = make_daemon(*UNNAMED)
    note = started(daemon)["note"]
    assert devices(daemon) == ["cuda0", "cuda1"]
    assert note == "using the NVIDIA GPUs of this machine: cuda0 of 224 MiB, cuda1 of 112 MiB"


def test_the_host_is_shared_where_there_is_no_gpu(make_daemon: Make) -> None:
    daemon = make_daemon(*UNNAMED)
    note = started(daemon)["note"]
    assert devices(daemon) == ["host0"]
    assert note.startswith("no NVIDIA GPU found, sharing host memory: host0 of ")


def test_the_host_is_shared_on_request(stub: Stub, make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host")
    assert (started(daemon)["note"], devices(daemon)) == ("", ["host0"])


def test_a_home_keeps_its_devices(stub: Stub, make_daemon: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without jobs, and although there is a GPU by now."""
    daemon = make_daemon("--device", "host:64MiB", "--device", "host:32MiB").started()
    daemon.stop()
    daemon.arguments = UNNAMED
    assert (started(daemon)["note"], devices(daemon)) == ("", ["host0", "host1"])


def test_gpus_that_were_found_can_be_shared_by_mps(stub: Stub, make_daemon: Make) -> None:
    daemon = make_daemon("--sharing", "mps").started()
    added = [event["data"]["device"] for event in daemon.events() if event["kind"] == "DeviceAdded"]
    assert [(each["id"], each["sharing"]) for each in added] == [("cuda0", "mps")]


def test_a_store_must_fit_beside_devices_that_nobody_named(make_daemon: Make) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert make_daemon("--store", f"{memory}B").failed()["code"] == "store_too_large"


def test_a_driver_that_does_not_work_is_not_taken_for_no_gpu(stub: Stub, make_daemon: Make) -> None:
    stub.fail("cuInit=999@1")
    error = make_daemon(*UNNAMED).failed()
    assert error["code"] == "driver_unusable" and "CUDA error 999" in error["message"]
    assert "carpool up --device host" in error["hint"]


def test_gpus_without_the_package_that_reaches_them(
    stub: Stub, make_daemon: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user hears which package to install, whether the GPUs were named or found."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cuda'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    for arguments in (UNNAMED, ("--device", "cuda")):
        error = make_daemon(*arguments).failed()
        assert extra_hint("cuda") in error["message"] and "No module" not in json.dumps(error), error
