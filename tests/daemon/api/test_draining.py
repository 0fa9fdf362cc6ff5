"""Devices that are drained, under a daemon and the one after it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import Daemon, Make


@pytest.fixture
def daemon(make_daemon: Make) -> Daemon:
    return make_daemon("--device", "host:64MiB", "--device", "host:64MiB").started()


def devices(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {device["id"]: device for device in daemon.get("/v1/devices")["devices"]}


def test_a_drained_device_keeps_its_jobs_and_gets_none(daemon: Daemon) -> None:
    running = daemon.submit("sleep", "60", device="host0", until="ProcessStarted")
    text = f"drained by {user_name(os.getuid())}: new fan"
    changed = daemon.put("/v1/devices/host0", {"drain": True, "drain_reason": "new fan"})
    assert changed["drained"] == text and changed["jobs"] == [running]
    pinned = daemon.submit("true", device="host0")
    free = daemon.wait(daemon.submit("true"))
    assert (free["device"], free["outcome"]) == ("host1", "succeeded")
    daemon.restarted()
    assert {name: device["drained"] for name, device in devices(daemon).items()} == {"host0": text, "host1": ""}
    assert daemon.show(running)["phase"] == "running"
    assert daemon.show(pinned)["reason"] == {"code": "drained", "text": f"host0 is {text}"}
    assert daemon.put("/v1/devices/host0", {"quantum_us": 5})["drained"] == text
    assert daemon.put("/v1/devices/host0", {"drain": False})["drained"] == ""
    assert daemon.wait(pinned)["outcome"] == "succeeded"


def test_a_requeued_job_moves_to_another_device(daemon: Daemon) -> None:
    job = daemon.submit("sleep", "60", until="ProcessStarted")
    first = daemon.show(job)["device"]
    daemon.put(f"/v1/devices/{first}", {"drain": True})
    daemon.post(f"/v1/jobs/{job}/requeue")
    daemon.until_event(lambda event: event["kind"] == "ProcessStarted" and daemon.show(job)["attempt"] == 2)
    assert daemon.show(job)["device"] not in (None, first)
