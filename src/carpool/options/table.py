"""The table of job options: each is declared here once, in the order of `carpool submit --help`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import msgspec

from carpool.options import codecs, slurm
from carpool.options.codecs import Codec
from carpool.protocol.api import SubmitRequest
from carpool.protocol.notices import EVENTS

_DEFAULTS = msgspec.structs.asdict(SubmitRequest([], "", {}))


class Changeable(Enum):
    """The stages at which `carpool update` changes an option."""

    NO = 0
    QUEUED = 1  # only of a job that has not started
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class JobOption:
    """An option of a job.

    ``name``: its key in job files and, with dashes, its name in `carpool update`; ``fields``: what it sets in a
    `SubmitRequest`; ``toml``: what a job file may say, for people, or empty; ``sbatch``: Slurm's options of the same
    meaning; ``many``: it may be given several times; ``run``: it is an option of `carpool run`, too; ``clearable``:
    `carpool update NAME=none` takes it away.
    """

    name: str
    type: Codec
    help: str = ""
    flag: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    toml: str = ""
    sbatch: Mapping[str, slurm.Translator] = field(default_factory=dict)
    changeable: Changeable = Changeable.NO
    clearable: bool = True
    many: bool = False
    run: bool = True

    @property
    def default(self) -> Any:
        """The value without the option: that of its field."""
        if self.many or self.is_flag:
            return () if self.many else False
        return _DEFAULTS[self.fields[0]] if len(self.fields) == 1 else None

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value on a command line."""
        return not self.type.word

    @property
    def nothing(self) -> tuple[Any, ...]:
        """The values of its fields in a request without the option."""
        return tuple(_DEFAULTS[name] for name in self.fields)

    @property
    def update_name(self) -> str:
        """The name of the option in `carpool update`."""
        return self.name.replace("_", "-")


def _option(name: str, type: Codec, help: str = "", **about: Any) -> JobOption:  # noqa: A002
    """Return a row, whose flag and field are called as the option where nothing else is said."""
    flag = (f"--{name.replace('_', '-')}",) if help else ()
    fields = tuple(field for field in (name, f"{name}_us") if field in _DEFAULTS)
    return JobOption(name, type, help, **{"flag": flag, "fields": fields, **about})


