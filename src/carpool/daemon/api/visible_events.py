"""What a user sees of the event stream: entries about others' jobs say that something happened, and not what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from carpool.core import events
from carpool.daemon.api.visibility import Viewer, without_others
from carpool.daemon.config.limits import Visibility
from carpool.daemon.journal.event_log import LogEntry

#: Kinds that say nothing of any job: devices, settings, time.
ABOUT_NO_JOB = frozenset(
    kind.__name__
    for kind in (
        *(
            events.DeviceAdded,
            events.DeviceChanged,
            events.DeviceDrained,
            events.ForeignMemory,
            events.DeviceLoad,
            events.SettingsChanged,
        ),
        *(events.RestartBegan, events.RestartEnded, events.Tick),
    )
)


def visible_entry(viewer: Viewer, entry: LogEntry) -> LogEntry | None:
    """Return the entry as the viewer sees it; None: the entry is hidden from the viewer."""
    if viewer.sees is Visibility.ALL or entry.kind in ABOUT_NO_JOB:
        return entry
    data = msgspec.json.decode(entry.data)
    owner = _owner(viewer, data)
    if viewer.shows_all_of(owner):
        return msgspec.structs.replace(entry, data=msgspec.json.encode(without_others(viewer, data)))
    return msgspec.structs.replace(entry, data=b"{}") if viewer.knows(owner) else None


def _owner(viewer: Viewer, data: Mapping[str, Any]) -> int | None:
    """Return the owner of the job of an entry; None: not known, and only administrators see more of the entry."""
    if "owner" in data:
        return int(data["owner"])
    job = data.get("job", data.get("holder"))
    return None if job is None else viewer.owner(job)
