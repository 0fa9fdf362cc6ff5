"""``#SBATCH`` lines of Slurm's scripts: options of the same meaning are translated, all others refused with a hint."""

from __future__ import annotations

import getopt

from carpool.options.slurm import NotTheSame
from carpool.options.table import SBATCH

#: Slurm's letters, and its options without a value.
_LETTERS = {"J": "job-name", "o": "output", "e": "error", "D": "chdir", "G": "gpus", "d": "dependency", "t": "time"}
_LETTERS |= {"a": "array", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "b": "begin", "H": "hold"}
_LETTERS |= {"p": "partition", "A": "account", "q": "qos", "w": "nodelist", "x": "exclude", "C": "constraint"}
_FLAGS = ("hold", "no-requeue", "requeue")
#: Slurm's options whose value may be left out, and does not change the hint here.
_VALUE_OPTIONAL = ("exclusive", "nice")
_OWN_SIZE = "in Slurm this is memory of the host; Carpool's --mem is memory of the device, and is optional"
_MAIL = "Carpool sends no mail: --notify webhook:URL or exec:COMMAND, as in --notify 'exec:mail -s done me@example.org'"
_HINTS = {
    "mem": _OWN_SIZE,
    "mem-per-gpu": _OWN_SIZE,
    "mem-per-cpu": _OWN_SIZE,
    "exclusive": "in Slurm this is a whole node; Carpool's --exclusive is a device that is not shared",
    "partition": "there are no partitions: --device names devices",
    "cpus-per-task": "Carpool gives devices, not processors: the job uses those that the machine has",
    "nodes": "Carpool serves one server",
    "ntasks": "Carpool starts one process: torchrun starts more of them",
    "nice": "Carpool's --weight is a job's share of turns, as in --weight 50 for half of the usual share",
    "mail-type": _MAIL,
    "mail-user": _MAIL,
}


def translated(words: list[str]) -> list[str]:
    """Translate one line to options of `carpool submit`.

    Raises NotTheSame, and ValueError for a line that Slurm would not understand either.
    """
    made, refused = [], []
    for name, value in _options(words):
        try:
            made += _translated(name, value)
        except NotTheSame as error:
            refused.append(str(error))
    if refused:
        raise NotTheSame("; ".join(refused))
    return made


def _options(words: list[str]) -> list[tuple[str, str]]:
    """Split a line into names without dashes and values; a value is empty for an option without one."""
    names = dict.fromkeys((*SBATCH, *_HINTS, *_LETTERS.values()))
    known = [name if name in (*_FLAGS, *_VALUE_OPTIONAL) else f"{name}=" for name in names]
    letters = "".join(letter if name in _FLAGS else f"{letter}:" for letter, name in _LETTERS.items())
    try:
        found, rest = getopt.getopt([_alone(word) for word in words], letters, known)
    except getopt.GetoptError as error:
        raise NotTheSame(f"{error.msg}: Carpool has no such option of Slurm's") from None
    if rest:
        raise ValueError(f"{rest[0]!r} is not an option")
    return [(_LETTERS.get(name.lstrip("-"), name.lstrip("-")), value) for name, value in found]


def _alone(word: str) -> str:
    """Remove the value of an option whose value may be left out."""
    name = word.partition("=")[0]
    return name if name.removeprefix("--") in _VALUE_OPTIONAL else word


def _translated(name: str, value: str) -> list[str]:
    made = SBATCH[name](value) if name in SBATCH else None
    if made is None:
        raise NotTheSame(f"--{name}: {_HINTS.get(name, 'Carpool has no equivalent')}")
    return made
