"""Permissions and limits of the users of one daemon: ``limits.toml`` in the daemon's home, read when it starts.

Root, and the user who runs the daemon, may do everything; the file is theirs (`carpool.daemon.home` refuses a home in
which others could write).
"""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from carpool.core.model import GIB, MIB, Micros
from carpool.core.spelling import did_you_mean
from carpool.core.state.settings_check import GROUP, NAMED_LIMITS
from carpool.daemon.system.errors import StartupError
from carpool.protocol.api import StartSetting
from carpool.protocol.display import user_name
from carpool.protocol.paths import Home, read_regular
from carpool.protocol.units import exact_time, format_duration, format_size, parse_size, parse_time_us

SMALLEST_LOG = 64 << 10  # bytes
SMALLEST_MEMORY = 64 * MIB
SMALLEST_TURNS = MIB
DAY_US: Micros = 86_400_000_000
SHORTEST_KEEP_US: Micros = 3_600_000_000
LONGEST_PAUSE_US: Micros = 300_000_000
LEAST_SIZE, LARGEST_SIZE = 4096, 64 * 1024 * GIB
#: Most that makes sense for a count or a rate.
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
#: A program with a framework has some tens of threads.
_Processes = Annotated[int, msgspec.Meta(ge=16, le=1_000_000)]
_LEAST_SIZES = {"job_log": SMALLEST_LOG, "memory": SMALLEST_MEMORY, "keep_turns": SMALLEST_TURNS}
LARGEST = 10**15  # microseconds: thirty years; keeps sums inside 64 bits
MOST = 1000  # of all kinds: each change of a setting is written with all of them
LARGEST_UID = (1 << 32) - 2
_GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OF_USERS = " and ".join(f"{kind}.USER" for kind in NAMED_LIMITS if kind != GROUP)


class Audience(StrEnum):
    """The users who have a permission."""

    ADMINS = "admins"
    EVERYONE = "everyone"


class Visibility(StrEnum):
    """The part of others' jobs that users see; `carpool.daemon.api.visibility` says which fields these are."""

    ALL = "all"
    NAMES = "names"
    OWN = "own"


class Size(int):
    """Bytes; written as a text with a unit, such as "64MiB"."""


class Time(int):
    """Microseconds; written as a text with a unit, such as "90d", or as a number of seconds."""


class UserLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one daemon."""

    admin_group: str | None = (
        None  # members of this Unix group administer the daemon, too; none: root and its user only
    )
    services: Audience = Audience.ADMINS  # who may run services, whose turns come before all training
    visibility: Visibility = Visibility.NAMES  # what users see of others' jobs: `all`, `names` or `own`, see below
    job_log: Size = Size(GIB)  # log of one attempt, at least "64KiB"; the oldest part of a longer log is deleted
    processes: _Processes | None = None  # processes and threads of one job, at least 16; none: any number
    memory: Size | None = None  # host memory for all jobs of one user, at least "64MiB"; none: no limit
    core_dumps: bool = True  # whether jobs may leave core dumps; memory of tensors is in none
    jobs: _Count = 10_000  # waiting and running jobs of one user
    submission_size: Size = Size(2 * MIB)  # size of one job or model: command, environment and the rest
    submissions_size: Size = Size(
        64 * MIB
    )  # size of all waiting and running jobs of one user; the same again for models
    submissions_at_once: _Count = 10_000  # jobs that one user may submit in a burst
    submissions_per_s: _Count = 10  # rate at which one user may submit after a burst
    retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 100  # most retries that a job may be submitted with
    retry_pause: Time = Time(1_000_000)  # pause before the first retry, at most "300s"; doubles up to that
    connections: _Count = 256  # connections of one user: to the API, and of shims that have not registered
    packets_per_s: _Count = 4000  # packets from all jobs of one user; a faster stream waits after 10 s
    log_lines_per_minute: _Count = 60  # lines of the daemon's log for one user's mistakes; the rest are counted
    keep_for: Time = Time(90 * DAY_US)  # age at which ended jobs, logs and events are removed, at least "1h"
    keep_jobs: _Count = 10_000  # most ended jobs of one user; the oldest are removed first
    keep_events: Annotated[int, msgspec.Meta(ge=1000, le=1_000_000_000)] = (
        2_000_000  # in the journal, at least 1000, without turns; the user with the most loses the oldest
    )
    keep_turns: Size = Size(64 * MIB)  # size of the history of turns in the journal, for all users, at least "1MiB"
    check_predictions: bool = True  # whether the simulator's predictions are checked once a day (`simulate --check`)

    @property
    def retry_pause_us(self) -> Micros:
        """The first retry pause as a plain number, which JSON can carry."""
        return int(self.retry_pause)

    @property
    def admin_gid(self) -> int | None:
        """Number of `admin_group`.  Raises KeyError if there is no such group."""
        return None if self.admin_group is None else grp.getgrnam(self.admin_group).gr_gid


def read_limits(home: Home) -> UserLimits:
    """Read the limits of this home; defaults if it has no such file.  Raises StartupError for an invalid file."""
    try:
        table = msgspec.toml.decode(read_regular(home.limits))
        for name, value in table.items():  # in the order of the file: the first that is wrong is named
            _check_limit(name, value)
        return _converted(table)
    except FileNotFoundError:
        return UserLimits()
    except (OSError, KeyError, ValueError, RecursionError, msgspec.DecodeError) as error:
        hint = "docs/settings.md lists the limits; put the file right, or remove it for the defaults"
        raise StartupError("bad_limits", f"{home.limits}: {_what(error)}", hint) from None


def limits_table(limits: UserLimits) -> list[StartSetting]:
    """Return all limits as users write them, with where each comes from."""
    values = [(field, getattr(limits, field.name)) for field in msgspec.structs.fields(UserLimits)]
    return [start_setting(field.name, written(value), value != field.default, "limits.toml") for field, value in values]


def start_setting(name: str, value: str, given: bool, source: str) -> StartSetting:
    """Return a value that comes from ``source`` if it was given, else from Carpool's defaults."""
    return StartSetting(name, value, source if given else "default")


