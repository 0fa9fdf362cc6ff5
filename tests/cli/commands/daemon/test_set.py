"""carpool set: what it asks of the daemon, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import msgspec
import pytest

from carpool.cli.commands.daemon.set import USUAL, SettingList, _shown
from carpool.core.model import NUMBER_SETTINGS, Settings
from carpool.protocol.api import StoreInfo
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, Request, StandIn, as_json, device, device_list

SETTINGS = {"quantum_us": None, "host_store": None, "grace_us": 20_000, "max_jobs": 4, "risk_active_ppm": 800_000}
SETTINGS |= {"max_time_us": 3_600_000_000, "use_half_life_us": 86_400_000_000, "kill_after_us": 3_601_000_000}
START = [
    {"name": "core_dumps", "value": "false", "source": "limits.toml"},
    {"name": "log-format", "value": "text", "source": "default"},
]
STORE = StoreInfo(0, True, 0, 0)
DEVICES = [
    "host0: quantum 50ms (from the policy), oversubscribe auto, reserve default",
    "host1: quantum 0 (from the settings), oversubscribe auto, reserve default",
]


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
        "GET /v1/policy": as_json({"name": "fair", "available": ["fair"], "settings": SETTINGS, "start": START}),
        "PUT /v1/policy": as_json({"name": "fair", "available": ["fair"], "settings": SETTINGS}),
    }
    return standin


def changes(standin: StandIn) -> list[tuple[str, Any]]:
    return [(request.path, request.body) for request in standin.requests if request.method == "PUT"]


def of_all(settings: dict[str, int | None]) -> tuple[str, Any]:
    return ("/v1/policy", {"name": None, "settings": settings, "placement": None})


def test_without_a_value_what_matters_is_shown_and_the_rest_on_demand(standin: StandIn, carpool: Cli) -> None:
    shown = ["quantum     default", "host_store  default", "max_jobs    4", "max_time    1h00m", "kill_after  3601s"]
    assert carpool.ok("set").splitlines()[:6] == [*shown, "and 3 settings more: carpool set --all"]
    from_files = ["core_dumps     false (limits.toml)", "log-format     text"]
    assert carpool.ok("set", "--all").splitlines()[len(SETTINGS) : -1] == [*from_files, *DEVICES]
    found = json.loads(carpool.ok("set", "--json"))
    assert found["settings"] == SETTINGS and found["store"]["default"] is True
    assert [info["id"] for info in found["devices"]] == ["host0", "host1"]
    assert carpool("set", "--all", "max_jobs=1").returncode == 2
    assert carpool.ok("set", "--device", "host1").splitlines() == DEVICES[1:]
    assert changes(standin) == []


def test_several_settings_are_changed_at_once(standin: StandIn, carpool: Cli) -> None:
    lines = carpool.ok("set", "grace_us=1.5 s", "max_jobs=default", "risk_active=80%").splitlines()
    assert [line.split()[0] for line in lines] == ["grace", "max_jobs", "risk_active"]
    assert changes(standin) == [of_all({"grace_us": 1_500_000, "max_jobs": None, "risk_active_ppm": 800_000})]


def test_eight_settings_are_shown_by_a_new_daemon_and_what_was_changed() -> None:
    found = SettingList(
        {each.name: each.default for each in fields(Settings) if each.name in NUMBER_SETTINGS}, [], STORE
    )
    assert len(_shown(found, {}, ())) == len(USUAL) == 8
    changed = SettingList({**found.settings, "warm_limit": 2, "group.vision": 3, "mine": 1}, [], STORE)
    assert {*_shown(changed, {}, ())} == {*USUAL, "warm_limit", "group.vision", "mine"}


@pytest.mark.parametrize(("text", "value"), [("0s", 0), ("50ms", 50_000), ("2", 2_000_000), ("default", None)])
def test_the_quantum_is_that_of_all_or_of_one_device(
    standin: StandIn, carpool: Cli, text: str, value: int | None
) -> None:
    carpool.ok("set", f"quantum_us={text}")
    carpool.ok("set", f"quantum={text}", "--device", "host1")
    assert changes(standin) == [of_all({"quantum_us": value}), ("/v1/devices/host1", {"quantum_us": value})]


def test_oversubscription_is_that_of_devices(standin: StandIn, carpool: Cli) -> None:
    carpool.ok("set", "oversubscribe=off", "--device", "host1")
    carpool.ok("set", "oversubscribe=on")
    assert changes(standin) == [
        ("/v1/devices/host1", {"oversubscribe": "off"}),
        ("/v1/devices/host0", {"oversubscribe": "on"}),
        ("/v1/devices/host1", {"oversubscribe": "on"}),
    ]


@pytest.mark.parametrize(("text", "value"), [("2GiB", 2 << 30), ("0", 0), ("default", None)])
def test_a_reserve_is_that_of_devices(standin: StandIn, carpool: Cli, text: str, value: int | None) -> None:
    shown = carpool.ok("set", f"reserve={text}", "--device", "host1").splitlines()
    assert shown == DEVICES[1:], "as the daemon says"
    assert changes(standin) == [("/v1/devices/host1", {"reserve_bytes": value})]


@pytest.mark.parametrize(("text", "value"), [("2GiB", 2 << 30), ("0", 0), ("default", None)])
def test_the_budget_of_the_store_is_a_setting(standin: StandIn, carpool: Cli, text: str, value: int | None) -> None:
    shown = carpool.ok("set", f"host_store={text}").splitlines()
    assert shown[-1] == "host store: 8 GiB (default), 1 GiB allocated, 512 MiB of it in use"
    assert changes(standin) == [of_all({"host_store": value})]


def test_an_unknown_device_changes_nothing(standin: StandIn, carpool: Cli) -> None:
    assert "there is no device 'hots1'\n  did you mean 'host1'? known devices: host0, host1" in carpool.fails(
        4, "set", "quantum_us=1s", "--device", "host0", "--device", "hots1"
    )
    assert changes(standin) == []


def test_what_no_device_has_of_its_own_changes_nothing(standin: StandIn, carpool: Cli) -> None:
    result = carpool("set", "quantum_us=1s", "max_jobs=4", "--device", "host0")
    assert (result.returncode, changes(standin)) == (2, [])
    assert "max_jobs: not a setting of a device" in result.stderr


def test_what_is_shown_is_accepted(standin: StandIn, carpool: Cli) -> None:
    lines = [line.partition(" (")[0] for line in carpool.ok("set", "--all").splitlines()[: len(SETTINGS)]]
    shown = [line.split(maxsplit=1) for line in lines]
    carpool.ok("set", *(f"{name}={value}" for name, value in shown))
    assert changes(standin) == [of_all(SETTINGS)]
