"""What `carpool devices` and `carpool top` say about what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.cli.render.output import Output
from carpool.cli.render.telemetry import measured_lines, step_for, summary
from carpool.cli.render.top_frame import Snapshot, frame
from carpool.protocol.api import (
    DeviceInfo,
    LoadInfo,
    PointInfo,
    ProcessInfo,
    SpanInfo,
    TelemetryHistory,
    TelemetryInfo,
)
from tests.cli.conftest import Cli
from tests.cli.real import DEVICE, stopped_afterwards
from tests.cli.standin import HOST, StandIn, as_json, device, device_list

GPU: dict[str, Any] = {
    "level": "gpm",
    "age_us": 300_000,
    "total_bytes": 80 << 30,
    "used_bytes": 10 << 30,
    "foreign_bytes": 0,
    "processes": [],
    "busy_ppm": 900_000,
    "sm_active_ppm": 635_000,
    "sm_occupancy_ppm": 412_500,
    "dram_active_ppm": 220_000,
    "power_mw": 312_400,
    "power_limit_mw": 700_000,
    "temperature_c": 61,
    "clock_mhz": 1755,
    "clock_limit_mhz": 1980,
    "throttled": [],
    "mig": False,
    "mps": False,
}


def gpu(**changes: Any) -> DeviceInfo:
    return device([], name="cuda0", telemetry=TelemetryInfo(**{**GPU, **changes}))


def test_a_gpu_with_counters() -> None:
    (line,) = measured_lines(gpu())
    counters = "SM active 64 %, occupancy 41 %, DRAM 22 %"
    assert line == f"  cuda0 measured 0.3s ago: {counters}, 10 GiB in use, 312 of 700 W, 61 °C, 1755 of 1980 MHz"


def test_a_gpu_without_counters_says_why() -> None:
    absent = dict.fromkeys(("sm_active_ppm", "sm_occupancy_ppm", "dram_active_ppm"))
    info = gpu(level="basic", reason="no GPM here", missing=dict.fromkeys(absent, "no GPM here"), **absent)
    lines = list(measured_lines(info))
    assert lines[0].startswith("  cuda0 measured 0.3s ago (basic): GPU 90 % busy, 10 GiB in use")
    assert lines[1] == "  cuda0 not measured: SM active, SM occupancy, DRAM active (no GPM here)"


def test_a_gpu_that_says_hardly_anything() -> None:
    info = device([], name="cuda0", telemetry=TelemetryInfo(level="basic", reason="no GPM here", age_us=300_000))
    assert summary(info) == "cuda0 measured 0.3s ago (basic): no figures"


PROCESSES = [ProcessInfo(5, 1 << 30, None), ProcessInfo(6, 9 << 30, 3), ProcessInfo(7, 2 << 30, None)]


@pytest.mark.parametrize(
    ("measured", "lines"),
    [
        (
            {"power_mw": None, "missing": {"power_mw": "a", "temperature_c": "b", "mig": "c"}},
            ["not measured: power (a)", "not measured: temperature (b)"],
        ),
        (
            {"foreign_bytes": 3 << 30, "processes": PROCESSES, "throttled": ["power cap", "power brake"]},
            ["is slowed down by: power cap, power brake", "unmanaged memory: 3 GiB (process 7, 5)"],
        ),
        (
            {"mig": True, "mps": True, "energy_mj": 9_000_000_000},
            [
                "is an instance of a partitioned GPU (MIG)",
                "is used through an MPS server",
                "energy since the driver was loaded: 2.50 kWh",
            ],
        ),
    ],
    ids=["each reason once", "others, and what slows it down", "partitioned, by MPS, energy"],
)
def test_lines_beneath_the_measurements(measured: dict[str, Any], lines: list[str]) -> None:
    assert list(measured_lines(gpu(**measured)))[1:] == [f"  cuda0 {line}" for line in lines]


def test_jobs_that_should_use_an_mps_server_and_do_not() -> None:
    wanted = msgspec.structs.replace(gpu(processes=[ProcessInfo(5, 1 << 30, 3)]), sharing="mps")
    assert "  cuda0 is to be shared through MPS, but no process there uses an MPS server" in measured_lines(wanted)
    unused = msgspec.structs.replace(wanted, telemetry=TelemetryInfo(**GPU))
    assert not any("MPS" in line for line in measured_lines(unused))


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (TelemetryInfo(reason="the GPU is lost", age_us=12_000_000), "the GPU is lost (last measured 12s ago)"),
        (TelemetryInfo(reason="not measured yet"), "not measured yet"),
        (TelemetryInfo(), "the daemon does not say why"),
    ],
)
def test_a_device_that_is_not_measured(info: TelemetryInfo, text: str) -> None:
    assert list(measured_lines(device([], telemetry=info))) == [f"  host0 not measured: {text}"]


def test_top_has_one_line_for_it() -> None:
    lines = frame(Snapshot(10_000_000, "fair", [gpu(), device([])], [], []), Output(), None)
    assert summary(gpu()) in lines
    assert not any("slowed down" in line for line in lines)
    slow = frame(Snapshot(10_000_000, "fair", [gpu(throttled=["power cap"])], [], []), Output(), None)
    assert "cuda0 is slowed down by: power cap" in slow
    assert summary(device([], telemetry=HOST)) in lines


def test_a_real_daemon(carpool: Cli, home: Path) -> None:
    with stopped_afterwards(carpool, home):
        carpool.ok("up", "--device", DEVICE, "--telemetry-interval", "0.5s")
        (listed,) = json.loads(carpool.ok("devices", "--json"))["devices"]
        assert listed["telemetry"]["interval_us"] == 500_000
        shown = carpool.ok("devices")
        while "\n  host0 measured" not in shown:
            assert "host0 not measured: not measured yet" in shown
            shown = carpool.ok("devices")
        assert "0 B in use" in shown
        while "\nhost0 measured" not in carpool.ok("top", "--once"):  # a daemon that stands still has no fresh sample
            pass


def past(**changes: Any) -> TelemetryHistory:
    def span(mean: int, most: int) -> SpanInfo:
        return SpanInfo(0, mean, most, 60)

    busy = PointInfo(
        1_790_000_000_000_000, {"sm_active_ppm": span(500_000, 750_000), "used_bytes": span(1 << 30, 1 << 30)}
    )
    idle = PointInfo(1_790_000_060_000_000, {"used_bytes": span(0, 0)})
    values = {"device": "host0", "since_us": 0, "until_us": 1, "step_us": 60_000_000, "source": "minutes"}
    return TelemetryHistory(**values | {"points": [busy, idle]} | changes)


def test_what_a_device_did_is_a_table_with_bars(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/devices/host0/telemetry"] = as_json(msgspec.to_builtins(past()))
    _, _, idle, about = carpool.ok("devices", "host0", "--history", "1h").splitlines()
    assert idle.split()[1:] == ["-", "0", "B", "-"] and about.endswith("largest and mean SMACT")
    (request,) = standin.requests
    assert "step=120000000" in request.query and "since=" in request.query
    assert json.loads(carpool.ok("devices", "host0", "--history", "1h", "--json"))["points"][0]["quantities"]
    assert "step" not in standin.requests[-1].query  # scripts get what suits, or what they ask for


def test_a_device_that_did_nothing_that_is_known(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/devices/host0/telemetry"] = as_json(msgspec.to_builtins(past(points=[])))
    assert "no measurements of that time are kept" in carpool.ok("devices", "host0", "--history", "5m")


def test_one_device_of_several(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/devices"] = device_list(device([]), device([], name="host1"))
    shown = carpool.ok("devices", "host1")
    assert "host1" in shown and "host0" not in shown
    assert "known devices: host0, host1" in carpool.fails(4, "devices", "host7")
    assert "need a device" in carpool.fails(2, "devices", "--history", "1h")


@pytest.mark.parametrize(("span_s", "step_s"), [(30, 1), (600, 20), (601, 60), (3600, 120), (7 * 86_400, 43_200)])
def test_a_table_has_thirty_lines_at_most(span_s: int, step_s: int) -> None:
    assert step_for(span_s * 1_000_000) == step_s * 1_000_000


def test_energy_of_a_host_device_is_the_machines() -> None:
    info = TelemetryInfo(level="host", age_us=0, energy_mj=3_600_000_000)
    lines = list(measured_lines(device([], telemetry=info)))
    assert "  host0 energy of the machine's processors since the daemon's first measurement: 1.00 kWh" in lines


def test_a_stand_in_for_smact_is_named() -> None:
    load = LoadInfo(900_000, 900_000, degraded="utilization stands in for SMACT: no GPM here")
    assert "  cuda0 load for placement: utilization stands in for SMACT: no GPM here" in list(
        measured_lines(gpu(load=load))
    )
