"""Jobs that share the GPU compute what they compute alone, bit for bit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tools.gpu_check.checks.training import WAYS
from tools.gpu_check.daemon import Daemon, daemon
from tools.gpu_check.meeting import outputs_together
from tools.gpu_check.registry import Figures, Needs, check, require
from tools.gpu_check.scripts import needs_cuda, run
from tools.gpu_check.worker import workers

GIB = 1 << 30
RESIDUES = 100  # iterations
PATIENCE_S, LOOK_S = 120.0, 0.05
TRAIN, ENDLESS, GREEDY, COPIES = "train.py", "endless.py", "greedy.py", "copies.py"


def same(expected: str, results: list[str]) -> None:
    wrong = [number for number, result in enumerate(results, 1) if result != expected]
    require(not wrong, f"of {len(results)} jobs these have another result than alone: {wrong}")


def moves(shared: Daemon, jobs: list[int]) -> Figures:
    infos = [shared.client.job(job) for job in jobs]
    return {
        "switches": sum(info.switches for info in infos),
        "MiB offloaded": sum(i.moved.out_bytes for i in infos) / 2**20,
    }


def identical(shared: Daemon, expected: str, count: int, program: str, *arguments: str, **env: str) -> Figures:
    """So many jobs of the same script at once."""
    jobs = [shared.submit(program, *arguments, **env) for _ in range(count)]
    same(expected, [shared.output(job) for job in jobs])
    return moves(shared, jobs)


def identical_copies(count: int, *arguments: str, **settings: int) -> Figures:
    """What the program computes alone, a job of its own tells."""
    with daemon("384MiB", **settings) as shared:
        expected = shared.output(shared.submit(COPIES, *arguments))
        results = copies_side_by_side(shared, count, *arguments)
        same(expected, list(results.values()))
        return moves(shared, list(results))


def copies_side_by_side(shared: Daemon, count: int, *arguments: str) -> dict[int, str]:
    """What each of so many jobs has printed last.  None is done before all of them have their memory."""
    fifo = shared.home / "all-are-there"
    os.mkfifo(fifo)
    jobs = [shared.submit(COPIES, *arguments, os.fspath(fifo)) for _ in range(count)]
    for job in jobs:
        wait_for_iterations(shared, job)
    there = os.open(fifo, os.O_RDWR)
    try:
        return {job: shared.output(job) for job in jobs}
    finally:
        os.close(there)
        fifo.unlink()


def identical_training(count: int, way: str, size: str = "", ballast: str = "0", **settings: int) -> Figures:
    needs_cuda()
    expected = run(TRAIN, way, preload=False)
    with daemon(size, **settings) as shared:
        return identical(shared, expected, count, TRAIN, way, BALLAST_MIB=ballast)


def moved(figures: Figures) -> Figures:
    require(figures["MiB offloaded"] > 0, "nothing was moved")
    return figures


def in_one_lane(count: int, way: str) -> Callable[[], Figures]:
    def function() -> Figures:
        return identical_training(count, way)

    function.__name__ = f"lane_of_{count}_{way}"
    return function


for each in WAYS:
    for number in (1, 2, 3):
        check(f"{number} in one lane, a switch at every iteration: {each}, bit-identical", Needs.TORCH)(
            in_one_lane(number, each)
        )


@check(
    "2 in one lane whose memory is closed between turns: what passes the gate is an error of the driver", Needs.TORCH
)
def closed_lane_of_2() -> Figures:
    return identical_training(2, "adam", close_lanes=True)


@check("memory of two jobs in one lane that outlives their iterations keeps its content", Needs.TORCH)
def residue_is_kept() -> Figures:
    needs_cuda()
    with daemon() as shared:
        outputs = outputs_together(shared, [["residue.py", str(seed), str(RESIDUES)] for seed in (1, 2)])
        compared = set(outputs.values())
        require(len(compared) == 1 and int(*compared) > 0, f"the jobs have compared {compared} blocks")
        return moves(shared, list(outputs))


@check("two jobs without PyTorch's allocator share the device and compute what they compute alone")
def jobs_of_copies() -> Figures:
    return identical_copies(2, "16", "60")


@check("jobs that do not fit together are moved to the host and back, and compute what they compute alone")
def oversubscribed_copies() -> Figures:
    return moved(identical_copies(3, "96", "40", quantum_us=20_000))


@check("training jobs that do not fit together (plain allocations), bit-identical", Needs.TORCH)
def oversubscribed_training() -> Figures:
    return moved(identical_training(3, "adam", "4GiB", "2200", quantum_us=100_000))


@check("a job killed in its turn: the other one goes on", Needs.TORCH)
def killed_in_its_turn() -> None:
    needs_cuda()
    expected = run(TRAIN, "sgd", preload=False)
    with daemon() as shared:
        outlives(shared, expected, (ENDLESS,), (TRAIN, "sgd"))


@check("a job without PyTorch's allocator killed in its turn: the other one goes on")
def killed_copies() -> None:
    with daemon("384MiB") as shared:
        expected = shared.output(shared.submit(COPIES, "16", "60"))
        outlives(shared, expected, (COPIES, "16", "1000000"), (COPIES, "16", "60"))


def outlives(shared: Daemon, expected: str, endless: tuple[str, ...], other: tuple[str, ...]) -> None:
    """The second job computes what it should after the first one was killed beside it."""
    victim = shared.submit(*endless)
    wait_for_iterations(shared, victim)
    survivor = shared.submit(*other)
    wait_for_iterations(shared, survivor)
    shared.kill_job(victim)
    same(expected, [shared.output(survivor)])
    require(shared.end(victim).signal == 9, "the victim did not die of the signal")


def wait_for_iterations(shared: Daemon, job: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (info := shared.client.job(job)).iterations:
        require(info.phase != "ended", f"job {job} has ended:\n{shared.log(job)[-1500:]}")
        require(time.monotonic() < deadline, f"job {job} does not iterate: {info.reason}")
        time.sleep(LOOK_S)


@check("out of memory is an exception in the job that wants too much, and nowhere else", Needs.TORCH)
def out_of_memory() -> None:
    needs_cuda()
    expected = run(TRAIN, "sgd", preload=False)
    with daemon("4GiB") as shared:
        other, greedy = shared.submit(TRAIN, "sgd"), shared.submit(GREEDY, "6")
        require(shared.output(greedy) == "OutOfMemoryError", "it got another exception")
        same(expected, [shared.output(other)])


@check("memory of a foreign process is never promised, and jobs finish beside it", Needs.TORCH)
def foreign_process() -> None:
    needs_cuda()
    expected = run(TRAIN, "sgd", preload=False)
    with workers(1) as (stranger,):
        stranger.ask("take", size=GIB)
        with daemon() as shared:
            job = shared.submit(TRAIN, "sgd")
            same(expected, [shared.output(job)])
            (device,) = shared.client.devices()
            foreign = device.telemetry.foreign_bytes
            require(foreign is not None and foreign >= GIB, f"it says that others have {foreign} bytes")
            processes = device.telemetry.processes
            strangers = processes is None or any(process.job is None for process in processes)
            require(strangers, f"it takes all processes for its own: {processes}")
