"""How long one scheduling decision takes with 10, 100 and 1,000 jobs.  Prints JSON.

Turn events: all jobs in one lane of one device; the holder passes its turn to the successor that the core has named,
then wants it back; a switch at every boundary, as busy as a lane can be.  Submissions: a new job while the device is
full and all others are queued.  Ends: a job ends, and another of those queued takes its place.  Placements: the same
with eight devices.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from carpool.core import events
from carpool.core.commands import StartJob
from carpool.core.machine import Machine
from carpool.core.model import GIB, MIB, Cause, DeviceSpec, Estimate, JobSpec, Memory, Oversubscribe, Settings, Usage
from carpool.core.policies import available_policies
from carpool.core.policies.placement import available_placements

DEVICES = 8
TARGETS_US = {10: 50, 100: 100, 1000: 500}
SPEC = JobSpec(0, iterations=1_000_000, estimate=Estimate(Memory(MIB, 4 * MIB), "history", iteration_us=1000))


def machine_with(policy: str, capacity: int) -> Machine:
    machine = Machine(Settings(policy=policy, quantum_us=0, max_switch_share_ppm=1_000_000, max_lanes=1))
    machine.handle(events.DeviceAdded(DeviceSpec("host0", capacity, oversubscribe=Oversubscribe.OFF)), 0)
    return machine


def turn_events(policy: str, jobs: int, decisions: int) -> list[float]:
    """Microseconds per event."""
    machine = machine_with(policy, 64 * GIB)
    for job in range(1, jobs + 1):
        for event in (events.Submitted(job, SPEC), events.ProcessStarted(job), events.Attached(job)):
            machine.handle(event, 0)
        machine.handle(events.TurnWanted(job), 0)
    counters = dict.fromkeys(range(1, jobs + 1), 0)
    times, now = [], 0
    for _ in range(decisions // 2):
        lane = machine.view().lanes[1]
        assert lane.holder is not None and lane.successor is not None
        now += 1000
        counters[lane.holder] += 1
        usage = Usage(iterations=counters[lane.holder], device_us=counters[lane.holder] * 1000)
        times.append(timed(machine, events.TurnPassed(lane.holder, lane.successor, Cause.BOUNDARY, usage), now))
        times.append(timed(machine, events.TurnWanted(lane.holder), now + 10))
    return times


def queue_events(policy: str, jobs: int, decisions: int) -> tuple[list[float], list[float]]:
    """Microseconds per submission to a full device, and per end of a job that lets the next one start."""
    machine = machine_with(policy, 8 * MIB)
    started = [machine.handle(events.Submitted(job, SPEC), 0) for job in range(1, jobs + 1)]
    running = [command.job for commands in started for command in commands if isinstance(command, StartJob)]
    submissions, ends = [], []
    for number in range(decisions // 2):
        submissions.append(timed(machine, events.Submitted(jobs + 1 + number, SPEC), number))
        begin = time.perf_counter_ns()
        commands = machine.handle(events.ProcessExited(running.pop(0), 0), number)
        ends.append((time.perf_counter_ns() - begin) / 1000)
        running += [command.job for command in commands if isinstance(command, StartJob)]
    return submissions, ends


def placement_events(placement: str, jobs: int, decisions: int) -> tuple[list[float], list[float]]:
    """The same with eight devices, each of which holds one job at a time; queued jobs have twelve sizes."""
    machine = Machine(Settings(policy="pack", placement=placement))
    for number in range(DEVICES):
        device = DeviceSpec(f"host{number}", GIB, oversubscribe=Oversubscribe.OFF)
        machine.handle(events.DeviceAdded(device), 0)
    specs = [replace(SPEC, estimate=Estimate(Memory((600 + 30 * size) * MIB, MIB), "history")) for size in range(12)]
    running, submissions, ends = [], [], []
    for job in range(1, jobs + DEVICES + 1):
        commands = machine.handle(events.Submitted(job, specs[job * 7 % 12]), 0)
        running += [command.job for command in commands if isinstance(command, StartJob)]
    for number in range(decisions // 2):
        job = jobs + DEVICES + 1 + number
        submissions.append(timed(machine, events.Submitted(job, specs[job * 7 % 12]), number))
        begin = time.perf_counter_ns()
        commands = machine.handle(events.ProcessExited(running.pop(0), 0), number)
        ends.append((time.perf_counter_ns() - begin) / 1000)
        running += [command.job for command in commands if isinstance(command, StartJob)]
    return submissions, ends


def placements(runs: int, decisions: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for placement in available_placements():
        found = [placement_events(placement, 1000, decisions) for _ in range(runs)]
        figures = {"submit": summary([run[0] for run in found]), "end": summary([run[1] for run in found])}
        rows.append({"placement": placement, "devices": DEVICES, "jobs": 1000, "target_us": 1000, **figures})
    return rows


def timed(machine: Machine, event: events.Event, now: int) -> float:
    begin = time.perf_counter_ns()
    machine.handle(event, now)
    return (time.perf_counter_ns() - begin) / 1000


def summary(runs: list[list[float]]) -> dict[str, float]:
    """Median of the runs' medians, and of their 99th percentiles."""
    return {
        "p50_us": round(statistics.median(statistics.median(run) for run in runs), 1),
        "p99_us": round(statistics.median(statistics.quantiles(run, n=100)[98] for run in runs), 1),
    }


def repeated(measure: Callable[[], list[float]], runs: int) -> dict[str, float]:
    collected = []
    for _ in range(runs):
        gc.collect()
        collected.append(measure())
    return summary(collected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=2000)
    options = parser.parse_args()
    results = []
    for policy in available_policies():
        for jobs, target in TARGETS_US.items():
            ends = [queue_events(policy, jobs, options.decisions) for _ in range(options.runs)]
            results.append(
                {
                    "policy": policy,
                    "jobs": jobs,
                    "target_us": target,
                    "turn": repeated(partial(turn_events, policy, jobs, options.decisions), options.runs),
                    "submit": summary([run[0] for run in ends]),
                    "end": summary([run[1] for run in ends]),
                }
            )
    about = {"python": platform.python_version(), "machine": platform.machine()}
    placed = placements(options.runs, options.decisions)
    print(json.dumps({**about, "results": results, "placements": placed}, indent=1))


if __name__ == "__main__":
    main()
