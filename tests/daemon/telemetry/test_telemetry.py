"""Telemetry in the daemon: GPUs on the stub NVML with a stand-in device, host devices in a real daemon."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from carpool.core.events import DeviceLoad
from carpool.core.model import Load
from carpool.daemon.api.devices import telemetry_info
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.clock import monotonic_us
from carpool.daemon.telemetry.reader_thread import MISTAKE, ReaderThread
from carpool.daemon.telemetry.service import Allocating, DeviceUses, Listeners, TelemetryService, processes_of
from carpool.devices.base import DeviceBackend
from carpool.protocol.api import ProcessInfo, SubmitRequest, TelemetryInfo
from carpool.telemetry.readers import Found, Roots, Target
from carpool.telemetry.samples import CARPOOL, QUANTITIES, CapabilityLevel, Sample
from tests.daemon.daemon_harness import Make
from tests.daemon.forks import SOURCE
from tests.emulator.nvml.values import FULL, GIB, StubNvml, stubbed

PATIENCE_S = 20.0
INTERVAL_US = 2000


@dataclass
class StandInGpu:
    """As much of a CUDA device as the telemetry needs."""

    id: str = "cuda0"
    kind: str = "cuda"
    capacity: int = 64 * GIB  # of 80, of which the driver keeps one
    uuid: str = "GPU-1"
    granted: int = 0

    def used_bytes(self) -> int:
        return self.granted


@pytest.fixture
def stub(nvml_library: Path, tmp_path: Path) -> Iterator[StubNvml]:
    with stubbed(nvml_library, tmp_path / "values") as stub:
        stub.gpu("GPU-1", {"gpm.supported": None, "clock_ms": None})
        yield stub
        for thread in threading.enumerate():
            if thread.name.startswith("telemetry-"):
                thread.join(PATIENCE_S)
                assert not thread.is_alive()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first answer that takes longer than a few of the short intervals here is not told as silence."""
    monkeypatch.setattr("carpool.daemon.telemetry.service.STALE_INTERVALS", 1_000_000)


