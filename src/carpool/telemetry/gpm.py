"""GPM: activity of a GPU's multiprocessors and memory between two samples (Hopper and later)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from carpool.core.model import Micros
from carpool.telemetry.nvml import Calls, Unanswered
from carpool.telemetry.samples import Unmeasurable

#: NVML's metric ids by our quantity; values are percentages with a fraction.
METRICS = {"sm_active_ppm": 2, "sm_occupancy_ppm": 3, "dram_active_ppm": 10}
SHORTEST_US: Micros = 100_000  # minimum between two samples, required by the documentation
WORTH_WAITING_US: Micros = 20_000  # with a round every 100 ms, rounds come a little early or late
SECOND_SAMPLE = "needs a second sample"
UNSUPPORTED = "this GPU has no GPM counters (Hopper and later have)"


class Gpm:
    """The two samples of one GPU.  Raises Unanswered if the GPU has no such counters.

    ``instance`` is that of a MIG device; its counters are read from the GPU that it is a part of.
    """

    def __init__(
        self, calls: Calls, gpu: Any, instance: int | None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._calls = calls
        self._sleep = sleep
        self._gpu = gpu
        self._instance = instance
        if not calls.must("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice:
            raise Unanswered(UNSUPPORTED)
        self._older: Any = calls.must("nvmlGpmSampleAlloc")
        self._newer: Any = calls.must("nvmlGpmSampleAlloc")
        self._older_us: Micros | None = None

    def read(self, now: Micros) -> tuple[dict[str, int], dict[str, str]]:
        """Return the quantities since the previous call, and why others are missing.  Raises Unanswered."""
        early = 0 if self._older_us is None else self._older_us + SHORTEST_US - now
        if 0 < early <= WORTH_WAITING_US:
            self._sleep(early / 1e6)
            now += early
        elif early > 0:
            return {}, dict.fromkeys(METRICS, f"{SECOND_SAMPLE}, {SHORTEST_US // 1000} ms later")
        before, self._older_us = self._older_us, None  # stays None if a call below fails
        self._take(self._newer)
        try:
            return self._between() if before is not None else ({}, dict.fromkeys(METRICS, SECOND_SAMPLE))
        finally:
            self._older, self._newer, self._older_us = self._newer, self._older, now

    def close(self) -> None:
        """Free the samples."""
        for sample in (self._older, self._newer):
            with suppress(Unmeasurable):  # NVML is gone, and the sample with it
                self._calls.must("nvmlGpmSampleFree", sample)

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._calls.must("nvmlGpmSampleGet", self._gpu, sample)
        else:
            self._calls.must("nvmlGpmMigSampleGet", self._gpu, self._instance, sample)

    def _between(self) -> tuple[dict[str, int], dict[str, str]]:
        nvml = self._calls.nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        request.sample1, request.sample2 = self._older, self._newer
        for place, metric in enumerate(METRICS.values()):
            request.metrics[place].metricId = metric
        self._calls.must("nvmlGpmMetricsGet", request)
        found: dict[str, int] = {}
        missing: dict[str, str] = {}
        for place, name in enumerate(METRICS):
            answer = request.metrics[place]
            if answer.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(answer.value):
                found[name] = round(answer.value * 10_000)
            else:
                missing[name] = f"GPM: {nvml.NVMLError(answer.nvmlReturn)}" if answer.nvmlReturn else "GPM: no number"
        return found, missing
