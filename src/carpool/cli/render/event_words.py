"""An event of the journal as one line for people: when, about what, and what happened in words."""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carpool.cli.render.formatting import signal_name
from carpool.protocol.api import EventInfo
from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration, format_size, format_time_us

Data = Mapping[str, Any]
#: Measurements and the passing of time: kinds that say nothing about what became of a job.
TELEMETRY = frozenset({"Sampled", "DeviceLoad", "ForeignMemory", "HostMeasured", "PaceKnown", "UseKnown", "Tick"})
#: Events of lanes, also where the daemon withholds the lane's number.
OF_LANES = frozenset({"OpenLane", "ResizeLane", "CloseLane"})
SUBJECT = 8  # cells
CAUSES = {
    "boundary": "at the end of an iteration",
    "early": "before the end of an iteration, where little has to be saved",
    "forced": "in the middle of an iteration",
    "exit": "because its process ended",
}


def _submitted(data: Data) -> str:
    spec = data["spec"]
    name = f" as {spec['name']}" if spec.get("name") else ""
    after = f", after {', '.join(map(str, spec['after']))}" if spec.get("after") else ""
    ago = f", {format_duration(data['waited_us'])} ago" if data.get("waited_us") else ""
    return f"submitted{name}{after}{ago}"


def _exited(data: Data) -> str:
    if data.get("out_of_memory"):
        return f"the process ended, out of memory: {data['out_of_memory']}"
    note = f" ({data['note']})" if data.get("note") else ""
    return f"the process ended{_code(data)}{note}"


def _code(data: Data) -> str:
    if data.get("signal") is not None:
        return f" by {signal_name(data['signal'])}"
    return f" with exit code {data['code']}" if data.get("code") is not None else ""


def _ended(data: Data) -> str:
    reason, outcome = data.get("reason"), data["outcome"].replace("_", " ")
    return f"{outcome}: {reason['text'] or reason['code']}" if reason else f"{outcome}{_code(data)}"


def _retry(data: Data) -> str:
    return (
        f"attempt {data['attempt'] - 1} failed ({data['past']['text']}); attempt {data['attempt']} waits for its start"
    )


def _wants_turn(data: Data) -> str:
    return "wants to compute at once: a signal waits" if data.get("urgent") else "wants to compute"


def _asks_for_memory(data: Data) -> str:
    optional = ", but goes on without it" if data.get("optional") else ""
    return f"asks for {format_size(data['total'])} of {data['memory_class']} memory in all{optional}"


def _detached(data: Data) -> str:
    return f"its process has left the device{'; alone: ' + data['alone'] if data.get('alone') else ''}"


def _traits(data: Data) -> str:
    alone = f"needs exclusive use of its device: {data['alone']}" if data.get("alone") else ""
    pinned = f"its memory stays on the device: {data['immovable']}" if data.get("immovable") else ""
    return "; ".join(filter(None, (alone, pinned))) or "shares its device, and its memory can be moved"


def _adopted(data: Data) -> str:
    turn = ", computing" if data.get("holds_turn") else ""
    return f"found {data['phase']} on {data['device']} after the daemon's restart{turn}"


def _load(data: Data) -> str:
    load = data.get("load")
    if load is None:
        return f"has stopped reporting{': ' + data['why'] if data.get('why') else ''}"
    return f"computed {load['active_ppm'] / 10_000:.0f} % of the last 30 seconds"


def _device_changed(data: Data) -> str:
    quantum = data.get("quantum_us")
    quantum_text = "as the settings say" if quantum is None else format_time_us(quantum)
    reserve = f", {format_size(data['reserve'])} kept for other programs" if data.get("reserve") else ""
    return f"quantum {quantum_text}, oversubscription {data['oversubscribe']}{reserve}"


def _by(done: str, undone: str) -> Callable[[Data], str]:
    """Word an event of an action of a user on a job; without a user, the event takes the action back."""
    return lambda data: undone if data.get("by") is None else f"{done} by {data['by']}"


def _drained(data: Data) -> str:
    return f"gets no new jobs: {data['why']}" if data.get("why") else "gets new jobs again"


def _successor(data: Data) -> str:
    if data.get("successor") is None:
        return f"no job waits for the turn of job {data['holder']}"
    return f"job {data['successor']} computes after job {data['holder']}"


def _starts(data: Data) -> str:
    further = f" and {', '.join(data['further'])}" if data.get("further") else ""
    return f"starts on {data['device']}{further}, lane {data['lane']}"


def _yield(data: Data) -> str:
    return f"must hand over its turn {'at once' if data.get('forced') else 'at its next iteration'}"


def _pause(data: Data) -> str:
    return f"must pause for a service {'at once' if data.get('forced') else 'at its next iteration'}"