class Watched(TelemetryService):
    """Tests wait for its rounds."""

    round: asyncio.Event

    def _arrived(self, found: Found) -> None:
        super()._arrived(found)
        self.round.set()

    async def until(self, condition: Callable[[TelemetryInfo], bool]) -> TelemetryInfo:
        """What the API says as soon as it is so, after at least one more round."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.round.clear()
                await self.round.wait()
                if condition(info := telemetry_info(self, "cuda0")):
                    return info

    async def until_level(self, level: CapabilityLevel) -> TelemetryInfo:
        return await self.until(lambda info: info.level == level)

    async def until_foreign(self, size: int) -> TelemetryInfo:
        return await self.until(lambda info: info.foreign_bytes == size)


@asynccontextmanager
async def running(gpu: StandInGpu | None = None, **options: Any) -> AsyncIterator[Watched]:
    device = cast(DeviceBackend, gpu or StandInGpu())
    roots = options.pop("roots", {os.getpid(): CARPOOL})
    uses = DeviceUses(
        lambda: roots, **{name: options.pop(name) for name in ("present", "returning") if name in options}
    )
    interval_us = options.pop("interval_us", INTERVAL_US)
    telemetry = Watched({"cuda0": device}, uses, Listeners(**options), interval_us)
    telemetry.round = asyncio.Event()
    task = asyncio.create_task(telemetry.run())
    try:
        yield telemetry
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_gpus_are_measured_again_and_again(stub: StubNvml) -> None:
    async with running() as telemetry:
        await telemetry.until_level(CapabilityLevel.BASIC)
        stub.gpu("GPU-1", {"power.usage": 400_000})
        info = await telemetry.until(lambda info: info.power_mw == 400_000)
        assert info.level == "basic" and "GPM" in info.reason
        assert info.age_us is not None and info.taken_us is not None
        assert info.mean.samples >= 2 and info.mean.busy_ppm == 370_000
        assert 312_400 <= (info.mean.power_mw or 0) < 400_000


async def test_gpm_counters_reach_the_api(stub: StubNvml) -> None:
    stub.gpu("GPU-1", {"gpm.supported": 1})
    async with running(interval_us=120_000) as telemetry:  # slow enough for GPM
        info = await telemetry.until(lambda info: info.sm_active_ppm == 635_000)
        assert (info.level, info.reason, info.dram_active_ppm) == ("gpm", "", 220_000)
        assert info.missing == {} and info.throttled == []


async def test_what_takes_from_the_capacity_is_told_when_it_changes(stub: StubNvml) -> None:
    told = list[tuple[str, int, int, int]]()
    device = StandInGpu()
    async with running(device, foreign=lambda *what: told.append(what)) as telemetry:
        await telemetry.until_foreign(10 * GIB)
        assert told == [("cuda0", 0, 0, 5 * GIB)], "there is more beside the capacity"
        for used in (20, 30, 30):
            stub.gpu("GPU-1", {"memory.used": used * GIB})
            await telemetry.until_foreign(used * GIB)
        assert told[1:] == [("cuda0", 5 * GIB, 0, 0), ("cuda0", 15 * GIB, 0, 0)], "nobody says whose"
        device.granted = 24 * GIB
        await telemetry.until_foreign(6 * GIB)
        assert told[-1] == ("cuda0", 0, 0, 9 * GIB), "memory of jobs is not foreign"
        stub.gpu("GPU-1", {"memory.used": 40 * GIB})
        await telemetry.until_foreign(16 * GIB)
        stub.gpu("GPU-1", {"memory.total": None})
        await telemetry.until(lambda info: info.foreign_bytes is None)
        assert told[-1] == ("cuda0", GIB, 0, 0), "not known is not none"


async def test_memory_of_other_programs_is_told_apart(stub: StubNvml) -> None:
    told = list[tuple[str, int, int, int]]()
    stub.gpu("GPU-1", {"memory.used": 25 * GIB, "process.compute": f"{os.getpid()}:{GIB},1:{6 * GIB}"})
    async with running(foreign=lambda *what: told.append(what)) as telemetry:
        await telemetry.until_foreign(25 * GIB)
        assert told == [("cuda0", 10 * GIB, 6 * GIB, 0)]
        stub.gpu("GPU-1", {"process.compute": f"{os.getpid()}:{GIB},1:{20 * GIB}"})
        await telemetry.until(lambda info: len(told) > 1)
        assert told[-1] == ("cuda0", 10 * GIB, 10 * GIB, 0), "a part of theirs lies beside the capacity"


async def test_the_first_look_tells_what_is_certainly_of_others(stub: StubNvml) -> None:
    """80 GiB, of which Carpool has 70: what others have may lie in the rest, and what no process names may be jobs'."""
    told = list[tuple[str, int, int, int]]()
    stub.gpu("GPU-1", {"memory.used": 60 * GIB, "process.compute": f"{os.getpid()}:{GIB},1:{40 * GIB}"})
    listeners = Listeners(lambda *what: told.append(what))
    gpus = {"cuda0": cast(DeviceBackend, StandInGpu())}
    watched = Watched(gpus, DeviceUses(lambda: {os.getpid(): CARPOOL}), listeners)
    watched.round = asyncio.Event()
    await watched.look_first(PATIENCE_S)
    ((worker, _),) = watched._workers
    worker.stop()
    beside = 80 * GIB - StandInGpu().capacity
    assert told == [("cuda0", 40 * GIB - beside, 40 * GIB - beside, 0)]


async def test_memory_of_jobs_that_allocate_for_themselves_is_not_foreign(stub: StubNvml) -> None:
    """While one comes or leaves, or nobody says how much it holds, what was known goes on."""
    told: list[int] = []
    here: Allocating = (1, frozenset({7}))

    def present(_device: str) -> Allocating:
        return here

    pid = os.getppid()
    roots = {os.getpid(): CARPOOL, pid: 7}
    stub.gpu("GPU-1", {"memory.used": 40 * GIB, "process.compute": f"{pid}:{20 * GIB}"})
    async with running(foreign=lambda _, size, *rest: told.append(size), present=present, roots=roots) as telemetry:
        await telemetry.until_foreign(40 * GIB)
        assert told == [5 * GIB], "20 GiB are the job's, 15 GiB lie beside the capacity"
        here = None
        stub.gpu("GPU-1", {"memory.used": 50 * GIB})
        await telemetry.until_foreign(50 * GIB)
        here = (2, frozenset({7}))
        stub.gpu("GPU-1", {"memory.used": 51 * GIB, "process.compute": f"{pid}:?"})
        await telemetry.until_foreign(51 * GIB)
        assert told == [5 * GIB]
        here = (3, frozenset())
        stub.gpu("GPU-1", {"memory.used": 30 * GIB})
        await telemetry.until_foreign(30 * GIB)
        await telemetry.until(lambda info: told[-1] == 15 * GIB)


