"""How long a GPU computed for each process, from the driver's per-process samples.  Not yet run on a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from carpool.core.model import Micros
from carpool.telemetry.nvml import Calls, NvmlUnsupported, Unanswered

PERCENT = 100


class BusyProcesses:
    """The busy times of one GPU's processes, from the driver's samples of multiprocessors in use, in percent."""

    def __init__(self) -> None:
        self._asked_us: Micros | None = None
        self._latest = 0  # the newest sample's time, in the driver's microseconds

    def since_last(self, calls: Calls, handle: Any, now: Micros) -> Mapping[int, Micros] | None:
        """Return the computing time of each process since the previous call; processes that are absent had none.

        None at the first call, and where the driver has no such samples (a part of a GPU, old drivers).
        """
        before, self._asked_us = self._asked_us, now
        try:
            samples = calls.must("nvmlDeviceGetProcessUtilization", handle, self._latest)
        except NvmlUnsupported:
            return None
        except Unanswered:  # also the answer when no process has computed
            samples = []
        self._latest = max([self._latest, *(sample.timeStamp for sample in samples)])
        return None if before is None else _times(samples, now - before)


def _times(samples: Iterable[Any], elapsed: Micros) -> dict[int, Micros]:
    """Return the computing time by process.

    Drivers have been seen to give more than 100 %: such a sample is ignored.
    """
    percents: dict[int, list[int]] = defaultdict(list)
    for sample in samples:
        if sample.smUtil <= PERCENT:
            percents[sample.pid].append(sample.smUtil)
    return {pid: sum(each) * elapsed // (PERCENT * len(each)) for pid, each in percents.items()}
