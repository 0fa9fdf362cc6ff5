"""The notation of job options' values: in a shell, in a job file, and in a request.

All parsers raise ValueError, with a text for people.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from carpool.core.model import Dependency
from carpool.core.spelling import did_you_mean
from carpool.options.arrays import array_of, check_name, check_values, parameter
from carpool.protocol.notices import EVENTS, NotifyTarget, check_target
from carpool.protocol.units import LARGEST, parse_size, parse_time_us, positive_time_us

Dependencies = tuple[Dependency, tuple[int, ...]]
#: The default of Slurm.
USUAL_WARNING_US = 60_000_000
_BEGIN_FORMS = "write for example +2h, 22:00 or 2026-01-31T22:00"


class Literal(str):
    """A number with a point or an exponent, as written in a job file."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Codec:
    """The values of an option.  ``word``: stands for a value in help; ``least``: bound of each number in a request.

    ``text`` parses what a shell gives, ``toml`` what a job file or a Python program gives; ``fill`` gives the values of
    a request's fields.
    """

    word: str
    text: Callable[[str], Any]
    toml: Callable[[Any], Any]
    least: int | None = None
    fill: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)

    def called(self, word: str) -> Codec:
        """Return the same codec with another word for a value."""
        return replace(self, word=word)


def plain_text(value: Any) -> str:
    """Return a text of a job file."""
    if not isinstance(value, str) or isinstance(value, Literal):
        raise ValueError("it must be text")
    return value


def quantity(value: Any) -> str:
    """Return a text, or a bare number as it would be written on the command line."""
    return str(value) if type(value) is int or isinstance(value, Literal) else plain_text(value)


def whole_number(text: str, least: int) -> int:
    """Parse a whole number from ``least`` on."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if value < least:
        raise ValueError(f"{value} is too small: it must be {least} or more")
    return value


def _whole(least: int) -> Codec:
    def from_toml(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError(f"it must be a whole number, {least} or more")
        if value > LARGEST:
            raise ValueError("it is too large")
        return value

    return Codec("n", lambda text: whole_number(text, least), from_toml, least)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("it must be true or false")
    return value


def memory_hint(text: str) -> tuple[int, int | None]:
    """Parse ``300MiB`` or ``300MiB/1GiB``: persistent, or persistent and ephemeral."""
    persistent, slash, ephemeral = text.partition("/")
    return parse_size(persistent), parse_size(ephemeral) if slash else None


def limit_signal(text: str) -> tuple[int, int]:
    """Parse ``USR1@120``: a signal's number, and how long before the limit, in microseconds (``USR1``: a minute).

    >>> limit_signal("USR1@120"), limit_signal("SIGINT@2m"), limit_signal("USR2")
    ((10, 120000000), (2, 120000000), (12, 60000000))
    """
    name, at, before = text.partition("@")
    return _signal_number(name), parse_time_us(before) if at else USUAL_WARNING_US


def _signal_number(name: str) -> int:
    try:
        return int(signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name.removeprefix('SIG')}"])
    except (KeyError, ValueError):
        raise ValueError(f"{name!r} is not a signal: write for example USR1@120 (120 s before the limit)") from None


def begin_time(text: str, now: datetime | None = None) -> int:
    """Parse ``+2h``, ``22:00`` (tomorrow if that is past today) or a future date, to microseconds of the wall clock.

    A number alone is refused: elsewhere it means seconds, here it could be an hour.
    """
    if text.startswith("+"):
        return time.time_ns() // 1000 + parse_time_us(text[1:])
    now = datetime.now().astimezone() if now is None else now
    try:
        if text.isdecimal():
            raise ValueError
        moment = datetime.fromisoformat(f"{now.date()}T{text}" if "-" not in text else text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time to begin: {_BEGIN_FORMS}") from None
    if "-" not in text and moment.astimezone() <= now:
        moment += timedelta(days=1)
    if moment.astimezone() < now:
        raise ValueError(f"{text!r} is past: {_BEGIN_FORMS}, or leave it out to begin at once")
    return int(moment.timestamp()) * 1_000_000


def dependency(text: str) -> tuple[Dependency, str]:
    """Split ``any:3``, or ``3``, which means ``ok:3``, into kind and text."""
    kind, colon, rest = text.partition(":")
    if not colon:
        return Dependency.OK, text
    if kind not in list(Dependency):
        raise ValueError(f"{kind!r} is not a way to end: write ok:3 (succeeds), any:3 (ends) or notok:3 (fails)")
    return Dependency(kind), rest


def _after(value: Any) -> tuple[int | str, ...]:
    items = value if isinstance(value, list) else [value]
    if not all(type(item) is int or (isinstance(item, str) and not isinstance(item, Literal)) for item in items):
        raise ValueError("it must be ids of jobs, or names of jobs above it in this file, as in any:NAME")
    return tuple(items)


def by_kind(given: Sequence[Dependencies]) -> tuple[list[int], ...]:
    """Return the jobs that have to end in each of the ways of `Dependency`, each job once."""
    return tuple(
        sorted({number for kind, numbers in given if kind is wanted for number in numbers}) for wanted in Dependency
    )


def _devices(text: str) -> str:
    """Check the names of devices, and return each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"{text!r}: a name is missing; write for example host0 or host0,host1")
    return ",".join(dict.fromkeys(names))


