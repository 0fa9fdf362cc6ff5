"""The state at the moment of a scrape: devices, jobs, the host store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import carpool
from carpool.core.machine import Machine
from carpool.core.model import DeviceId, JobId, JobPhase
from carpool.core.policies.view import DeviceView, LaneView, View
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.system.background import in_slices
from carpool.telemetry.samples import Sample

PHASES = tuple(phase for phase in JobPhase if phase is not JobPhase.ENDED)
#: The shortest time between two counts of why jobs wait.
COUNTED_S = 1.0
#: The metric's name, its description, and its value in a sample.
MEASURED: tuple[tuple[str, str, Callable[[Sample], float | None]], ...] = (
    ("busy_ratio", "Share of time in which the device computed.", lambda sample: _scaled(sample.busy_ppm, 1e-6)),
    ("sm_active_ratio", "Mean share of active SMs.", lambda sample: _scaled(sample.sm_active_ppm, 1e-6)),
    ("power_watts", "Power draw.", lambda sample: _scaled(sample.power_mw, 1e-3)),
    ("temperature_celsius", "Temperature.", lambda sample: _scaled(sample.temperature_c, 1.0)),
)


@dataclass(frozen=True, slots=True)
class Now:
    """Sources of the present state.  ``sample``: the latest of a device; ``used``: its bytes that really exist."""

    machine: Machine
    jobs: JobTable
    sample: Callable[[DeviceId], Sample | None]
    used: Callable[[], Mapping[DeviceId, int]]
    store_budget: Callable[[], int]  # bytes


class Present(Collector):
    """Collects the metrics anew for each scrape, on the daemon's loop."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._waiting: Counter[str] = Counter()
        self._counted_s = float("-inf")

    async def count_waiting(self) -> None:
        """Count jobs by why they wait.  This is slow with many jobs, so a count that is some moments old is reused."""
        if time.monotonic() - self._counted_s > COUNTED_S:
            codes = await in_slices(list(self._now.jobs.live), self._waits_for)
            self._waiting = Counter(code for code in codes if code is not None)
            self._counted_s = time.monotonic()

    def _waits_for(self, job: JobId) -> str | None:
        with suppress(KeyError):  # a job that has ended meanwhile, or that the core does not know yet
            reason = self._now.machine.explain(job) if job in self._now.jobs.live else None
            return None if reason is None else reason.code
        return None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return each metric with the values of all devices, phases or reasons."""
        view = self._now.machine.view()
        yield _family("carpool_build_info", "Version of the daemon.", "version", {carpool.__version__: 1})
        yield from self._devices(view)
        yield from self._measured(view.devices)
        yield from self._jobs()
        yield self._store()

    def _devices(self, view: View) -> Iterator[GaugeMetricFamily]:
        capacity = {device.id: device.capacity for device in view.devices.values()}
        yield _family("carpool_device_capacity_bytes", "Memory that jobs may have together.", "device", capacity)
        yield self._memory(view)
        yield _family("carpool_device_used_bytes", "Memory that really exists.", "device", self._now.used())
        for name, about, count in (
            ("lanes", "Lanes, in each of which one job computes.", len),
            ("turn_holders", "Jobs that have a turn.", lambda lanes: sum(lane.holder is not None for lane in lanes)),
            ("turn_waiters", "Jobs that wait for a turn.", lambda lanes: sum(len(lane.waiting) for lane in lanes)),
        ):
            values = {device.id: count(_lanes(view, device)) for device in view.devices.values()}
            yield _family(f"carpool_device_{name}", about, "device", values)

    def _memory(self, view: View) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "carpool_device_memory_bytes", "Memory by what it is granted for.", labels=("device", "kind")
        )
        stored = Counter[str]()
        for job in self._now.jobs.live.values():
            stored[job.device or ""] += job.usage.stored
        for device in view.devices.values():
            kinds = {
                "persistent": device.persistent,
                "lanes": sum(lane.size for lane in _lanes(view, device)),
                "weights": device.weights,
                "unmanaged": device.foreign,
                "free": device.free,
                "stored": stored[device.id],
            }
            for kind, size in kinds.items():
                family.add_metric((device.id, kind), size)
        return family

    def _measured(self, devices: Iterable[DeviceId]) -> Iterator[GaugeMetricFamily]:
        samples = {device: sample for device in devices if (sample := self._now.sample(device)) is not None}
        for name, about, of in MEASURED:
            values = {device: value for device, sample in samples.items() if (value := of(sample)) is not None}
            yield _family(f"carpool_device_{name}", about, "device", values)

    def _jobs(self) -> Iterator[GaugeMetricFamily]:
        phases = Counter(job.phase for job in self._now.jobs.live.values())
        yield _family("carpool_jobs", "Jobs by phase.", "phase", {phase.value: phases[phase] for phase in PHASES})
        yield _family("carpool_jobs_waiting", "Jobs that do not compute, by reason.", "reason", self._waiting)

    def _store(self) -> GaugeMetricFamily:
        usages = [job.usage for job in self._now.jobs.live.values() if job.seated]
        kinds = {
            "budget": self._now.store_budget(),
            "kept": sum(usage.kept for usage in usages),
            "used": sum(usage.stored for usage in usages),
        }
        return _family("carpool_store_bytes", "Host memory for job memory that is moved out.", "kind", kinds)


def _family(name: str, about: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family


def _lanes(view: View, device: DeviceView) -> list[LaneView]:
    return [view.lanes[lane] for lane in device.lanes]


def _scaled(value: int | None, by: float) -> float | None:
    return None if value is None else value * by
