"""Which events of the journal `carpool events` shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from carpool.cli.render.event_lines import TELEMETRY
from carpool.protocol.api import EventInfo


@dataclass
class EventFilter:
    """``everything``: show measurements, too.  ``jobs_there``, ``lanes_there``: known jobs and lanes of ``device``."""

    everything: bool
    kinds: frozenset[str]
    job: int | None
    device: str | None
    jobs_there: set[int] = field(default_factory=set)
    lanes_there: set[int] = field(default_factory=set)

    def shows(self, event: EventInfo) -> bool:
        named = event.kind in self.kinds if self.kinds else self.everything or event.kind not in TELEMETRY
        return named and self._of_job(event) and (self.device is None or self._of_device(event))

    def _of_job(self, event: EventInfo) -> bool:
        others = (event.data.get(name) for name in ("to", "holder", "successor"))
        return self.job is None or self.job == event.job or self.job in others

    def _of_device(self, event: EventInfo) -> bool:
        """Whether an event is about the device; jobs and lanes that an event places there belong there from then on."""
        if not _names(event, str(self.device)):
            return event.job in self.jobs_there or event.data.get("lane") in self.lanes_there
        if event.job is not None:
            self.jobs_there.add(event.job)
        if isinstance(lane := event.data.get("lane"), int):
            self.lanes_there.add(lane)
        return True


def _names(event: EventInfo, device: str) -> bool:
    """Whether the event itself says that it is about the device."""
    named = event.data.get("device")
    own = named.get("id") if isinstance(named, dict) else named
    return device == own or any(device in _listed(event, name) for name in ("further", "devices"))


def _listed(event: EventInfo, name: str) -> Iterable[object]:
    value = event.data.get(name)
    return value if isinstance(value, list) else ()