async def test_a_sample_taken_while_memory_was_made_tells_nothing(stub: StubNvml, fifo: Path) -> None:
    """What was made after the daemon had asked would seem to be somebody else's."""
    told: list[int] = []
    device = StandInGpu()
    async with running(device, foreign=lambda _, size, *rest: told.append(size)) as telemetry:
        await telemetry.until_level(CapabilityLevel.BASIC)
        stub.everywhere({"wait.nvmlDeviceGetMemoryInfo_v2": fifo})
        end = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
        device.granted = 40 * GIB
        stub.gpu("GPU-1", {"memory.used": 50 * GIB})
        stub.everywhere({"wait.nvmlDeviceGetMemoryInfo_v2": None})
        os.close(end)
        await telemetry.until_foreign(10 * GIB)
        assert told == [0], "from before"


async def test_memory_that_jobs_still_have_to_unmap_is_not_of_others(stub: StubNvml) -> None:
    """Given back, it stays in use until the process that had it has unmapped it, whose answer may take long."""
    told: list[int] = []
    device, answered, again = StandInGpu(granted=40 * GIB), threading.Event(), threading.Event()
    stub.gpu("GPU-1", {"memory.used": 50 * GIB})

    def heard(_device: str, _sample: Sample) -> None:
        if again.is_set() and telemetry._asked["cuda0"] == 0:
            stub.gpu("GPU-1", {"memory.used": 10 * GIB})

    listeners: dict[str, Any] = {"foreign": lambda _, size, *rest: told.append(size), "samples": (heard,)}
    async with running(device, returning=lambda _: not answered.is_set(), **listeners) as telemetry:
        device.granted = 0
        for _ in range(3):
            await telemetry.until_foreign(50 * GIB)
        assert told == []
        device.granted = 40 * GIB
        answered.set()
        await telemetry.until_foreign(10 * GIB)
        await telemetry.until(lambda info: told == [0])
        again.set()
        device.granted = 0
        await telemetry.until(lambda info: info.used_bytes == 10 * GIB)
        await telemetry.until_foreign(10 * GIB)
    assert told == [0], "the first sample after that tells nothing"


async def test_processes_are_shown_with_their_jobs(stub: StubNvml) -> None:
    stub.gpu("GPU-1", {"process.compute": f"{os.getpid()}:100,1:700"})
    async with running() as telemetry:
        info = await telemetry.until_level(CapabilityLevel.BASIC)
        assert info.processes == [ProcessInfo(1, 700, None), ProcessInfo(os.getpid(), 100, 0)]


async def test_failing_and_coming_back(stub: StubNvml, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="carpool.daemon.telemetry.service")
    async with running() as telemetry:
        await telemetry.until_level(CapabilityLevel.BASIC)
        stub.everywhere({"fail.nvmlDeviceGetMemoryInfo_v2": 1, "fail.nvmlInitWithFlags": 9})
        info = await telemetry.until(lambda info: "not loaded" in info.reason)
        assert (info.level, info.used_bytes, info.missing) == ("none", None, {}) and info.age_us is not None
        await telemetry.until_level(CapabilityLevel.NONE)
        stub.everywhere({"fail.nvmlDeviceGetMemoryInfo_v2": None, "fail.nvmlInitWithFlags": None})
        await telemetry.until_level(CapabilityLevel.BASIC)
    texts = [record.getMessage() for record in caplog.records]
    assert texts.count("cuda0 cannot be measured: NVIDIA's kernel module is not loaded") == 1  # not once a second
    assert texts[-1] == "cuda0 is measured again"


class Told(list[DeviceLoad]):
    """What the core has heard."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def hear(self, load: DeviceLoad) -> None:
        self.append(load)
        self._news.set()

    async def until(self, condition: Callable[[DeviceLoad], bool]) -> None:
        """The latest is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not self or not condition(self[-1]):
                self._news.clear()
                await self._news.wait()


async def test_the_core_hears_of_load_that_fails_and_comes_back(stub: StubNvml) -> None:
    told = Told()
    measured = DeviceLoad("cuda0", Load(370_000, 370_000))
    async with running(load=told.hear) as telemetry:
        await told.until(lambda load: load == measured)
        info = await telemetry.until(lambda info: info.load is not None)
        assert info.load is not None and "utilization stands in for SMACT" in info.load.degraded
        stub.everywhere({"fail.nvmlDeviceGetMemoryInfo_v2": 15})
        await told.until(lambda load: "fallen off the bus" in load.why)
        assert told[-1].load is None
        stub.everywhere({"fail.nvmlDeviceGetMemoryInfo_v2": None})
        await told.until(lambda load: load == measured)