def written(value: object) -> str:
    """Return the value of a limit as in ``limits.toml``, without quotes; none: no limit."""
    if isinstance(value, Size):
        return format_size(value)
    if isinstance(value, Time):
        return exact_time(value) if value % DAY_US or not value else f"{value // DAY_US}d"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _quantity(kind: type, value: object) -> Size | Time:
    """Parse a time or a size.  Raises ValueError, which the decoder passes on with the name of the limit."""
    return Time(parse_time_us(str(value))) if kind is Time else _size(str(value))


def _size(text: str) -> Size:
    size = Size(parse_size(text))
    if not LEAST_SIZE <= size <= LARGEST_SIZE:
        raise ValueError(f"{text!r} is not between {format_size(LEAST_SIZE)} and {format_size(LARGEST_SIZE)}")
    return size


def _converted(table: dict[str, object]) -> UserLimits:
    return msgspec.convert(table, UserLimits, dec_hook=_quantity)


def _check_limit(name: str, value: object) -> None:
    """Check one limit by itself.  Raises ValueError and KeyError, for `_what`."""
    if name not in UserLimits.__struct_fields__:
        raise ValueError(f"unknown field `{name}`; {did_you_mean(name, UserLimits.__struct_fields__)}".rstrip("; "))
    if isinstance(value, dict):
        raise ValueError(f"{name}: limits are written as NAME = VALUE, not as tables")
    if name in _CHOICES and value not in (words := [str(each) for each in _CHOICES[name]]):
        raise ValueError(f"Invalid value {value!r} - at `$.{name}`; it must be one of {', '.join(words)}")
    limits = _converted({name: value})
    _ = limits.admin_gid
    if name in _LEAST_SIZES:
        _check_least(name, getattr(limits, name), _LEAST_SIZES[name])
    _check_times(limits)


_CHOICES: dict[str, type[StrEnum]] = {"services": Audience, "visibility": Visibility}


def _check_least(name: str, size: Size, least: int) -> None:
    if size < least:
        raise ValueError(f"{name}: {format_size(size)} is less than {format_size(least)}")


def _check_times(limits: UserLimits) -> None:
    if limits.retry_pause > LONGEST_PAUSE_US:
        raise ValueError(f"retry_pause: {exact_time(limits.retry_pause)} is more than {exact_time(LONGEST_PAUSE_US)}")
    if limits.keep_for < SHORTEST_KEEP_US:
        raise ValueError(f"keep_for: {exact_time(limits.keep_for)} is less than {format_duration(SHORTEST_KEEP_US)}")


def _what(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"admin_group: {error.args[0]}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error) or "nested too deeply"


def named_limits_table(limits: Mapping[str, int]) -> dict[str, int | None]:
    """Return the limits with names of users in the place of their uids."""
    return {_shown(name): most for name, most in sorted(limits.items())}


def split_named_limits(
    present: Mapping[str, int], values: Mapping[str, int | None]
) -> tuple[dict[str, int], dict[str, int | None]]:
    """Return the named limits as ``values`` change them (None removes one), and the rest of ``values``.

    Raises ValueError, for people.
    """
    named: dict[str, int | None] = {}
    for name, most in values.items():
        if "." in name:
            key = check_named_limit(name, most)
            if key in named:
                raise ValueError(f"{name} is given twice, under two names of one user")
            named[key] = most
    merged = {name: most for name, most in {**present, **named}.items() if most is not None}
    if len(merged) > MOST:
        raise ValueError(f"there would be {len(merged)} limits with a name; {MOST} are allowed")
    return merged, {name: value for name, value in values.items() if "." not in name}


def check_named_limit(name: str, most: int | None) -> str:
    """Return a limit's name with the uid of its user; None removes the limit.  Raises ValueError, for people."""
    key = _key(name)
    if most is not None and not 0 <= most <= LARGEST:
        raise ValueError(f"{name}={most} is not between 0 and {LARGEST}")
    return key


def groups(limits: Mapping[str, int]) -> list[str]:
    """Return the names of the groups that have a limit."""
    return sorted(name.partition(".")[2] for name in limits if name.startswith(f"{GROUP}."))


def _key(name: str) -> str:
    kind, _, whose = name.partition(".")
    if kind not in NAMED_LIMITS:
        raise ValueError(f"there is no limit {name!r}; limits with a name are {GROUP}.NAME and {_OF_USERS}")
    if kind == GROUP:
        if not _GROUP_NAME.fullmatch(whose):
            raise ValueError(f"{whose!r} is not a name of a group: letters, digits, - and _, 64 at most")
        return name
    return f"{kind}.{_uid(whose)}"


def _uid(user: str) -> int:
    if user.isascii() and user.isdecimal() and len(user) <= len(str(LARGEST_UID)) and int(user) <= LARGEST_UID:
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {user!r} on this machine") from None


def _shown(name: str) -> str:
    kind, _, whose = name.partition(".")
    return name if kind == GROUP else f"{kind}.{user_name(int(whose))}"
