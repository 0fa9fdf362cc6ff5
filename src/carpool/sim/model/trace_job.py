"""One job of a trace: when it arrives, and what it would do alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from carpool.core.model import Micros

#: Shares are integers: parts per million.
WHOLE_PPM = 1_000_000
#: Turns change hands between iterations, so jobs of which only the length is known get iterations of this length.
ASSUMED_ITERATION_US = 100_000
#: Traces seldom contain occupancy or memory activity: both are assumed to be half of the multiprocessors' activity.
OCCUPANCY_OF_ACTIVE = 2
DRAM_OF_ACTIVE = 2


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Times are microseconds from the beginning of the trace, sizes are bytes.

    ``duration_us`` is what the job takes alone on its devices, from its start to its end.  With iterations it
    consists of start-up on the host, then ``iterations`` times (``iteration_us`` of device time, ``host_us`` of host
    time), then ``end_us`` on the host.
    """

    id: str  # unique within a trace
    submit_us: Micros
    duration_us: Micros  # at least 1
    gpus: int = 1  # devices that it needs at once
    iterations: int | None = None  # None: not known; where it matters `ASSUMED_ITERATION_US` is taken
    iteration_us: Micros | None = None  # device time of one iteration; given whenever ``iterations`` is
    host_us: Micros = 0  # host time of one iteration
    persistent: int = 0
    ephemeral: int = 0
    utilization_ppm: int = WHOLE_PPM  # share of the device that its kernels use while it computes alone (SMACT)
    occupancy_ppm: int | None = None  # SMOCC then; None: `OCCUPANCY_OF_ACTIVE` of the utilization
    dram_ppm: int | None = None  # DRAMA then; None: `DRAM_OF_ACTIVE` of the utilization
    model: str = ""
    weight: int = 100  # share under `fair`
    deadline_us: Micros | None = None  # after its submission
    owner: int = 0  # jobs of different owners never share a lane
    fails_at_ppm: int | None = None  # its first attempt dies when this share of its work is done
    checkpoint_us: Micros | None = None  # a later attempt goes on from the last whole multiple of this; None: anew
    cores_ppm: int = 0  # cores of the machine that its computing demands: none on a GPU, usually one on a host device
    switch_us: Micros = 0  # time that it loses with each turn that it comes back to: for its residue
    end_us: Micros = 0  # host time after the last iteration; less than ``duration_us``
    startup_cpu_us: Micros | None = None  # processor time of start-up; None: one core for all of it
    end_cpu_us: Micros | None = None  # processor time of the host time after the last iteration; None: likewise
    estimates: tuple[tuple[str, int], ...] = ()  # what estimators of its memory say: (name, bytes), sorted by name

    @property
    def startup_us(self) -> Micros:
        """Host time before the first iteration."""
        if self.iterations is None or self.iteration_us is None:
            return 0
        return self.duration_us - self.iterations * (self.iteration_us + self.host_us) - self.end_us

    @property
    def cycle_us(self) -> tuple[Micros, Micros]:
        """Device time and host time of one iteration."""
        if self.iterations is None or self.iteration_us is None:
            return ASSUMED_ITERATION_US, 0
        return self.iteration_us, self.host_us

    @property
    def startup_cores_ppm(self) -> int:
        """Cores of the machine that its start-up demands, in millionths."""
        return _cores_ppm(self.startup_cpu_us, self.startup_us)

    @property
    def end_cores_ppm(self) -> int:
        """Cores of the machine that it demands after its last iteration, in millionths."""
        return _cores_ppm(self.end_cpu_us, self.end_us)

    @property
    def iteration_cores_ppm(self) -> int:
        """Cores of the machine that its iterations demand on average: one in their host time."""
        device, host = self.cycle_us
        return (self.cores_ppm * device + WHOLE_PPM * host) // (device + host)

    def on_host_devices(self) -> TraceJob:
        """Return the job as it would be on host devices: with one core for each, unless it says how many."""
        return self if self.cores_ppm else replace(self, cores_ppm=self.gpus * WHOLE_PPM)

    @property
    def demand_ppm(self) -> int:
        """Mean share of the device that it uses; none while it is on the host."""
        return self._on_average(self.utilization_ppm)

    @property
    def counters_ppm(self) -> tuple[int, int, int]:
        """Mean contribution to SMACT, SMOCC and DRAMA of its device, without co-runners."""
        occupancy, dram = self.occupancy_ppm, self.dram_ppm
        return (
            self.demand_ppm,
            self._on_average(self.utilization_ppm // OCCUPANCY_OF_ACTIVE if occupancy is None else occupancy),
            self._on_average(self.utilization_ppm // DRAM_OF_ACTIVE if dram is None else dram),
        )

    def _on_average(self, share_ppm: int) -> int:
        device, host = self.cycle_us
        return share_ppm * device // (device + host) if host else share_ppm


def _cores_ppm(cpu_us: Micros | None, length_us: Micros) -> int:
    """Return the cores that a time of this length demands; None: one."""
    return WHOLE_PPM if cpu_us is None or not length_us else cpu_us * WHOLE_PPM // length_us
