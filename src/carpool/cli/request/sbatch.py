"""``#SBATCH`` lines of Slurm's scripts: options of the same meaning are translated, all others refused with a hint."""

from __future__ import annotations

import getopt
import re
from collections.abc import Callable
from datetime import datetime

from carpool.cli.request.array_range import array_of
from carpool.cli.request.limits import limit_signal

#: Slurm's letters, and its options without a value.
_LETTERS = {"J": "job-name", "o": "output", "e": "error", "D": "chdir", "G": "gpus", "d": "dependency", "t": "time"}
_LETTERS |= {"a": "array", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "b": "begin", "H": "hold"}
_LETTERS |= {"p": "partition", "A": "account", "q": "qos", "w": "nodelist", "x": "exclude", "C": "constraint"}
_FLAGS = ("hold", "no-requeue", "requeue")
#: Slurm's options whose value may be left out, and does not change the hint here.
_VALUE_OPTIONAL = ("exclusive", "nice")
_OWN_SIZE = "there this is memory of the host; --mem of Carpool is memory of the device, and need not be given"
_MAIL = "Carpool sends no mail: --notify webhook:URL or exec:COMMAND, as in --notify 'exec:mail -s done me@example.org'"
_HINTS = {
    "mem": _OWN_SIZE,
    "mem-per-gpu": _OWN_SIZE,
    "mem-per-cpu": _OWN_SIZE,
    "exclusive": "there this is a whole node; --exclusive of Carpool is a device that is not shared",
    "partition": "there are no partitions: --device names devices",
    "cpus-per-task": "Carpool gives devices, not processors: the job uses those that the machine has",
    "nodes": "Carpool serves one server",
    "ntasks": "Carpool starts one process: torchrun starts more of them",
    "nice": "--weight of Carpool is a job's share of turns, as in --weight 50 for half of the usual share",
    "mail-type": _MAIL,
    "mail-user": _MAIL,
}
_TIMES = (
    r"(?P<m>\d+)(:(?P<s>\d+))?",
    r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)",
    r"(?P<d>\d+)-(?P<h>\d+)(:(?P<m>\d+)(:(?P<s>\d+))?)?",
)
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
#: Slurm's words for a delay, and their seconds.
_NOW = re.compile(r"now(?:\+(\d+)(second|minute|hour|day|week|)s?)?")
_DELAYS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604_800}
_AFTER = {"afterok": "ok", "afterany": "any", "afternotok": "notok"}


class NotTheSame(ValueError):
    """An option that means something else in Carpool; the text says what to do instead."""


def translated(words: list[str], own: frozenset[str]) -> list[str]:
    """Translate one line to options of `carpool submit`.  ``own``: the options that `carpool submit` has.

    Raises NotTheSame, and ValueError for a line that Slurm would not understand either.
    """
    made, refused = [], []
    for name, value in _options(words):
        try:
            made += _translated(name, value, own)
        except NotTheSame as error:
            refused.append(str(error))
    if refused:
        raise NotTheSame("; ".join(refused))
    return made


def _options(words: list[str]) -> list[tuple[str, str]]:
    """Split a line into names without dashes and values; a value is empty for an option without one."""
    names = dict.fromkeys((*_TABLE, *_HINTS, *_LETTERS.values()))
    known = [name if name in (*_FLAGS, *_VALUE_OPTIONAL) else f"{name}=" for name in names]
    letters = "".join(letter if name in _FLAGS else f"{letter}:" for letter, name in _LETTERS.items())
    try:
        found, rest = getopt.getopt([_alone(word) for word in words], letters, known)
    except getopt.GetoptError as error:
        raise NotTheSame(f"{error.msg}: Carpool has no such option of Slurm's") from None
    if rest:
        raise ValueError(f"{rest[0]!r} is no option")
    return [(_LETTERS.get(name.lstrip("-"), name.lstrip("-")), value) for name, value in found]


def _alone(word: str) -> str:
    """Remove the value of an option whose value may be left out."""
    name = word.partition("=")[0]
    return name if name.removeprefix("--") in _VALUE_OPTIONAL else word


def _translated(name: str, value: str, own: frozenset[str]) -> list[str]:
    made = _TABLE[name](value) if name in _TABLE else None
    if made is None or not {word for word in made if word.startswith("--")} <= own:
        raise NotTheSame(f"--{name}: {_HINTS.get(name, 'it means something else here, or nothing')}")
    return made


def _renamed(option: str) -> Callable[[str], list[str]]:
    return lambda value: [option, value]


