"""What runs, in which order, and how long it may take: a lease of a GPU, all checks, all measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tools.gpu_check.registry import Check, Figures

TIMEOUT_S = 400.0


class Range(NamedTuple):
    """What a figure is expected to be; outside of it the result is right, and worth a look."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    limit_s: float = TIMEOUT_S
    look: str = ""  # where to look when it does not pass
    expected: Mapping[str, Range] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # steps without which it cannot work

    def unexpected(self, figures: Figures) -> list[str]:
        wrong = {
            name: figures.get(name)
            for name, (least, most) in self.expected.items()
            if not least <= figures.get(name, least) <= most
        }
        return [
            f"{name} {value:.4g}, expected {self.expected[name].least:g} to {self.expected[name].most:g}"
            for name, value in wrong.items()
            if value is not None
        ]


NO_LIMIT = float("inf")
SWITCHES = {"switches": Range(10, NO_LIMIT)}
MAPPING = "tools/emulator/README.md says what the driver is believed to do with memory that processes share"
GATE = "src/native/cuda/driver_load.c: which calls pass the gate, and which pass by it"
DRAIN = "src/native/cuda/turn/drain.c asks each stream whether it has ended"
DAEMON = "what the daemon and the jobs said is among the details; src/native/cuda/turn/turn.c waits for turns"
FACTS, DRIVER = ("facts",), ("needed_mechanisms",)
SHARED, GATED = ("extent_outlives_its_creator",), ("preloaded_sgd",)
JOB, LANE = ("lane_of_1_sgd",), ("lane_of_2_adam",)
#: The riskiest first, and of those that need nothing of each other the shortest.
LEASE = (
    Step("facts", 20, "the driver itself: nvidia-smi, /proc/driver/nvidia, dmesg"),
    Step("context_by_phase", 40, "docs/cuda.md says what a context costs", needs=FACTS),
    Step(
        "needed_mechanisms", 40, "the driver, its calls to share memory, and the agent process: carpool doctor",
        needs=FACTS,
    ),
    Step("driver_routes", 60, GATE, needs=FACTS),
    Step("driver_queries", 60, GATE, needs=FACTS),
    Step("pointers_past_the_gate", 60, GATE, needs=FACTS),
    Step("silence_after_a_kill", 40, "docs/recovery.md: a lane is given on when its job is dead", needs=DRIVER),
    Step("extent_outlives_its_creator", 40, MAPPING, needs=DRIVER),
    Step("lane_in_two_processes", 40, MAPPING, needs=SHARED),
    Step("extent_is_cleared", 40, MAPPING, needs=DRIVER),
    Step("extent_is_freed", 75, MAPPING, {"seconds until it is free": Range(0, 2)}, needs=DRIVER),
    Step("preloaded_sgd", 90, GATE, needs=FACTS),
    Step("lane_of_1_sgd", 90, DAEMON, needs=(*SHARED, *GATED)),
    Step("lane_of_2_adam", 90, DAEMON, SWITCHES, needs=JOB),
    Step("calls_are_counted", 60, GATE, {"past the gate": Range(0, 0)}, GATED),
    Step("handover_timeslice", 90, DAEMON, {"us, p50": Range(0, 100), "us, p95": Range(0, 1000)}, needs=LANE),
    Step("residue_is_kept", 90, "src/native/cuda/memory/residue.c: what is saved of the lane", SWITCHES, LANE),
    Step("oversubscribed_copies", 60, "src/native/cuda/memory/extents.c: when moved memory is mapped", needs=SHARED),
    Step(
        "offload_rate", 90, "is the memory that is moved to pinned?", {"ratio, median": Range(0.8, 1.1)},
        needs=("oversubscribed_copies",),
    ),
    Step(
        "first_move", 60, "src/carpool/devices/cuda/pinned.py: is memory pinned before it moves?",
        {
            "first / plain": Range(0.01, 0.5), "pinned ahead / plain": Range(0.8, 1.1),
            "later / plain": Range(0.8, 1.1),
        },
        SHARED,
    ),
    Step(
        "checkpoint_round_trip", 60, "driver 575 or later; optional: without it there are no checkpoint jobs",
        needs=FACTS,
    ),
    Step(
        "checkpoint_job", 90, "src/carpool/devices/cuda/checkpoint.py",
        needs=(*SHARED, "checkpoint_round_trip"),
    ),
    Step("telemetry_against_pytorch", 40, "src/carpool/telemetry: what this driver's NVML does not say", needs=FACTS),
    Step("handover_side_streams", 90, DRAIN, {"us more": Range(-100, 100)}, LANE),
    Step("launch_overhead", 60, GATE, {"as a job, ns more": Range(-500, 500)}, JOB),
    Step("snapshot_cost", 40, "src/native/cuda/memory/live_blocks.c", {"ms, median": Range(0, 10)}, FACTS),
    Step("extent_costs", 40, MAPPING, needs=SHARED),
    Step("extent_costs_beside_kernels", 60, "is memory mapped and unmapped while kernels run?", needs=SHARED),
    Step("copy_rates", 60, "is the link as wide as nvidia-smi -q says?", needs=FACTS),
    Step("lane_of_2_graph", 90, DAEMON, needs=LANE),
    Step("lane_of_2_compile", 95, DAEMON, needs=LANE),
    Step("lane_of_2_amp", 90, DAEMON, needs=LANE),
    Step("lane_of_2_streams", 90, DAEMON, needs=LANE),
    Step("lane_of_2_loader", 90, DAEMON, needs=LANE),
    Step("lane_in_brief", 60, DAEMON, {"throughput": Range(0.9, 2)}, LANE),
    Step("fairness_in_brief", 90, "docs/policies.md: turns of equal jobs", needs=LANE),
    Step(
        "serving_private_memory", 95, "which memory holds the weights of 91 MiB?  PyTorch's libraries take some, too",
        {"RssAnon more, MiB": Range(0, 60)}, JOB,
    ),
    Step("closed_lane_of_2", 95, "docs/cuda.md, stray accesses: a call has passed the gate", SWITCHES, LANE),
)  # fmt: skip


#: Modules of measurements, in the order of what they are worth.
BENCH = (
    "handover", "iterations", "jobs", "offload", "snapshot", "copies", "mapping", "segments", "weights", "services",
    "fairness",
)  # fmt: skip


def plan(command: str, known: Mapping[str, Check]) -> dict[str, Step]:
    """By name, in their order."""
    if command == "lease":
        return {step.name: step for step in LEASE}
    if command == "check":
        return {name: Step(name) for name, each in known.items() if not each.measures}
    return {each.name: Step(each.name) for each in sorted(known.values(), key=_worth) if each.measures}


def _worth(measurement: Check) -> int:
    module = measurement.function.__module__.rpartition(".")[2]
    return BENCH.index(module) if measurement.measures else len(BENCH)
