"""What measuring eight devices once a second costs: CPU time of the process that measures, as a share of one core.

The whole of it: asking, the thread, what placement is told, history; without the journal's thread.  Jobs are training
processes that load the machine, each with a seat that is written here.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pynvml

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import argv, environment
from carpool.core.model import MIB, JobPhase
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.usage import DeviceHistory
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import monotonic_us
from carpool.daemon.telemetry.service import DeviceUses, Listeners, TelemetryService, processes_of, uses_of
from carpool.devices.base import DeviceBackend
from carpool.devices.host import HostDevice
from carpool.protocol.api import SubmitRequest
from carpool.protocol.seat import BOARD_BYTES, Seat
from carpool.telemetry.process_trees import Trees
from tests.emulator.nvml.values import stubbed
from tools.emulator.build import build_nvml

DEVICES = 8
TARGET = 0.005
ROUND_S = 1.0
OPENING_S = 1.5 * ROUND_S


def run(quick: bool) -> list[Figure]:
    rounds, runs = (5, 2) if quick else (20, 3)
    with ExitStack() as stack:
        jobs = stack.enter_context(training())
        host = {f"host{number}": HostDevice(f"host{number}", 64 * MIB) for number in range(DEVICES)}
        for device in host.values():
            stack.callback(device.close)
        hosts = [asyncio.run(_rounds(dict(host), jobs, rounds)) for _ in range(runs)]
        scratch = [_private(jobs, rounds) for _ in range(runs)]
        gpus = stack.enter_context(stub_gpus())
        library = stack.enter_context(library_time())
        nvml, own = [], []
        for _ in range(runs):
            nvml.append(asyncio.run(_rounds(gpus, JobTable(), rounds, library.clear)))
            own.append(nvml[-1] - sum(library) / 1e9 / (rounds * ROUND_S))
    detail = {"devices": DEVICES, "rounds": rounds, "processes_on_the_machine": _processes()}
    return [
        _figure("eight host devices with a job each", hosts, detail),
        _figure("eight GPUs, without the time inside the stub NVML", own, detail),
        _figure("eight GPUs with the stub NVML, which reads a file for each answer", nvml, detail, target=None),
        _figure("private memory of eight jobs", scratch, detail),
    ]


def _figure(name: str, values: list[float], detail: dict[str, Any], target: float | None = TARGET) -> Figure:
    return median_figure("sampling", f"{name}, 1 Hz, of a core", "ratio", values, target=target, detail=detail)


async def _rounds(
    devices: dict[str, Any], jobs: JobTable, rounds: int, opened: Callable[[], None] = lambda: None
) -> float:
    """CPU time of this process per second of measuring, which begins after ``opened``."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.sqlite"
        journal = Journal(open_journal(path), asyncio.get_running_loop())
        telemetry = TelemetryService(
            cast("dict[str, DeviceBackend]", devices),
            DeviceUses(lambda: processes_of(jobs, lambda job: None), uses=lambda device: uses_of(jobs, device)),
            Listeners(),
            interval_us=round(ROUND_S * 1e6),
            history=DeviceHistory(journal, path),
        )
        task = asyncio.create_task(telemetry.run())
        await asyncio.sleep(OPENING_S)  # the first round opens what there is to open
        opened()
        cost = await _cost(lambda: asyncio.sleep(rounds * ROUND_S))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        levels = {telemetry.state(device).level.value for device in devices}
        assert "none" not in levels, {device: telemetry.state(device).reason for device in devices}
        journal.close()
    return cost


async def _cost(wait: Callable[[], Any]) -> float:
    began, cpu = time.monotonic(), time.process_time()
    await wait()
    return (time.process_time() - cpu) / (time.monotonic() - began)


def _private(jobs: JobTable, rounds: int) -> float:
    trees, roots = Trees(), {job.pid: job.id for job in jobs.live.values() if job.pid is not None}
    trees.look(roots)
    used = 0.0
    for _ in range(rounds):
        time.sleep(ROUND_S / 4)
        cpu = time.process_time()
        trees.look(roots)
        used += time.process_time() - cpu
    return used / rounds / ROUND_S


@contextmanager
def training() -> Iterator[JobTable]:
    """Eight processes that train, as jobs of eight devices."""
    jobs, board = JobTable(), memoryview(bytearray(BOARD_BYTES))
    command = argv("train.py", "mlp", 10**7, 1)
    running = [
        subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(DEVICES)
    ]
    try:
        for number, process in enumerate(running):
            seat = Seat(board, number)
            seat.set("turn", 1)
            seat.set("turn_start_us", monotonic_us())
            spec = SubmitRequest(argv=command, cwd="/", env={})
            seated = Seated(cast(Board, None), seat, process.pid, -1, monotonic_us())
            jobs.live[number + 1] = JobRecord(
                *(number + 1, 0, 0, spec, None, 0),
                phase=JobPhase.RUNNING,
                device=f"host{number}",
                lane=number + 1,
                pid=process.pid,
                seated=seated,
            )
        yield jobs
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


@contextmanager
def library_time() -> Iterator[list[int]]:
    """Nanoseconds of CPU time inside each call of the library, while it lasts."""
    spent: list[int] = []
    pointer = pynvml._nvmlGetFunctionPointer

    def timed(name: str) -> Callable[..., Any]:
        function = pointer(name)

        def call(*arguments: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return function(*arguments)
            finally:
                spent.append(time.thread_time_ns() - began)

        return call

    pynvml._nvmlGetFunctionPointer = timed
    try:
        yield spent
    finally:
        pynvml._nvmlGetFunctionPointer = pointer


@contextmanager
def stub_gpus() -> Iterator[dict[str, Any]]:
    """Eight GPUs with all counters."""
    with tempfile.TemporaryDirectory() as directory:
        library = build_nvml(Path(directory))
        with stubbed(library, Path(directory) / "values") as values:
            names = [values.gpu(f"GPU-{number}", {"gpm.supported": None}) for number in range(DEVICES)]
            yield {
                f"cuda{number}": SimpleNamespace(
                    id=f"cuda{number}", kind="cuda", capacity=1 << 30, uuid=uuid, used_bytes=lambda: 0
                )
                for number, uuid in enumerate(names)
            }
            time.sleep(0.5)  # the thread that measured them closes the library


def _processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208 - names are enough
