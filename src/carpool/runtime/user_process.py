"""Turn a process of root into a user's, and give up what it inherited from the starter of the daemon.

docs/internals/processes.md lists all that a process inherits, and what becomes of each.  Standard library only.

Session keyrings (session-keyring(7)): their keys are available to all who inherit the keyring.

Standard library only.

The limits that a user has after a login: limits.conf(5), read as pam_limits(8) reads it.  Standard library only.
"""

# ruff: noqa: PTH118, PTH208 - pathlib would cost a third of a shim's start-up time

from __future__ import annotations

import ctypes
import errno
import grp
import os
import pwd
import resource
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN, _LINK = 1, 8  # KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_LINK
_SESSION, _USER = -3, -4  # KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING
#: Errors where no process has keys: the kernel lacks keyrings, or an inherited filter forbids the call.
_NO_KEYS = (errno.ENOSYS, errno.EPERM)
_libc = ctypes.CDLL(None, use_errno=True)


def begin_session_keyring() -> None:
    """Replace the inherited session keyring by a new, empty one for this process and its descendants.

    Raises OSError.  A keyring made by root counts against root's quota, which may be larger than a user's.
    """
    try:
        _keyctl(_JOIN)
    except OSError as error:
        if error.errno not in _NO_KEYS:
            raise


def link_user_keyring() -> None:
    """Link the user keyring into the session keyring, so that the user's keys are found as after a login."""
    with suppress(OSError):
        _keyctl(_LINK, _USER, _SESSION)


def _keyctl(operation: int, *arguments: int) -> None:
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.EOPNOTSUPP, f"session keyrings cannot be made on {os.uname().machine}")
    words = (*arguments, 0, 0, 0, 0)[:4]
    if _libc.syscall(*map(ctypes.c_long, (number, operation, *words))) < 0:
        raise OSError(ctypes.get_errno(), f"cannot make a session keyring: {os.strerror(ctypes.get_errno())}")


LOGINUID, LOGIN_DEFS = "/proc/self/loginuid", "/etc/login.defs"
UMASK = 0o022  # where /etc/login.defs has none
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_AMBIENT, _CLEAR_ALL = 47, 4  # PR_CAP_AMBIENT
_IOPRIO = {"x86_64": (251, 252), "aarch64": (31, 30)}  # ioprio_set, ioprio_get
_REALTIME, _CLASS_SHIFT, _OF_PROCESS = 1, 13, 1  # IOPRIO_CLASS_RT, IOPRIO_CLASS_SHIFT, IOPRIO_WHO_PROCESS


def become(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Become the user for good, without privileges and without resources of the user who started the daemon.

    Raises OSError if any privilege of root would remain.
    """
    begin_session_keyring()
    _log_in(uid)
    be_scheduled_as_others()
    _libc.personality(ctypes.c_ulong(0))  # with randomized addresses
    os.umask(default_umask())
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _drop_capabilities()
    link_user_keyring()


def _log_in(uid: int) -> None:
    """Have the process's actions recorded (audit) under this user, not the user who started the daemon.

    Where that has been made unchangeable, or there is no audit, everything stays as it is.
    """
    with suppress(OSError, ValueError):
        with open(LOGINUID, encoding="ascii") as file:
            if int(file.read()) == uid:
                return
        with open(LOGINUID, "w", encoding="ascii") as file:
            file.write(str(uid))


def be_scheduled_as_others() -> None:
    """Give up realtime scheduling and a negative nice value; a priority below normal stays."""
    with suppress(OSError):
        if os.sched_getscheduler(0) not in (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        if os.getpriority(os.PRIO_PROCESS, 0) < 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    for change, ask in [_IOPRIO[os.uname().machine]] if os.uname().machine in _IOPRIO else []:
        if _system_call(ask, _OF_PROCESS, 0) >> _CLASS_SHIFT == _REALTIME:
            _system_call(change, _OF_PROCESS, 0, 0)


def default_umask(path: str = LOGIN_DEFS) -> int:
    """Return the umask of logins (login.defs(5))."""
    with suppress(OSError, ValueError), open(path, encoding="utf-8", errors="replace") as file:
        for words in map(str.split, file):
            if words[:1] == ["UMASK"] and len(words) > 1:
                return int(words[1], 8) & 0o777
    return UMASK


def _drop_capabilities() -> None:
    """Drop capabilities that a change of user leaves: inheritable, ambient, and those that ``securebits`` have kept."""
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header, none = struct.pack("=II", _CAPABILITY_VERSION, 0), struct.pack("=6I", *[0] * 6)
    if _libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "cannot give up the rights of root")


def _system_call(number: int, *arguments: int) -> int:
    return int(_libc.syscall(*map(ctypes.c_long, (number, *arguments))))


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
