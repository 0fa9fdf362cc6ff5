"""Telemetry of a device, in the types of the API."""

from __future__ import annotations

import dataclasses
from typing import Any

from carpool.core.model import DeviceId
from carpool.daemon.system.clock import wall_us
from carpool.daemon.telemetry.load_events import Known
from carpool.daemon.telemetry.service import TelemetryService
from carpool.protocol.api import LoadInfo, MeanInfo, ProcessInfo, TelemetryInfo
from carpool.telemetry.sample import Sample
from carpool.telemetry.window import mean

MEANS = [name for name in MeanInfo.__struct_fields__ if name != "samples"]
#: Quantities that have the same name and form in `Sample` and `TelemetryInfo`.
SAME = {field.name for field in dataclasses.fields(Sample)} - {"taken_us", "level", "reason", "processes", "throttled"}


def telemetry_info(telemetry: TelemetryService, device: DeviceId) -> TelemetryInfo:
    """Return what is measured on a device now, and the means of the last window."""
    state, samples = telemetry.state(device), telemetry.recent(device)
    means: dict[str, Any] = {name: mean(samples, name) for name in MEANS}
    return TelemetryInfo(
        level=state.level.value,
        reason=state.reason,
        taken_us=None if state.age_us is None else wall_us() - state.age_us,
        age_us=state.age_us,
        interval_us=telemetry.interval_us,
        load=_load(telemetry.load(device)),
        mean=MeanInfo(len(samples), **means),
        **_quantities(state.sample),
    )


def _load(known: Known | None) -> LoadInfo | None:
    if known is None or known.load is None:
        return None
    return LoadInfo(**dataclasses.asdict(known.load), degraded=known.why)


def _quantities(sample: Sample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    known = {name: getattr(sample, name) for name in SAME}
    if sample.processes is not None:
        known["processes"] = [ProcessInfo(each.pid, each.used_bytes, each.owner) for each in sample.processes]
    return known | {"throttled": None if sample.throttled is None else list(sample.throttled)}