def _host(data: Data) -> str:
    return f"{format_size(max(0, data['free']))} of the machine's memory are left for jobs"


def _busy(data: Data) -> str:
    return "has requests" if data["busy"] else "has no more requests"


def _served(data: Data) -> str:
    return "is served by a front" if data["served"] else "is served by no front any more"


#: Sentences by kind, with the fields of the event; ``:size`` and the like say how a field is written.
WORDS: dict[str, str | Callable[[Data], str]] = {
    # events: what the daemon was told
    "DeviceAdded": "was added, with {device[capacity]:size}",
    "DeviceChanged": _device_changed,
    "DeviceDrained": _drained,
    "ForeignMemory": "{size:size} of memory are in use by other programs",
    "DeviceLoad": _load,
    "HostMeasured": _host,
    "PaceKnown": "earlier measurement: {iterations} iterations of {kind} took {total_us:time}",
    "UseKnown": "earlier use: uid {owner} has used {used_us:time}",
    "WeightsFound": "weights of a model were found: {size:size}",
    "SettingsChanged": "policy {settings[policy]}, placement {settings[placement]}, and other settings",
    "Submitted": _submitted,
    "CancelRequested": "will be cancelled",
    "HoldChanged": _by("held", "released"),
    "PauseChanged": _by("paused", "resumed"),
    "JobChanged": "its submission was changed",
    "RequeueRequested": "waits for its next attempt: requeued by {by}",
    "ProcessStarted": "the process runs",
    "StartFailed": "the process could not be started: {text}",
    "ProcessExited": _exited,
    "Attached": "has loaded its framework",
    "Detached": _detached,
    "TurnWanted": _wants_turn,
    "ServiceBusy": _busy,
    "EngineServed": _served,
    "TurnPaused": "is paused",
    "TurnReleased": "stopped computing {cause:cause}",
    "TurnPassed": "handed its turn to job {to} {cause:cause}",
    "MemoryRequested": _asks_for_memory,
    "RequestWithdrawn": "no longer asks for {memory_class} memory",
    "MemoryReturned": "released {memory_class} memory, {total:size} are left",
    "Preempted": "has released its devices",
    "Offloaded": "its memory is in the host store now",
    "OffloadFailed": "its memory could not be moved to the host store: {text}",
    "Sampled": "{usage[iterations]} iterations, {usage[device_us]:time} of turn time",
    "TraitsSeen": _traits,
    "Adopted": _adopted,
    "RestartBegan": "the daemon has started and is recovering running jobs",
    "RestartEnded": "the daemon resumes scheduling",
    "PolicyTimedOut": "the {sort} did not answer in time",
    "Tick": "a timer was due",
    # commands: what the daemon decided
    "StartJob": _starts,
    "TimeOut": "is stopped: {text}",
    "AllocateDevices": "gets exclusive use of {devices:names}",
    "PreemptJob": "must release its devices",
    "SignalJob": "gets {signal:signal}",
    "WarnJob": "is warned of its time limit by {signal:signal}",
    "WarnOfDeviceTime": "is warned of its limit of device time by {signal:signal}",
    "OpenLane": "opened on {device} with {size:size}",
    "ResizeLane": "resized to {size:size}",
    "CloseLane": "closed",
    "MoveJob": "moves to lane {lane}",
    "GrantMemory": "may use {memory[persistent]:size} of persistent and {memory[ephemeral]:size} of ephemeral memory",
    "DenyMemory": "gets no more {memory_class} memory: {reason[text]}",
    "GrantTurn": "computes in lane {lane}",
    "DenyTurn": "gets no turn: {reason[text]}",
    "PlaceWeights": "weights of a model get {size:size} of {device}",
    "DropWeights": "weights of a model are removed: their memory is needed",
    "PauseTurn": _pause,
    "NameSuccessor": _successor,
    "RequestYield": _yield,
    "WatchIdle": "loses its turn once its device has been idle for {grace_us:time}",
    "WithdrawYield": "may keep its turn: no job waits",
    "Offload": "its memory moves to the host store",
    "PinStore": "{size:size} of the host store are pinned for it",
    "StopEngine": "is to end, having no requests: the host store has no room",
    "DropStore": "its room in the host store is released",
    "RetryJob": _retry,
    "EndJob": _ended,
}
FORMATS: dict[str, Callable[[Any], str]] = {
    "size": format_size,
    "time": format_time_us,
    "signal": signal_name,
    "names": ", ".join,
    "cause": lambda cause: CAUSES.get(cause, cause),
}


class Fields(string.Formatter):
    """`str.format` with the formats above."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a field of an event in one of `FORMATS`, or as it is."""
        return FORMATS[format_spec](value) if format_spec else str(value)


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
