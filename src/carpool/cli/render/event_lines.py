"""An event of the journal as one line for people: when, about what, and what happened in words."""

from __future__ import annotations

import time

import msgspec

from carpool.cli.render.event_words import WORDS, Fields
from carpool.protocol.api import EventInfo
from carpool.protocol.display import escaped

#: Measurements and the passing of time: kinds that say nothing about what became of a job.
TELEMETRY = frozenset({"Sampled", "DeviceLoad", "ForeignMemory", "HostMeasured", "PaceKnown", "UseKnown", "Tick"})
#: Events of lanes, also where the daemon withholds the lane's number.
OF_LANES = frozenset({"OpenLane", "ResizeLane", "CloseLane"})
SUBJECT = 8  # cells


def event_line(event: EventInfo, now_us: int) -> str:
    """Return the line of an event, escaped.  ``now_us``: the present, to name the day of an event of another day."""
    return escaped(f"{moment(event.time_us, now_us)}  {subject(event):<{SUBJECT}}  {happened(event)}")


def moment(us: int, now_us: int) -> str:
    """Return local time to the millisecond, with the day if that differs from the day of ``now_us``."""
    then, now = time.localtime(us // 1_000_000), time.localtime(now_us // 1_000_000)
    day = "" if then[:3] == now[:3] else time.strftime("%m-%d ", then)
    return f"{day}{time.strftime('%H:%M:%S', then)}.{us // 1000 % 1000:03}"


def subject(event: EventInfo) -> str:
    """Return the subject of an event: a job, a lane, a device, or the daemon."""
    if event.job is not None:
        return f"job {event.job}"
    if "lane" in event.data:
        return f"lane {event.data['lane']}"
    if event.kind in OF_LANES:
        return "a lane"
    device = event.data.get("device")
    return str(device["id"] if isinstance(device, dict) else device or "daemon")


def happened(event: EventInfo) -> str:
    """Say what happened; where fields are hidden, or the kind is unknown, return the kind and the known fields."""
    words = WORDS.get(event.kind)
    try:
        if isinstance(words, str):
            return Fields().vformat(words, (), event.data)
        if words is not None and event.data:
            return words(event.data)
    except (KeyError, TypeError, AttributeError):
        pass  # fields are hidden, or of another version
    known = {name: value for name, value in event.data.items() if name != "job" and value is not None}
    return " ".join([event.kind, *(f"{name}={_value(value)}" for name, value in known.items())])


def _value(value: object) -> str:
    plain = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if plain else msgspec.json.encode(value).decode()
