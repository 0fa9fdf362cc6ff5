"""carpool ctl: what it asks of the daemon, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Cli
from standin import Answer, Request, StandIn, as_json, device, device_list

from carpool.protocol.units import format_time_us


@pytest.fixture
def standin(standin: StandIn) -> Iterator[StandIn]:
    def changed(request: Request) -> Answer:
        name = request.path.rsplit("/", 1)[1]
        facts = {key: value for key, value in request.body.items() if value is not None}
        source = {"quantum_from": "device"} if "quantum_us" in facts else {}
        return Answer(msgspec.json.encode(device([], name=name, **facts, **source)))

    standin.reactions |= {
        "GET /v1/devices": device_list(device([]), device([], name="host1", quantum_us=0, quantum_from="settings")),
        "PUT /v1/devices/host0": changed,
        "PUT /v1/devices/host1": changed,
        "PUT /v1/policy": as_json({"name": "fair", "available": ["fair"], "settings": {}}),
    }
    return standin


def changes(standin: StandIn) -> list[tuple[str, Any]]:
    return [(request.path, request.body) for request in standin.requests if request.method == "PUT"]


def test_without_a_value_the_present_one_is_shown(standin: StandIn, carpool: Cli) -> None:
    assert carpool.ok("ctl", "quantum").splitlines() == [
        "host0: quantum 50 ms (from the policy)",
        "host1: quantum 0 s (from the settings)",
    ]
    assert carpool.ok("ctl", "oversubscribe", "--device", "host1") == "host1: oversubscribe auto\n"
    assert carpool.ok("ctl", "store") == "host store: 8 GiB (default), 1 GiB allocated, 512 MiB of it in use\n"
    assert changes(standin) == []


def test_without_a_command_all_is_shown(standin: StandIn, carpool: Cli) -> None:
    assert carpool.ok("ctl").splitlines() == [
        "host0: quantum 50 ms (from the policy), oversubscribe auto",
        "host1: quantum 0 s (from the settings), oversubscribe auto",
        "host store: 8 GiB (default), 1 GiB allocated, 512 MiB of it in use",
    ]
    assert set(json.loads(carpool.ok("ctl", "--json"))) == {"devices", "store"}


def test_common_options_may_come_before_the_command(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    assert json.loads(carpool.ok("ctl", "--json", "store"))["store"]["budget_bytes"] == 8 << 30
    for arguments in (["ctl", "--home", str(tmp_path), "store"], ["ctl", "store", "--home", str(tmp_path)]):
        assert str(tmp_path) in carpool(*arguments).stderr


def test_all_devices_or_those_that_are_named(standin: StandIn, carpool: Cli) -> None:
    lines = carpool.ok("ctl", "quantum", "10s").splitlines()
    assert lines == [f"{name}: quantum 10 s (set for this device)" for name in ("host0", "host1")]
    carpool.ok("ctl", "oversubscribe", "off", "--device", "host1")
    assert changes(standin) == [
        ("/v1/devices/host0", {"quantum_us": 10_000_000}),
        ("/v1/devices/host1", {"quantum_us": 10_000_000}),
        ("/v1/devices/host1", {"oversubscribe": "off"}),
    ]


@pytest.mark.parametrize(("text", "value"), [("0s", 0), ("50ms", 50_000), ("1.5s", 1_500_000), ("default", None)])
def test_quanta(standin: StandIn, carpool: Cli, text: str, value: int | None) -> None:
    carpool.ok("ctl", "quantum", text, "--device", "host0")
    assert changes(standin) == [("/v1/devices/host0", {"quantum_us": value})]


@pytest.mark.parametrize(("text", "value"), [("2GiB", 2 << 30), ("0", 0), ("default", None)])
def test_the_budget_of_the_store_is_a_setting(standin: StandIn, carpool: Cli, text: str, value: int | None) -> None:
    carpool.ok("ctl", "store", text)
    assert changes(standin) == [("/v1/policy", {"name": None, "settings": {"host_store": value}, "placement": None})]


def test_an_unknown_device_changes_nothing(standin: StandIn, carpool: Cli) -> None:
    result = carpool("ctl", "quantum", "1s", "--device", "host0", "--device", "host7")
    assert result.returncode == 4
    assert "there is no device 'host7'\n  known devices: host0, host1" in result.stderr
    assert changes(standin) == []


def test_as_json(standin: StandIn, carpool: Cli) -> None:
    listed = json.loads(carpool.ok("ctl", "quantum", "10s", "--json", "--device", "host1"))["devices"]
    assert [(info["id"], info["quantum_us"], info["quantum_from"]) for info in listed] == [
        ("host1", 10_000_000, "device")
    ]
    assert json.loads(carpool.ok("ctl", "store", "--json"))["store"]["default"] is True


@pytest.mark.parametrize(
    ("us", "text"), [(0, "0 s"), (500, "500 us"), (50_000, "50 ms"), (1_500_000, "1.5 s"), (120_000_000, "120 s")]
)
def test_times_for_people(us: int, text: str) -> None:
    assert format_time_us(us) == text
