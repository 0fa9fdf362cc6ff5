"""Views of others' jobs and of the event stream, as a user may see them: one function for each kind of answer.

`Visibility.NAMES` shows numbers, names, owners, states, places, sizes and times, and hides everything that may carry
text of a job or of its command.  `Visibility.OWN` hides that there are other jobs; sums over a device stay.  Fields
stay in the answer, empty or null.  Events about others' jobs say that something happened, and not what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from carpool.core import events
from carpool.core.model import JobId
from carpool.daemon.config.limits import Visibility
from carpool.daemon.journal.events import LogEntry
from carpool.protocol.api import DeviceInfo, JobInfo, LaneInfo, ReasonInfo

_NAMED = re.compile(r"\bjob (\d+)\b")
#: Fields that are lists of jobs.
_LISTS = frozenset({"jobs", "warming"})
#: Kinds that say nothing of any job: devices, settings, time.
_ABOUT_NO_JOB = (
    *(events.DeviceAdded, events.DeviceChanged, events.DeviceDrained, events.ForeignMemory, events.DeviceLoad),
    *(events.SettingsChanged, events.RestartBegan, events.RestartEnded, events.Tick),
)
ABOUT_NO_JOB = frozenset(kind.__name__ for kind in _ABOUT_NO_JOB)
HIDDEN_FAULT = "it has failed; an administrator of the daemon sees how"
LONGEST_NUMBER = 19  # digits of a job's number


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user who looks.  ``owner`` returns the uid of a job's owner; None: the job is not known."""

    uid: int
    sees: Visibility
    owner: Callable[[JobId], int | None]

    def shows_all_of(self, owner: int | None) -> bool:
        """Whether the viewer sees everything of a job of this owner."""
        return self.sees is Visibility.ALL or owner == self.uid

    def knows(self, owner: int | None) -> bool:
        """Whether the viewer may know of a job of this owner."""
        return self.sees is not Visibility.OWN or owner == self.uid

    def known(self, jobs: list[JobId]) -> list[JobId]:
        """Return the jobs of the list that the viewer may know of."""
        return [job for job in jobs if self.knows(self.owner(job))]


def visible_job(viewer: Viewer, info: JobInfo) -> JobInfo:
    """Return a job that the viewer knows of, without what is hidden from the viewer."""
    if viewer.sees is Visibility.ALL:
        return info
    if viewer.shows_all_of(info.owner):
        reason = info.reason and ReasonInfo(info.reason.code, without_others(viewer, info.reason.text))
        return msgspec.structs.replace(info, reason=reason)
    return msgspec.structs.replace(
        info,
        command=[],
        cwd="",
        reason=info.reason and ReasonInfo(info.reason.code, ""),
        output="",
        error="",
        notify=[],
        alone=None,
        immovable=None,
        unmanaged=None,
        launcher="",
        request="",
        attempts=[msgspec.structs.replace(attempt, text="") for attempt in info.attempts],
    )


def visible_placement(viewer: Viewer, owner: int, made: dict[str, Any]) -> dict[str, Any]:
    """Return how a job of this owner was placed; ``made``: a `carpool.core.commands.Placement` read from JSON."""
    found: dict[str, Any] = without_others(viewer, made)
    return found if viewer.shows_all_of(owner) else _without_texts(found)


def _without_texts(placement: dict[str, Any]) -> dict[str, Any]:
    rows = [{name: _code_only(value) for name, value in row.items()} for row in placement["rows"]]
    return placement | {"rows": rows}


def _code_only(value: object) -> object:
    """Return a reason without its text, and any other value as it is."""
    return value | {"text": ""} if isinstance(value, dict) and "text" in value else value


def visible_device(viewer: Viewer, info: DeviceInfo) -> DeviceInfo:
    """Return a device as the viewer sees it; its figures are sums over all jobs in any case."""
    if viewer.sees is not Visibility.OWN:
        return info
    processes = info.telemetry.processes
    if processes is not None:
        processes = [each for each in processes if not each.job or viewer.knows(viewer.owner(each.job))]
    return msgspec.structs.replace(
        info,
        lanes=[lane for lane in info.lanes if _is_theirs(viewer, lane)],
        jobs=viewer.known(info.jobs),
        queue=viewer.known(info.queue),
        alone=next(iter(viewer.known([] if info.alone is None else [info.alone])), None),
        telemetry=msgspec.structs.replace(info.telemetry, processes=processes),
    )


def _is_theirs(viewer: Viewer, lane: LaneInfo) -> bool:
    """Whether the viewer may see a lane; one without jobs, just opened or about to be closed, is not shown."""
    return bool(lane.jobs) and viewer.knows(lane.owner)


def visible_fault(viewer: Viewer, fault: str | None) -> str | None:
    """Return a policy's fault as the viewer may see it: what a policy answered may name any job."""
    return HIDDEN_FAULT if fault is not None and viewer.sees is Visibility.OWN else fault


def without_others(viewer: Viewer, value: Any) -> Any:
    """Return a value read from JSON, without the numbers of jobs that the viewer may not know of."""
    if viewer.sees is not Visibility.OWN:
        return value
    if isinstance(value, str):
        return _NAMED.sub(lambda found: _mention(viewer, found), value)
    if isinstance(value, list):
        return [without_others(viewer, each) for each in value]
    if isinstance(value, dict):
        return {name: _field(viewer, name, each) for name, each in value.items()}
    return value


def _field(viewer: Viewer, name: str, value: Any) -> Any:
    return viewer.known(value) if name in _LISTS else without_others(viewer, value)


def _mention(viewer: Viewer, found: re.Match[str]) -> str:
    number = found[1]
    unknown = len(number) > LONGEST_NUMBER or not viewer.knows(viewer.owner(int(number)))
    return "another user's job" if unknown else found[0]


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
