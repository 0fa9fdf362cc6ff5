"""The limits that a user has after a login: limits.conf(5), read as pam_limits(8) reads it.  Standard library only."""

# ruff: noqa: PTH118, PTH208 - pathlib would cost a third of a shim's start-up time

from __future__ import annotations

import grp
import os
import pwd
import resource
from collections.abc import Iterator, Sequence
from contextlib import suppress

DIRECTORY = "/etc/security"
_KIB = 1024
#: By the name of an item: the kernel's number of the limit, and the unit of its values (None: a nice value).
_ITEMS = {
    "core": (resource.RLIMIT_CORE, _KIB),
    "data": (resource.RLIMIT_DATA, _KIB),
    "fsize": (resource.RLIMIT_FSIZE, _KIB),
    "memlock": (resource.RLIMIT_MEMLOCK, _KIB),
    "nofile": (resource.RLIMIT_NOFILE, 1),
    "rss": (resource.RLIMIT_RSS, _KIB),
    "stack": (resource.RLIMIT_STACK, _KIB),
    "cpu": (resource.RLIMIT_CPU, 60),
    "nproc": (resource.RLIMIT_NPROC, 1),
    "as": (resource.RLIMIT_AS, _KIB),
    "sigpending": (resource.RLIMIT_SIGPENDING, 1),
    "msgqueue": (resource.RLIMIT_MSGQUEUE, 1),
    "rtprio": (resource.RLIMIT_RTPRIO, 1),
    "nice": (resource.RLIMIT_NICE, None),
}
_UNLIMITED = ("-1", "unlimited", "infinity")
_OF_USER, _OF_GROUP, _OF_ALL = 0, 1, 2  # the smallest number counts

Limits = dict[int, "tuple[int, int]"]


def login_limits(uid: int, groups: Sequence[int], directory: str = DIRECTORY) -> Limits:
    """Return a user's soft and hard limits, for those limits that the files mention; other limits stay as they are."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    found: dict[tuple[int, int], tuple[int, int]] = {}  # by limit and kind (0: soft, 1: hard): rank and value
    for domain, kind, item, value in _lines(directory):
        rank = _rank(domain, name, uid, groups)
        if rank is None:
            continue
        if kind == "-" and not item:
            return {}  # this line exempts the user from all limits
        for place in {"soft": (0,), "hard": (1,), "-": (0, 1)}.get(kind, ()):
            _note(found, place, rank, item, value)
    return {number: _pair(number, found) for number in {number for number, _ in found}}


def raise_hard_limits(limits: Limits) -> None:
    """Raise this process's hard limits while it is root, so that its children can apply ``limits`` as the user."""
    for number, (_, hard) in limits.items():
        soft, most = resource.getrlimit(number)
        if _larger(hard, most):
            with suppress(OSError, ValueError):
                resource.setrlimit(number, (soft, hard))


def apply_limits(limits: Limits) -> None:
    """Set the limits of this process and its descendants, as far as its hard limits allow."""
    for number, pair in limits.items():
        most = resource.getrlimit(number)[1]
        soft, hard = (most if _larger(value, most) else value for value in pair)
        with suppress(OSError, ValueError):
            resource.setrlimit(number, (soft, hard))


def _lines(directory: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield domain, kind, item and value of each line, in order of precedence; a line of two words has no item."""
    folder = os.path.join(directory, "limits.d")
    names: list[str] = []
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if name.endswith(".conf"))
    for path in (os.path.join(directory, "limits.conf"), *(os.path.join(folder, name) for name in names)):
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.partition("#")[0].split()
                if len(words) in (2, 4):
                    domain, kind, item, value = (*words, "", "")[:4]
                    yield domain, kind.lower(), item.lower(), value.lower()


def _rank(domain: str, name: str, uid: int, groups: Sequence[int]) -> int | None:
    """Return how specific a line is to the user (smaller is closer); None if it does not apply to the user."""
    if domain == "*":
        return _OF_ALL
    if domain.startswith("@"):
        return _OF_GROUP if any(_names(domain[1:], gid, _group_name) for gid in groups) else None
    return _OF_USER if domain == name or _names(domain, uid) else None


def _names(text: str, number: int, name_of: object = None) -> bool:
    """Whether ``text`` is the name of ``number``, or a range with it: ``from:to``, ``from:``, ``:number``."""
    first, colon, last = text.partition(":")
    if not colon:
        return callable(name_of) and name_of(number) == text
    try:
        lowest = int(first) if first else int(last)
        return lowest <= number and (not last or number <= int(last))
    except ValueError:
        return False


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _note(found: dict[tuple[int, int], tuple[int, int]], place: int, rank: int, item: str, value: str) -> None:
    if item not in _ITEMS:
        return  # an item about logins, or one that is not applied to jobs
    number, unit = _ITEMS[item]
    known = found.get((number, place))
    with suppress(ValueError):
        if known is None or rank <= known[0]:
            found[number, place] = rank, _value(value, unit)


def _value(text: str, unit: int | None) -> int:
    """Parse a value.  Raises ValueError."""
    if unit is None:
        return min(40, max(0, 20 - int(text)))  # RLIMIT_NICE counts from 20 downwards (getrlimit(2))
    return resource.RLIM_INFINITY if text in _UNLIMITED else int(text) * unit


def _pair(number: int, found: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, int]:
    """Return the soft and hard value of a limit; a soft value above the hard one is lowered to it."""
    before = resource.getrlimit(number)
    soft, hard = (found[number, place][1] if (number, place) in found else before[place] for place in (0, 1))
    if number == resource.RLIMIT_NOFILE:
        soft, hard = (_most_files() if value == resource.RLIM_INFINITY else value for value in (soft, hard))
    return (hard if _larger(soft, hard) else soft), hard


def _most_files() -> int:
    """Return the kernel's maximum of open files per process."""
    with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
        return int(file.read())


def _larger(one: int, other: int) -> bool:
    return other != resource.RLIM_INFINITY and (one == resource.RLIM_INFINITY or one > other)
