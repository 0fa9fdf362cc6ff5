"""Engines: servers of language models as `carpool serve` starts them, their file, and messages about them.

An engine is any program that serves a model by HTTP: vLLM, SGLang, llama.cpp, `transformers serve`.  A table of the
file describes one; nothing in it is for a particular engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from carpool.core.spelling import did_you_mean
from carpool.protocol.models import DEFAULT_PRIORITY, LARGEST_FIGURE, LONGEST_REASON, check_name
from carpool.protocol.paths import expanded
from carpool.protocol.units import positive_time_us

PORT: Final = "{port}"
GPU: Final = "{gpu}"
OWN_GPU: Final = "0"  # a job sees no GPU but its own, whichever that is, as number 0
NEVER: Final = "never"
#: States of an engine: no process, a process that does not answer yet, one that answers, one that is ended.
OFF: Final = "off"
STARTING: Final = "starting"
READY: Final = "ready"
ENDING: Final = "ending"
EngineStateName = Literal["off", "starting", "ready", "ending"]
Wish = Literal["start", "stop", "sleep", "make_room"]
WISHES: tuple[Wish, ...] = ("start", "stop", "sleep")  # of users
MAKE_ROOM: Final = "make_room"  # the daemon's: end, unless there are requests, because the host store is full
WeightsFormat = Literal["gguf", "safetensors"]
#: For each format of weights, the option of an engine that loads them, in place of mapping their file.
LOADING_OPTIONS: Mapping[WeightsFormat, str] = {
    "gguf": "llama.cpp: --load-mode none, or --no-mmap in older versions",
    "safetensors": "transformers: a --dtype other than the file's",
}
MOST_ENGINES = 1000  # of a front, and models of all its engines
MOST_IN_FLIGHT = 64
LONGEST_MODEL = 200  # letters of a model's name
Figure = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_FIGURE)]
ModelName = Annotated[str, msgspec.Meta(max_length=LONGEST_MODEL)]
_DAY_US = 86_400_000_000


class EngineSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file: an engine's command, the names of its models, and the limits of its life."""

    cmd: str | list[str]  # a text is split as a shell would, and never given to one; {port}: its port, {gpu}: its GPU
    models: list[str] = []  # names that clients use; none: the engine's own name
    upstream: str | None = msgspec.field(default=None, name="as")  # the name that the engine knows the model by
    health: str = "/health"  # a path that answers 200 once the engine is ready
    start_timeout: str | int = "10m"
    ttl: str | int = "15m"  # without a request for so long its process ends; "never"
    pin: bool = False  # its process never ends for want of requests, nor does its memory leave its device for others
    preload: bool = False  # start it with the server, not with the first request
    keys: str | None = None  # a file of keys: who has one may use the engine; none: who may use the server
    device: str | None = None  # as in `carpool submit --device`
    priority: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = DEFAULT_PRIORITY  # among services; larger is first
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = MOST_IN_FLIGHT  # more requests are refused
    env: dict[str, str] = {}  # variables in addition to the server's own; {port} and {gpu} as in the command
    cwd: str | None = None  # none: the directory of the file

    @property
    def start_us(self) -> int:
        """How long it may take until the engine is ready."""
        return _time_us(self.start_timeout)

    @property
    def ttl_us(self) -> int | None:
        """How long its process lives without requests; None: for ever."""
        return None if self.pin or self.ttl == NEVER else _time_us(self.ttl)

    def argv(self, port: int) -> list[str]:
        """Return the command for an engine that listens on ``port``."""
        return [word.replace(PORT, str(port)) for word in self.words]

    @property
    def words(self) -> list[str]:
        """The words of the command, without the port."""
        import shlex  # only in processes that start engines

        words = shlex.split(self.cmd) if isinstance(self.cmd, str) else self.cmd
        return [word.replace(GPU, OWN_GPU) for word in words]

    def variables(self, port: int) -> dict[str, str]:
        """Return the variables for an engine that listens on ``port``."""
        return {name: value.replace(GPU, OWN_GPU).replace(PORT, str(port)) for name, value in self.env.items()}

    def port_of(self, argv: Sequence[str]) -> int | None:
        """Return the port of an engine with this command; None: it is another command."""
        for mine, theirs in zip(self.words, argv, strict=False):
            begin, found, end = mine.partition(PORT)
            port = theirs[len(begin) : len(theirs) - len(end)] if found and PORT not in end else ""
            if port.isascii() and port.isdigit() and len(port) < 6 and self.argv(int(port)) == [*argv]:
                return int(port)
        return None


class EngineState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A front's report of one engine.  Times and rates: of the last minute; null: there was none."""

    state: EngineStateName
    reason: Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)] = ""  # why its last start failed, or it has ended
    models: Annotated[list[ModelName], msgspec.Meta(max_length=MOST_ENGINES)] = []
    job: int | None = None  # the job that is its process
    starts: Figure = 0  # of its process, by this front
    in_flight: Figure = 0
    first_token_us: Figure | None = None  # median
    tokens_per_s: Annotated[float, msgspec.Meta(ge=0, le=LARGEST_FIGURE)] = 0.0
    pinned: bool = False
    url: Annotated[str, msgspec.Meta(max_length=LONGEST_MODEL)] = ""  # the front's
    mapped_bytes: dict[WeightsFormat, Figure] = {}  # of files of weights, by its processes


class EngineReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/engines: the engines that a front serves, by name; each report replaces the one before."""

    engines: Annotated[dict[str, EngineState], msgspec.Meta(max_length=MOST_ENGINES)]


class EngineInfo(msgspec.Struct, frozen=True):
    """One row of GET /v1/engines."""

    name: str
    owner: int
    report: EngineState
    device: str | None = None
    memory_bytes: int = 0  # the most that it has had
    moved_out: bool = False  # its memory is not on the device


class EngineList(msgspec.Struct, frozen=True):
    """GET /v1/engines: the engines that fronts serve now, by name."""

    engines: list[EngineInfo]


class EngineWishes(msgspec.Struct, frozen=True):
    """The answer to a front's report: what users, and the daemon, have asked of its engines since the last one."""

    engines: dict[str, Wish] = {}


def read_engines(path: Path) -> dict[str, EngineSpec]:
    """Read and check a file of engines.  Raises ValueError with a text for users; FileNotFoundError."""
    import tomllib  # only in processes that read such a file

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    specs = {name: _engine(path, name, table) for name, table in tables.items()}
    _check_models(path, specs)
    return specs


def model_names(name: str, spec: EngineSpec) -> Sequence[str]:
    """Return the names of models that an engine answers to."""
    return spec.models or [name]


def _engine(path: Path, name: str, table: object) -> EngineSpec:
    try:
        check_name(name)
        if not isinstance(table, dict):
            raise ValueError(f"{name} is not a table: an engine is written as [name], then its keys")
        _check_keys(table)
        spec = msgspec.convert(table, EngineSpec)
        _check_values(spec)
        keys = None if spec.keys is None else _place("keys", path, spec.keys)
        return msgspec.structs.replace(spec, cwd=_place("cwd", path, spec.cwd or ""), keys=keys)
    except ValueError as error:
        raise ValueError(f"{path}: engine {name}: {_plainly(error)}") from None


def _place(key: str, path: Path, text: str) -> str:
    """Return a path that is written in the file, as seen from its directory.  Raises ValueError."""
    try:
        return str(path.absolute().parent / expanded(text))
    except FileNotFoundError as error:
        raise ValueError(f"{key}: {text!r}: {error.strerror}") from None


def _check_keys(table: Mapping[str, Any]) -> None:
    known = [field.encode_name for field in msgspec.structs.fields(EngineSpec)]
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {key!r}; {did_you_mean(key, known)}known: {', '.join(known)}")
    if "cmd" not in table:
        raise ValueError(f'it has no cmd, the command that starts it, as in cmd = "llama-server --port {PORT}"')


def _check_values(spec: EngineSpec) -> None:
    """Raise ValueError for a value that no engine can have."""
    _about("cmd", lambda: _check_command(spec))
    _about("start_timeout", lambda: spec.start_us)
    _about("ttl", lambda: None if spec.ttl == NEVER else _time_us(spec.ttl))
    for model in spec.models:
        if not model or len(model) > LONGEST_MODEL or not model.isprintable():
            raise ValueError(f"models: {model[:LONGEST_MODEL]!r} is not a name of a model")
    if not spec.health.startswith("/"):
        raise ValueError(f"health: {spec.health!r} is not a path: it begins with /")
    if any("\0" in text or "=" in name for name, text in spec.env.items()):
        raise ValueError("env: names of variables have no =, and values no zero byte")


def _check_command(spec: EngineSpec) -> None:
    words = spec.argv(1)
    if not words or not words[0]:
        raise ValueError("there is no command")
    if not any(PORT in text for text in (*spec.words, *spec.env.values())):
        raise ValueError(f"it does not say where to listen: write {PORT} where the engine takes its port")


def _check_models(path: Path, specs: Mapping[str, EngineSpec]) -> None:
    """Raise ValueError if two engines answer to one name, or if there are more than the daemon hears of."""
    owners: dict[str, str] = {}
    for name, spec in specs.items():
        for model in model_names(name, spec):
            if (other := owners.setdefault(model, name)) != name:
                raise ValueError(f"{path}: engines {other} and {name} both answer to the model {model!r}")
    if len(owners) > MOST_ENGINES:
        raise ValueError(f"{path} has {len(owners)} models, more than {MOST_ENGINES}")


def _about(key: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _time_us(value: str | int) -> int:
    """Return microseconds.  Raises ValueError."""
    us = positive_time_us(str(value))
    if us > 365 * _DAY_US:
        raise ValueError(f"{value!r} is more than a year")
    return us


def _plainly(error: ValueError) -> str:
    """Return the text of an error; msgspec names the place of a wrong value as a path at its end."""
    text, _, place = str(error).partition(" - at `$.")
    return f"{place.rstrip('`')}: {text[:1].lower()}{text[1:]}" if place else text
