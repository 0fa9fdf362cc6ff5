"""The keys of a job file: the values that each allows, and their conversion."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from carpool.cli.request.job_options import memory_hint
from carpool.cli.request.limits import limit_signal
from carpool.cli.request.notify import notify_events, notify_target
from carpool.cli.request.start_conditions import begin_time
from carpool.cli.request.sweep import check_name, check_values
from carpool.core.model import Engine
from carpool.protocol.notices import EVENTS, NotifyTarget
from carpool.protocol.units import LARGEST, positive_time_us

ENGINES = tuple(engine.value for engine in Engine)


class Literal(str):
    """A number with a point or an exponent, as written in the file."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Key:
    """``convert`` raises ValueError, for people, for a value that is not among those ``allowed``."""

    allowed: str
    convert: Callable[[Any], object]


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Literal):
        raise ValueError("it must be text")
    return value


def _command(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        words = tuple(_text(word) for word in value)
    else:
        try:
            words = tuple(shlex.split(_text(value)))
        except ValueError as error:
            raise ValueError(str(error).lower()) from None
    if not words or not words[0]:
        raise ValueError("there is no command")
    return words


def _whole(least: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError(f"it must be a whole number, {least} or more")
        if value > LARGEST:
            raise ValueError("it is too large")
        return value

    return convert


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("it must be true or false")
    return value


def _engine(value: Any) -> str:
    if value not in ENGINES:
        raise ValueError(f"it must be {' or '.join(ENGINES)}")
    return str(value)


def _after(value: Any) -> tuple[int | str, ...]:
    items = value if isinstance(value, list) else [value]
    if not all(type(item) is int or (isinstance(item, str) and not isinstance(item, Literal)) for item in items):
        raise ValueError("it must be ids of jobs, or names of jobs above it in this file, as in any:NAME")
    return tuple(items)


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of texts")
    for name, content in value.items():
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not a name for a variable")
        if not isinstance(content, str | int) or isinstance(content, bool):
            raise ValueError(f"{name} must be text")
    return {name: str(content) for name, content in value.items()}


def _parameters(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of lists")
    return {check_name(name): check_values(name, _values(name, values)) for name, values in value.items()}


def _values(name: str, values: Any) -> list[str]:
    items = values if isinstance(values, list) else [values]
    if not all(isinstance(item, str | int) for item in items):
        raise ValueError(f"the parameter {name} must be a list of texts or numbers")
    return [("true" if item else "false") if isinstance(item, bool) else str(item) for item in items]


def _memory(value: Any) -> tuple[int, int | None]:
    return memory_hint(_quantity(value))


def _begin(value: Any) -> int:
    return begin_time(_text(value))


def _signal(value: Any) -> tuple[int, int]:
    return limit_signal(_text(value))


def _targets(value: Any) -> tuple[NotifyTarget, ...]:
    return tuple(notify_target(_text(each)) for each in (value if isinstance(value, list) else [value]))


def _events(value: Any) -> tuple[str, ...]:
    return notify_events(",".join(map(_text, value)) if isinstance(value, list) else _text(value))


def _time(value: Any) -> int:
    return positive_time_us(_quantity(value))


def _quantity(value: Any) -> str:
    """Return a text, or a bare number as it would be written on the command line."""
    return str(value) if type(value) is int or isinstance(value, Literal) else _text(value)


KEYS: Mapping[str, Key] = {
    "name": Key("text", _text),
    "command": Key('a list of words, or one text that is split as a shell would: ["python", "train.py"]', _command),
    "directory": Key("a path, relative to this file", _text),
    "environment": Key("a table of variables", _environment),
    "venv": Key("the path of a virtual environment", _text),
    "conda": Key("the name of a conda environment, or its path (with a slash)", _text),
    "memory": Key('text, as in "300MiB" or "300MiB/1GiB" (persistent/ephemeral)', _memory),
    "iterations": Key("a whole number, 1 or more", _whole(1)),
    "expect": Key('text, as in "90s" or "1h06m", or a number of seconds: device time that the job will need', _time),
    "time": Key('text, as in "2h", or a number of seconds: the job is stopped when it has run for this long', _time),
    "device_time": Key("the same: the job is stopped when it has used this much device time", _time),
    "signal": Key('text, as in "USR1@120": a signal, and how long before the end of time', _signal),
    "weight": Key("a whole number, 1 or more", _whole(1)),
    "retries": Key("a whole number, 0 or more", _whole(0)),
    "requeue": Key("true or false: start again after a restart of the machine", _truth),
    "after": Key("ids of jobs, or names of jobs above it in this file, with any: or notok: before one", _after),
    "begin": Key('text, as in "22:00" or "+2h"', _begin),
    "hold": Key("true or false: wait for `carpool release`", _truth),
    "group": Key("a group, whose jobs share a limit on how many run at once", _text),
    "device": Key("a device, as in host0, or several, as in host0,host1: the job gets one of these", _text),
    "gpus": Key("a whole number, 1 or more: devices at once", _whole(1)),
    "exclusive": Key("true or false", _truth),
    "engine": Key(f"{' or '.join(ENGINES)}", _engine),
    "output": Key("a file for the job's output, as for --output", _text),
    "error": Key("a file for the job's standard error, as for --error", _text),
    "notify": Key("webhook:URL or exec:COMMAND, or a list of these, as for --notify", _targets),
    "notify_on": Key(f"some of {', '.join(EVENTS)}, as a text or a list", _events),
    "param": Key("a table of lists: each combination of their values is a job", _parameters),
}