def _flag(*words: str) -> Callable[[str], list[str]]:
    return lambda _value: [*words]


def _one(value: str) -> list[str] | None:
    """Translate a count of nodes or tasks: 1 needs no option, other counts are not translated (None)."""
    return [] if value.strip() == "1" else None


def _gpus(value: str) -> list[str]:
    kind, _, number = value.rpartition(":")
    if kind not in ("", "gpu") or not number.isdecimal():
        raise NotTheSame(f"{value!r}: write a number of GPUs; kinds of GPUs are chosen by --device")
    return ["--gpus", number]


def _time(value: str) -> list[str]:
    """Translate minutes, or D-HH:MM:SS and its parts.

    >>> _time("1-12:30")
    ['--time', '131400s']
    """
    found = next((match for pattern in _TIMES if (match := re.fullmatch(pattern, value))), None)
    if found is None:
        raise ValueError(f"--time: {value!r} is not a time of Slurm's, as in 90, 1:30:00 or 2-12")
    seconds = sum(int(part or 0) * _SECONDS[unit] for unit, part in found.groupdict().items())
    if not seconds:
        raise NotTheSame(f"--time {value}: there this is no limit, which is here a job without --time")
    return ["--time", f"{seconds}s"]


def _begin(value: str) -> list[str]:
    """Translate a delay; a time of day and a date stay as they are.

    >>> _begin("now+2hours"), _begin("2026-12-01T10:00"), _begin("now")
    (['--begin', '+7200s'], ['--begin', '2026-12-01T10:00'], [])
    """
    if delay := _NOW.fullmatch(value):
        return ["--begin", f"+{int(delay[1]) * _DELAYS[delay[2]]}s"] if delay[1] else []
    if not _is_moment(value):
        raise NotTheSame(f"--begin {value}: now+2hours, 22:00 and 2026-12-01T10:00 are understood")
    return ["--begin", value]


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text if "-" in text else f"2026-01-01T{text}")
    except ValueError:
        return False
    return "-" in text or ":" in text


def _signal(value: str) -> list[str]:
    """Translate a signal in Slurm's form, without a letter for its receiver."""
    scope, colon, _ = value.rpartition(":")
    if colon:
        text = "there this is for the batch shell alone, or about reservations; here the signal is for the whole job"
        raise NotTheSame(f"--signal {value}: {scope}: {text}")
    return _checked("--signal", value, limit_signal)


def _array(value: str) -> list[str]:
    return _checked("--array", value, array_of)


def _checked(option: str, value: str, parse: Callable[[str], object]) -> list[str]:
    """Return an option whose values are written alike.  Raises NotTheSame with the text of an error of ``parse``."""
    try:
        parse(value)
    except ValueError as error:
        raise NotTheSame(f"{option} {value}: {error}") from None
    return [option, value]


def _dependency(value: str) -> list[str]:
    made: list[str] = []
    for part in value.split(","):
        kind, *jobs = part.split(":")
        if kind not in _AFTER or not jobs or not all(job.isdecimal() for job in jobs):
            raise NotTheSame(f"--dependency {part}: {', '.join(_AFTER)} with ids are understood")
        prefix = "" if kind == "afterok" else f"{_AFTER[kind]}:"
        made += ["--after", prefix + ",".join(jobs)]
    return made


def _export(value: str) -> list[str]:
    """Translate variables behind ALL: Carpool's jobs have the whole environment of the shell in any case."""
    all_of_it, *rest = value.split(",")
    if all_of_it != "ALL":
        raise NotTheSame(f"--export {value}: jobs get the whole environment; ALL, or ALL,NAME=VALUE is understood")
    return [word for pair in rest for word in ("--env", pair)]


def _open_mode(value: str) -> list[str] | None:
    return [] if value == "truncate" else None


_TABLE: dict[str, Callable[[str], list[str] | None]] = {
    "job-name": _renamed("--name"),
    "output": _renamed("--output"),
    "error": _renamed("--error"),
    "chdir": _renamed("--chdir"),
    "array": _array,
    "begin": _begin,
    "hold": _flag("--hold"),
    "requeue": _flag("--requeue"),
    "no-requeue": _flag(),
    "gpus": _gpus,
    "gpus-per-node": _gpus,
    "gres": _gpus,
    "nodes": _one,
    "ntasks": _one,
    "ntasks-per-node": _one,
    "time": _time,
    "signal": _signal,
    "dependency": _dependency,
    "export": _export,
    "open-mode": _open_mode,
}