def notify_target(text: str) -> NotifyTarget:
    """Parse ``webhook:URL`` or ``exec:COMMAND``, whose words are split as by a shell; no shell runs the command.

    >>> notify_target("exec:mail -s 'job done' me").command
    ['mail', '-s', 'job done', 'me']
    """
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("webhook", "exec"):
        raise ValueError(f"{text!r} is not a target: write webhook:URL or exec:COMMAND")
    words = shlex.split(rest) if kind == "exec" else []
    if kind == "exec" and not words:
        raise ValueError("exec: has no command that can be run")
    target = NotifyTarget(list(EVENTS), webhook=rest if kind == "webhook" else "", command=words)
    check_target(target)
    return target


def notify_events(text: str) -> tuple[str, ...]:
    """Parse events, as in ``end`` or ``start,failure``."""
    events = tuple(dict.fromkeys(text.split(",")))
    for event in events:
        if event not in EVENTS:
            raise ValueError(f"{event!r} is not an event; {did_you_mean(event, EVENTS)}known: {', '.join(EVENTS)}")
    return events


def _targets(value: Any) -> tuple[NotifyTarget, ...]:
    return tuple(notify_target(plain_text(each)) for each in (value if isinstance(value, list) else [value]))


def _events(value: Any) -> tuple[str, ...]:
    return notify_events(",".join(map(plain_text, value)) if isinstance(value, list) else plain_text(value))


def variable(text: str) -> tuple[str, str]:
    """Parse one ``NAME=VALUE``.

    >>> variable("LR=0.1")
    ('LR', '0.1')
    """
    name, equals, value = text.partition("=")
    if not equals or not name or name != name.strip():
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of texts")
    for name, content in value.items():
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not a name for a variable")
        if not isinstance(content, str | int) or isinstance(content, bool):
            raise ValueError(f"{name} must be text")
    return {name: str(content) for name, content in value.items()}


def _command(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        words = tuple(plain_text(word) for word in value)
    else:
        try:
            words = tuple(shlex.split(plain_text(value)))
        except ValueError as error:
            raise ValueError(str(error).lower()) from None
    if not words or not words[0]:
        raise ValueError("there is no command")
    return words


def _parameters(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of lists")
    return {check_name(name): check_values(name, _values(name, values)) for name, values in value.items()}


def _values(name: str, values: Any) -> list[str]:
    items = values if isinstance(values, list) else [values]
    if not all(isinstance(item, str | int) for item in items):
        raise ValueError(f"the parameter {name} must be a list of texts or numbers")
    return [("true" if item else "false") if isinstance(item, bool) else str(item) for item in items]


def _pair(value: tuple[Any, Any]) -> tuple[Any, ...]:
    return value


TEXT = Codec("text", str, plain_text)
FLAG = Codec("", str, _truth)
COUNT, AMOUNT = _whole(1), _whole(0)
DURATION = Codec("time", positive_time_us, lambda value: positive_time_us(quantity(value)), 1)
MEMORY = Codec("p[/e]", memory_hint, lambda value: memory_hint(quantity(value)), 0, _pair)
SIGNAL = Codec("name[@time]", limit_signal, lambda value: limit_signal(plain_text(value)), 0, _pair)
BEGIN = Codec("time", begin_time, lambda value: begin_time(plain_text(value)), 0)
#: Only the command line knows what the words mean that it is given for jobs: see `carpool.cli.request.awaited_jobs`.
AFTER = Codec("[how:]job[,job]", dependency, _after, fill=by_kind)
DEVICES = Codec("id[,id]", _devices, lambda value: _devices(plain_text(value)))
TARGET = Codec("target", notify_target, _targets)
NOTIFY_EVENTS = Codec("event[,event]", notify_events, _events)
VARIABLE = Codec("name=value", variable, _environment)
COMMAND = Codec("command", _command, _command)
ARRAY = Codec("indices[%n]", array_of, plain_text)
PARAMETERS = Codec("name=v[,v]", parameter, _parameters)
