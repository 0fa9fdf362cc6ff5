"""``#SBATCH`` lines of Slurm's scripts: options of the same meaning are translated, all others refused with a hint."""

from __future__ import annotations

import getopt
import re
from collections.abc import Callable

#: Slurm's letters, and its options without a value.
_LETTERS = {"J": "job-name", "o": "output", "e": "error", "D": "chdir", "G": "gpus", "d": "dependency", "t": "time"}
_LETTERS |= {"a": "array", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "b": "begin", "H": "hold"}
_LETTERS |= {"p": "partition", "A": "account", "q": "qos", "w": "nodelist", "x": "exclude", "C": "constraint"}
_FLAGS = ("hold", "no-requeue", "requeue")
_OWN_SIZE = "there this is memory of the host; --mem of Carpool is memory of the device, and need not be given"
_HINTS = {
    "mem": _OWN_SIZE,
    "mem-per-gpu": _OWN_SIZE,
    "mem-per-cpu": _OWN_SIZE,
    "exclusive": "there this is a whole node; --exclusive of Carpool is a device that is not shared",
    "partition": "there are no partitions: --device names devices",
    "cpus-per-task": "Carpool gives devices, not processors: the job uses those that the machine has",
    "nodes": "Carpool serves one server",
    "ntasks": "Carpool starts one process: torchrun starts more of them",
    "array": "see --param",
}
_TIMES = (
    r"(?P<m>\d+)(:(?P<s>\d+))?",
    r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)",
    r"(?P<d>\d+)-(?P<h>\d+)(:(?P<m>\d+)(:(?P<s>\d+))?)?",
)
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_AFTER = {"afterok": "ok", "afterany": "any", "afternotok": "notok"}


class NotTheSame(ValueError):
    """An option that means something else here; the text says what to do instead."""


def translated(words: list[str], own: frozenset[str]) -> list[str]:
    """Options of `carpool submit` for those of one line.  ``own``: the options that `carpool submit` has.

    Raises NotTheSame, and ValueError for what Slurm would not understand either.
    """
    return [word for name, value in _options(words) for word in _translated(name, value, own)]


def _options(words: list[str]) -> list[tuple[str, str]]:
    """Names without dashes, and values; empty for options without one."""
    names = (*_TABLE, *_HINTS, *_LETTERS.values())
    known = [name if name in _FLAGS else f"{name}=" for name in dict.fromkeys(names) if name != "exclusive"]
    letters = "".join(letter if name in _FLAGS else f"{letter}:" for letter, name in _LETTERS.items())
    try:
        found, rest = getopt.getopt([_alone(word) for word in words], letters, [*known, "exclusive"])
    except getopt.GetoptError as error:
        raise NotTheSame(f"{error.msg}: Carpool has no such option of Slurm's") from None
    if rest:
        raise ValueError(f"{rest[0]!r} is no option")
    return [(_LETTERS.get(name.lstrip("-"), name.lstrip("-")), value) for name, value in found]


def _alone(word: str) -> str:
    """``--exclusive`` may have a value, which changes nothing here."""
    return "--exclusive" if word.startswith("--exclusive=") else word


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
    """There is one node and one task: nothing to say."""
    return [] if value.strip() == "1" else None


def _gpus(value: str) -> list[str]:
    kind, _, number = value.rpartition(":")
    if kind not in ("", "gpu") or not number.isdecimal():
        raise NotTheSame(f"{value!r}: write a number of GPUs; kinds of GPUs are chosen by --device")
    return ["--gpus", number]


def _time(value: str) -> list[str]:
    """Minutes, or D-HH:MM:SS and its parts.

    >>> _time("1-12:30")
    ['--time', '131400s']
    """
    found = next((match for pattern in _TIMES if (match := re.fullmatch(pattern, value))), None)
    if found is None:
        raise ValueError(f"--time: {value!r} is not a time of Slurm's, as in 90, 1:30:00 or 2-12")
    return ["--time", f"{sum(int(part or 0) * _SECONDS[unit] for unit, part in found.groupdict().items())}s"]


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
    """Carpool's jobs have the whole environment of the shell in any case."""
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
    "array": _renamed("--array"),
    "begin": _renamed("--begin"),
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
    "dependency": _dependency,
    "export": _export,
    "open-mode": _open_mode,
}