async def test_a_call_that_hangs_blocks_nothing_and_the_core_hears_of_it(
    stub: StubNvml, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the thread that measures hangs."""
    told = Told()
    async with running(load=told.hear) as telemetry:
        await telemetry.until_level(CapabilityLevel.BASIC)
        stub.everywhere({"wait.nvmlDeviceGetPowerUsage": fifo})
        end = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)  # until the stub is there; the loop goes on
        await told.until(lambda load: load.load is None)
        assert told[-1] == DeviceLoad("cuda0", None, "no answer for more than 0.01 s")
        stub.everywhere({"wait.nvmlDeviceGetPowerUsage": None})
        with monkeypatch.context() as later:
            latest = telemetry.recent("cuda0")[-1].taken_us
            later.setattr("carpool.daemon.telemetry.service.monotonic_us", lambda: latest + 7_000_000)
            assert telemetry.state("cuda0").reason == "no answer for 7 s"
        os.close(end)
        await told.until(lambda load: load.load is not None)
        await telemetry.until_level(CapabilityLevel.BASIC)
    assert [event.load is None for event in told[-2:]] == [True, False]


def test_the_core_hears_of_a_device_that_has_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[DeviceLoad] = []
    telemetry = TelemetryService(
        {"cuda0": cast(DeviceBackend, StandInGpu())}, DeviceUses(dict), Listeners(load=told.append)
    )
    monkeypatch.setattr("carpool.daemon.telemetry.service.monotonic_us", lambda: monotonic_us() + 7_000_000)
    telemetry._notice_silence()
    assert told == [DeviceLoad("cuda0", None, "no answer for more than 5 s")]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ({"fail.nvmlDeviceGetHandleByUUID": 6}, "NVML does not find the GPU"),
        ({"fail.nvmlInitWithFlags": 12}, None),
        ({"fail.nvmlInitWithFlags": 9}, None),
    ],
    ids=["not found", "no library", "no module"],
)
async def test_a_device_that_fails_is_told_apart_from_one_without_telemetry(
    stub: StubNvml, fails: dict[str, object], why: str | None
) -> None:
    told = Told()
    stub.everywhere(fails)
    async with running(load=told.hear) as telemetry:
        await telemetry.until_level(CapabilityLevel.NONE)
        assert telemetry.state("cuda0").reason != ""
    assert [event.why for event in told][:1] == [] if why is None else why in told[0].why


@pytest.mark.usefixtures("patient")
async def test_a_driver_that_measures_nothing_closes_nothing(stub: StubNvml) -> None:
    told = Told()
    stub.gpu("GPU-1", dict.fromkeys(FULL) | {"fail.nvmlDeviceGetComputeRunningProcesses_v3": 3})
    stub.gpu("GPU-1", {"fail.nvmlDeviceGetComputeRunningProcesses_v2": 3})
    async with running(load=told.hear) as telemetry:
        info = await telemetry.until(lambda info: "Not Supported" in info.reason)
        assert info.level == "none"
    assert told == []


HANGING = """
import asyncio, os, sys
from types import SimpleNamespace
from carpool.daemon.telemetry.service import DeviceUses, Listeners, TelemetryService

async def main():
    device = SimpleNamespace(id="cuda0", kind="cuda", capacity=1, uuid="GPU-1", used_bytes=lambda: 0)
    task = asyncio.create_task(TelemetryService({"cuda0": device}, DeviceUses(dict), Listeners()).run())
    await asyncio.to_thread(sys.stdin.readline)
    task.cancel()

asyncio.run(main())
print("over")
"""


def test_a_call_that_hangs_does_not_keep_the_daemon_from_ending(stub: StubNvml, fifo: Path) -> None:
    """In a process of its own, which also finds the library by itself."""
    stub.everywhere({"wait.nvmlDeviceGetPowerUsage": fifo})
    paths = {"LD_LIBRARY_PATH": str(stub.library.parent), "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", HANGING]
    with subprocess.Popen(command, env=os.environ | paths, stdin=-1, stdout=-1, text=True) as process:
        end = os.open(fifo, os.O_WRONLY)
        try:
            assert process.communicate("\n", timeout=PATIENCE_S)[0] == "over\n"
            assert process.returncode == 0
        finally:
            process.kill()
            os.close(end)


class Broken:
    """A reader with a mistake in it."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def read(self, _targets: object, _roots: Roots) -> Found:
        raise ZeroDivisionError

    def close(self) -> None:
        self.closed.set()


async def test_a_mistake_is_logged_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    reader = Broken()
    results: asyncio.Queue[Found] = asyncio.Queue()
    worker = ReaderThread("telemetry-test", lambda: reader, results.put_nowait)
    for _ in range(2):
        worker.ask([Target("cuda0", 1)], {})
        found = await asyncio.wait_for(results.get(), PATIENCE_S)
        assert str(found["cuda0"]) == MISTAKE
    assert "ZeroDivisionError" in caplog.text
    worker.ask([Target("cuda0", 1)], {})
    worker.stop()
    assert await asyncio.to_thread(reader.closed.wait, PATIENCE_S)
    await asyncio.sleep(0)
    assert results.empty()  # after the end nobody is told anything


def test_processes_of_jobs() -> None:
    jobs = JobTable()
    for number, pid in ((1, 100), (2, None), (3, 300)):
        jobs.live[number] = JobRecord(number, 0, 0, SubmitRequest(argv=["true"], cwd="/", env={}), None, 0, pid=pid)
    shims = {1: 99, 2: 199, 3: None}
    assert processes_of(jobs, shims.__getitem__) == {os.getpid(): CARPOOL, 99: 1, 100: 1, 300: 3}


def test_the_api_has_every_quantity_of_a_sample() -> None:
    assert set(QUANTITIES) <= set(TelemetryInfo.__struct_fields__)
    assert {"level", "reason", "taken_us", "missing"} <= set(Sample.__dataclass_fields__)


def test_host_devices_of_a_daemon(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--device", "host:32MiB").started()
    listed = daemon.get("/v1/devices")["devices"]
    while any(device["telemetry"]["busy_ppm"] is None for device in listed):  # the second look is a second later
        listed = daemon.get("/v1/devices")["devices"]
    for device in listed:
        info = msgspec.convert(device["telemetry"], TelemetryInfo)
        assert (info.level, info.total_bytes, info.used_bytes) == ("host", device["capacity_bytes"], 0)
        assert 0 < (info.free_bytes or 0) <= device["capacity_bytes"]
        assert 0 <= (info.busy_ppm or 0) <= 1_000_000 and info.age_us is not None and info.taken_us is not None
        assert info.power_mw is None and info.missing["power_mw"]
        assert set(info.missing) == {name for name in QUANTITIES if getattr(info, name) is None}
    schemas = daemon.get("/openapi.json")["components"]["schemas"]
    assert set(listed[0]["telemetry"]) == set(schemas["TelemetryInfo"]["properties"])


def test_what_a_host_device_does_reaches_the_core(make_daemon: Make) -> None:
    """A job that has the turn and computes; and a device beside it where nothing happens."""
    daemon = make_daemon("--device", "host:64MiB", "--device", "host:64MiB", "--telemetry-interval", "100ms").started()
    job = daemon.fake("attach", "iterate:1000000000", device="host0")

    def loaded(event: dict[str, Any]) -> bool:
        load = event["kind"] == "DeviceLoad" and event["data"]["load"]
        here = bool(load) and event["data"]["device"] == "host0"
        return here and load["risk_occupancy_ppm"] > 0 and load["risk_active_ppm"] > 0  # its imports come before

    event = daemon.until_event(loaded)
    load = event["data"]["load"]
    assert load["active_ppm"] % 10_000 == 0 and load["risk_dram_ppm"] is None
    listed = daemon.get("/v1/devices")["devices"]
    while any(device["telemetry"]["processes"] is None for device in listed):  # measured too long ago
        listed = daemon.get("/v1/devices")["devices"]
    first, second = listed
    assert first["telemetry"]["interval_us"] == 100_000
    assert {process["job"] for process in first["telemetry"]["processes"]} == {job}
    assert sum(process["used_bytes"] for process in first["telemetry"]["processes"]) > 1 << 20
    assert second["telemetry"]["processes"] == []
    told = [e["data"] for e in daemon.events() if e["kind"] == "DeviceLoad" and e["data"]["device"] == "host1"]
    zero = {"active_ppm": 0, "risk_active_ppm": 0, "risk_occupancy_ppm": 0, "risk_dram_ppm": None}
    # On a busy machine it may not be known for a while.
    known = [data["load"] for data in told if data["load"] is not None]
    assert known and all(load == zero for load in known)
    assert all(before != after for before, after in pairwise(told)), "told once"