OPTIONS = (
    _option("shell", codecs.TEXT, "Instead of a command: a line that bash runs, as in 'a | b && c'."),
    _option(
        "name",
        codecs.TEXT,
        "Name of the job in `carpool ls`.  [default: the command]",
        toml="text",
        sbatch={"job-name": slurm.renamed("--name")},
        changeable=Changeable.ALWAYS,
        clearable=False,
    ),
    JobOption(
        "command",
        codecs.COMMAND,
        toml='a list of words, or one text that is split as a shell would: ["python", "train.py"]',
    ),
    _option(
        "iterations",
        codecs.COUNT,
        "Iterations that the job will do; used for progress, and for the order under srtf.",
        toml="a whole number, 1 or more",
        changeable=Changeable.ALWAYS,
    ),
    _option(
        "expect",
        codecs.DURATION,
        "Device time that the job will need, as in 90s or 2h; used for the order under srtf and sjf.  No limit.",
        fields=("duration_us",),
        toml='text, as in "90s" or "1h06m", or a number of seconds: device time that the job will need',
        changeable=Changeable.ALWAYS,
    ),
    _option(
        "time",
        codecs.DURATION,
        "Stop the job when it has run for this long, as in 2h.",
        toml='text, as in "2h", or a number of seconds: the job is stopped when it has run for this long',
        sbatch={"time": slurm.time_limit},
        changeable=Changeable.ALWAYS,
    ),
    _option(
        "device_time",
        codecs.DURATION,
        "Stop the job when it has used this much device time: turns, without the time between them.",
        toml="the same: the job is stopped when it has used this much device time",
        changeable=Changeable.ALWAYS,
    ),
    _option(
        "signal",
        codecs.SIGNAL,
        "Send the job a signal before the end of --time, and of --device-time, as in USR1@120 (120 s before; USR1"
        " alone: 60 s).",
        fields=("limit_signal", "limit_signal_us"),
        toml='text, as in "USR1@120": a signal, and how long before the end of time',
        sbatch={"signal": slurm.warning},
        changeable=Changeable.ALWAYS,
    ),
    _option(
        "memory",
        codecs.MEMORY,
        "Expected memory, as in 300MiB or 300MiB/1GiB (persistent/ephemeral).",
        flag=("--mem",),
        fields=("persistent_bytes", "ephemeral_bytes"),
        toml='text, as in "300MiB" or "300MiB/1GiB" (persistent/ephemeral)',
    ),
    _option(
        "weight",
        codecs.COUNT,
        "Share of turns under fair; 200 is twice as much.",
        toml="a whole number, 1 or more",
        changeable=Changeable.ALWAYS,
        clearable=False,
    ),
    _option(
        "after",
        codecs.AFTER,
        "Start after these jobs have succeeded; any:JOB after it has ended, notok:JOB if it fails.  Repeatable, as"
        " is 'ok:3 any:4' in one.  A job whose condition can never come true is refused.",
        fields=("after", "after_any", "after_notok"),
        toml="ids of jobs, or names of jobs above it in this file, with any: or notok: before one",
        sbatch={"dependency": slurm.dependency},
        changeable=Changeable.QUEUED,
        many=True,
    ),
    _option(
        "device",
        codecs.DEVICES,
        "Only on one of these devices, as in host0.  [default: any]",
        flag=("--device", "--device-id"),
        toml="a device, as in host0, or several, as in host0,host1: the job gets one of these",
        changeable=Changeable.QUEUED,
    ),
    _option(
        "exclusive",
        codecs.FLAG,
        "Give the job exclusive use of an empty device.",
        toml="true or false",
    ),
    _option(
        "service",
        codecs.FLAG,
        "Run a server of models (an engine) that `carpool serve` has not started: its turns come before jobs.",
        fields=("engine",),
        toml="true or false: a server of models, whose turns come before jobs",
    ),
    _option(
        "gpus",
        codecs.COUNT,
        "Number of devices; multi-GPU jobs get exclusive devices.  NCCL between them is experimental.",
        toml="a whole number, 1 or more: devices at once",
        sbatch={"gpus": slurm.gpus, "gpus-per-node": slurm.gpus, "gres": slurm.gpus},
    ),
    _option(
        "checkpoint",
        codecs.FLAG,
        "Let the GPU's driver suspend the job between turns: for programs that libcarpool cannot be loaded into.",
        toml="true or false: the GPU's driver suspends the job between turns",
    ),
    _option(
        "directory",
        codecs.TEXT.called("dir"),
        "Working directory of the job.  [default: the current one]",
        flag=("--chdir", "-D"),
        toml="a path, relative to this file",
        sbatch={"chdir": slurm.renamed("--chdir")},
    ),
    _option(
        "env",
        codecs.VARIABLE,
        "A variable of the job's environment, beside those of this shell; repeatable.",
        fields=(),
        sbatch={"export": slurm.export},
        many=True,
    ),
    _option(
        "env_file",
        codecs.TEXT.called("file"),
        "Variables from a file with a line NAME=VALUE for each; --env prevails; repeatable.",
        many=True,
    ),
    _option("environment", codecs.VARIABLE, toml="a table of variables"),
    _option("venv", codecs.TEXT, toml="the path of a virtual environment"),
    _option("conda", codecs.TEXT, toml="the name of a conda environment, or its path (with a slash)"),
    _option(
        "notify",
        codecs.TARGET,
        "Tell webhook:URL (JSON by POST) or exec:COMMAND (CARPOOL_EVENT and CARPOOL_JOB_ID among its variables)"
        " of the job's start and end; repeatable.",
        flag=("--notify",),
        fields=("notify",),
        toml="webhook:URL or exec:COMMAND, or a list of these, as for --notify",
        many=True,
    ),
    _option(
        "notify_on",
        codecs.NOTIFY_EVENTS,
        "Notify only of these events: start, end, failure, timeout; end means every end.  [default: all]",
        toml=f"some of {', '.join(EVENTS)}, as a text or a list",
    ),
    _option(
        "output",
        codecs.TEXT.called("file"),
        "File for the job's output, as in run-%j.out: %j is the id, %x the name, %a the index in an array or grid,"
        " %u the user, %% a %.  [default: a log that Carpool keeps]",
        flag=("--output", "-o"),
        toml="a file for the job's output, as for --output",
        sbatch={"output": slurm.renamed("--output"), "open-mode": slurm.only("truncate")},
        run=False,
    ),
    _option(
        "error",
        codecs.TEXT.called("file"),
        "File for the job's standard error.  [default: that of --output]",
        flag=("--error", "-e"),
        toml="a file for the job's standard error, as for --error",
        sbatch={"error": slurm.renamed("--error")},
        run=False,
    ),
    _option(
        "retries",
        codecs.AMOUNT,
        "Retries after a failure (out-of-memory is always retried).",
        toml="a whole number, 0 or more",
        run=False,
    ),
    _option(
        "group",
        codecs.TEXT,
        "Group whose jobs share a limit on how many run at once; `carpool limits` shows it.",
        toml="a group, whose jobs share a limit on how many run at once",
        changeable=Changeable.ALWAYS,
        run=False,
    ),
    _option(
        "hold",
        codecs.FLAG,
        "Do not start the job before `carpool release`.",
        toml="true or false: wait for `carpool release`",
        sbatch={"hold": slurm.flag("--hold")},
        run=False,
    ),
    _option(
        "begin",
        codecs.BEGIN,
        "Do not start the job before this time, as in 22:00 (tomorrow if that is past), +2h, 2026-12-31T22:00.",
        toml='text, as in "22:00" or "+2h"',
        sbatch={"begin": slurm.begin},
        changeable=Changeable.QUEUED,
        run=False,
    ),
    _option(
        "requeue",
        codecs.FLAG,
        "Start the job again after a restart of the machine; not counted as a retry.",
        toml="true or false: start again after a restart of the machine",
        sbatch={"requeue": slurm.flag("--requeue"), "no-requeue": slurm.flag()},
        run=False,
    ),
    _option(
        "array",
        codecs.ARRAY,
        "Submit a job for each index, as in 0-9 or 1,5-20:5; %3 at the end: three of them run at once.  A job has"
        " its index in CARPOOL_ARRAY_INDEX.",
        fields=(),
        sbatch={"array": slurm.array},
        run=False,
    ),
    _option(
        "param",
        codecs.PARAMETERS,
        "Submit a job for each value, which replaces {NAME} and is CARPOOL_PARAM_NAME in the job; repeatable: a"
        " job for each combination.",
        toml="a table of lists: each combination of their values is a job",
        many=True,
        run=False,
    ),
)
BY_NAME = {option.name: option for option in OPTIONS}
#: Options of a process that joins, in the order of `carpool env --help`: the same, said of several jobs.
JOINING_OPTIONS = (
    replace(BY_NAME["name"], help="Name of the jobs in `carpool ls`.  [default: the command]"),
    BY_NAME["memory"],
    replace(BY_NAME["weight"], help="Share of turns under fair."),
    replace(BY_NAME["iterations"], help="Iterations that each job will do."),
    replace(BY_NAME["expect"], help="Device time that each job will need, as in 90s or 2h."),
    BY_NAME["time"],
    replace(
        BY_NAME["device"],
        type=codecs.DEVICES.called("id"),
        help="The device; a GPU has to be named where there are several devices.  [default: any]",
    ),
    replace(BY_NAME["exclusive"], help="Give each job exclusive use of a device."),
    replace(BY_NAME["service"], help="The programs are servers of models (engines): their turns come before jobs."),
)
#: Keys of job files.
KEYS = {option.name: option for option in OPTIONS if option.toml}
#: What `carpool update` changes, by name.
UPDATES = {option.update_name: option for option in OPTIONS if option.changeable is not Changeable.NO}
#: Slurm's options that mean the same as one of these, or nothing, with the words that stand for them here.
SBATCH = {name: translate for option in OPTIONS for name, translate in option.sbatch.items()}
SBATCH |= {"nodes": slurm.only("1"), "ntasks": slurm.only("1"), "ntasks-per-node": slurm.only("1")}


def request_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request in which the options have these values; None is the default."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        option = BY_NAME[name]
        if value is not None and option.fields:
            found |= zip(option.fields, option.type.fill(value), strict=True)
    return found


def from_python(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options that a Python program gives; None stands for no option.  Raises ValueError."""
    return {name: _from_python(BY_NAME[name], value) for name, value in values.items() if value is not None}


def _from_python(option: JobOption, value: Any) -> Any:
    try:
        return option.type.toml(value)
    except ValueError as error:
        raise ValueError(f"{option.name}: {error}; allowed is {option.toml}") from None
