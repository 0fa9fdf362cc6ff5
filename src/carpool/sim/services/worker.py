"""One modelled worker: what its process and its seat are at."""

from __future__ import annotations

from carpool.core.model import DeviceId, Estimate, JobId, JobSpec, Memory, Micros, Service, Usage
from carpool.serve.queue.batching import Batch
from carpool.sim.model.served_models import Services


class Worker:
    """The state; `carpool.sim.services.workers` moves it."""

    __slots__ = (
        *("attached", "batch", "batches", "began_us", "device", "ends_us", "held_us", "holds", "idle_since"),
        *("left_us", "limit", "number", "plan", "started"),
    )

    def __init__(self, number: JobId, device: int) -> None:
        self.number = number
        self.device = device
        self.started = self.attached = False
        self.holds = False
        self.began_us: Micros = 0  # of the present turn
        self.held_us: Micros = 0  # time of the turns before it
        self.batch: Batch | None = None  # that it wants its turn for, or computes
        self.left_us: Micros = 0  # that the batch has still to compute when a turn begins
        self.ends_us: Micros | None = None  # the batch will have computed
        self.batches = 0
        self.limit = Memory()
        self.idle_since = 0  # number of the moment: who has been idle for longest is next
        self.plan = 0  # number of the plan that is still meant

    @property
    def idle(self) -> bool:
        return self.attached and self.batch is None

    def usage(self, now: Micros) -> Usage:
        """Its counters, as its seat would show them."""
        held = self.held_us + (now - self.began_us if self.holds else 0)
        return Usage(ephemeral_peak=self.limit.ephemeral, iterations=self.batches, device_us=held)


def spec_of(services: Services, device: DeviceId, declared: bool) -> JobSpec:
    """A worker as the core sees it; ``declared``: whether it is told what the activations need."""
    estimate = Estimate(Memory(0, services.activations), "hint") if declared else None
    return JobSpec(services.owner, "service", device=device, estimate=estimate, service=Service())
