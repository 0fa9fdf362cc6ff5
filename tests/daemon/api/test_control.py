"""What an operator sets per device: in force at once, durable, refused with what to do about it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from carpool.daemon.config.options import default_store
from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import Daemon, Make, as_nobody, refusal

MIB = 1 << 20
TWO = ("--device", "host:64MiB", "--device", "host:32MiB")


def control(daemon: Daemon, device: int = 0) -> tuple[int, str, str]:
    info = daemon.get("/v1/devices")["devices"][device]
    return info["quantum_us"], info["quantum_from"], info["oversubscribe"]


def test_without_a_word_the_policy_says(daemon: Daemon) -> None:
    assert control(daemon) == (50_000, "policy", "auto")
    daemon.put("/v1/policy", {"name": "tq"})
    assert control(daemon) == (30_000_000, "policy", "auto")
    daemon.put("/v1/policy", {"settings": {"quantum_us": 7000}})
    assert control(daemon) == (7000, "settings", "auto")


def test_what_is_absent_is_left_alone(daemon: Daemon) -> None:
    answer = daemon.put("/v1/devices/host0", {"quantum_us": 0})
    assert (answer["quantum_us"], answer["quantum_from"], answer["oversubscribe"]) == (0, "device", "auto")
    assert daemon.put("/v1/devices/host0", {"oversubscribe": "off"})["quantum_us"] == 0
    assert daemon.put("/v1/devices/host0", {})["oversubscribe"] == "off"
    assert daemon.put("/v1/devices/host0", {"quantum_us": None})["quantum_from"] == "policy"
    told = [event["data"] for event in daemon.events() if event["kind"] == "DeviceChanged"]
    assert told == [
        {"device": "host0", "quantum_us": 0, "oversubscribe": "auto", "reserve": 0},
        {"device": "host0", "quantum_us": 0, "oversubscribe": "off", "reserve": 0},
        {"device": "host0", "quantum_us": None, "oversubscribe": "off", "reserve": 0},
    ]


@pytest.mark.parametrize(
    ("device", "body", "status", "code", "said"),
    [
        ("host7", {"quantum_us": 1}, 404, "unknown_device", "known: host0"),
        ("host0", {"quantum_us": -1}, 400, "bad_quantum", "null"),
        ("host0", {"quantum_us": 1 << 60}, 400, "bad_quantum", "null"),
        ("host0", {"oversubscribe": "maybe"}, 400, "bad_oversubscribe", "off, auto, on"),
        ("host0", {"reserve_bytes": -1}, 400, "bad_reserve", "between 0 and the size"),
        ("host0", {"reserve_bytes": 1 << 40}, 400, "bad_reserve", "between 0 and the size"),
        ("host0", {"drain_reason": "x" * 300}, 400, "bad_reason", ""),
        ("host7", {"drain": True}, 404, "unknown_device", "known: host0"),
        ("host0", {"oversubscribe": None}, 400, "bad_request", ""),
        ("host0", {"quantum_us": "10s"}, 400, "bad_request", ""),
        ("host0", {"quantum": 1}, 400, "bad_request", ""),
    ],
)
def test_bad_changes(daemon: Daemon, device: str, body: dict[str, Any], status: int, code: str, said: str) -> None:
    refused = refusal(daemon.put, f"/v1/devices/{device}", body)
    assert refused.answer == (status, code)
    assert said in refused.hint
    assert control(daemon) == (50_000, "policy", "auto")


def test_what_was_set_is_kept_by_the_next_daemon_and_for_a_device_that_comes_back(make_daemon: Make) -> None:
    daemon = make_daemon(*TWO).started()
    daemon.put("/v1/devices/host1", {"quantum_us": 10_000_000, "oversubscribe": "on"})
    daemon.restarted()
    assert (control(daemon), control(daemon, 1)) == ((50_000, "policy", "auto"), (10_000_000, "device", "on"))
    added = [event["data"]["device"] for event in daemon.events() if event["kind"] == "DeviceAdded"]
    assert [(d["id"], d["quantum_us"], d["oversubscribe"]) for d in added[-2:]] == [
        ("host0", None, "auto"),
        ("host1", 10_000_000, "on"),
    ]
    daemon.terminate()
    daemon.arguments = TWO[:2]
    daemon.started()
    assert control(daemon) == (50_000, "policy", "auto")
    assert "settings of a device host1, which there is not" in daemon.log()
    daemon.terminate()
    daemon.arguments = TWO
    daemon.started()
    assert control(daemon, 1) == (10_000_000, "device", "on")


@pytest.mark.parametrize("change", [{"quantum_us": 1}, {"drain": True}], ids=str)
def test_only_an_operator_may(daemon: Daemon, change: dict[str, Any]) -> None:
    said = as_nobody(daemon, f"vars(refusal(daemon.put, '/v1/devices/host0', {change}))")
    assert (said["answer"], said["hint"]) == ([403, "not_operator"], "ask an administrator of the daemon")


def store(daemon: Daemon) -> tuple[int, bool]:
    info = daemon.get("/v1/devices")["store"]
    assert (info["kept_bytes"], info["used_bytes"]) == (0, 0)
    return info["budget_bytes"], info["default"]


def budgets(daemon: Daemon) -> list[int | None]:
    """What the core was told, in order."""
    told = [event["data"]["settings"] for event in daemon.events() if event["kind"] == "SettingsChanged"]
    return [settings["host_store"] for settings in told]


def test_the_core_is_told_a_number_and_people_what_was_set(daemon: Daemon) -> None:
    usual, is_default = store(daemon)
    assert is_default and usual % MIB == 0
    assert daemon.get("/v1/policy")["settings"]["host_store"] is None
    daemon.put("/v1/policy", {"settings": {"host_store": 5 * MIB}})
    assert store(daemon) == (5 * MIB, False)
    daemon.put("/v1/policy", {"settings": {"host_store": None}})
    assert store(daemon) == (usual, True)
    assert budgets(daemon) == [usual, 5 * MIB, usual]


def test_store_on_the_command_line(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"name": "srtf"})
    daemon.terminate()
    daemon.arguments = (*daemon.arguments, "--store", "7MiB")
    daemon.started()
    assert store(daemon) == (7 * MIB, False)
    assert daemon.get("/v1/policy")["name"] == "srtf", "--store leaves the other settings alone"


def test_the_default_store_is_half_of_the_rest_in_whole_mib() -> None:
    assert default_store(0) == 0
    assert default_store(2 * MIB - 1) == 0
    assert default_store(9 * MIB) == 4 * MIB


# Devices that are drained, under a daemon and the one after it


def test_a_drained_device_keeps_its_jobs_and_gets_none(make_daemon: Make) -> None:
    daemon = make_daemon(*TWO).started()
    running = daemon.submit("sleep", "60", device="host0", until="ProcessStarted")
    text = f"drained by {user_name(os.getuid())}: new fan"
    changed = daemon.put("/v1/devices/host0", {"drain": True, "drain_reason": "new fan"})
    assert changed["drained"] == text and changed["jobs"] == [running]
    pinned = daemon.submit("true", device="host0")
    free = daemon.wait(daemon.submit("true"))
    assert (free["device"], free["outcome"]) == ("host1", "succeeded")
    daemon.restarted()
    assert [device["drained"] for device in daemon.get("/v1/devices")["devices"]] == [text, ""]
    assert daemon.show(running)["phase"] == "running"
    assert daemon.show(pinned)["reason"] == {"code": "drained", "text": f"host0 is {text}"}
    assert daemon.put("/v1/devices/host0", {"quantum_us": 5})["drained"] == text
    assert daemon.put("/v1/devices/host0", {"drain": False})["drained"] == ""
    assert daemon.wait(pinned)["outcome"] == "succeeded"


def test_a_requeued_job_moves_to_another_device(make_daemon: Make) -> None:
    daemon = make_daemon(*TWO).started()
    job = daemon.submit("sleep", "60", until="ProcessStarted")
    first = daemon.show(job)["device"]
    daemon.put(f"/v1/devices/{first}", {"drain": True})
    daemon.post(f"/v1/jobs/{job}/requeue")
    daemon.until_event(lambda event: event["kind"] == "ProcessStarted" and daemon.show(job)["attempt"] == 2)
    assert daemon.show(job)["device"] not in (None, first)
