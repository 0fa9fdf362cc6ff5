"""Limits with a name behind a dot, as people write them: ``group.vision``, ``user_running.anna``."""

from __future__ import annotations

import pwd
import re
from collections.abc import Mapping

from carpool.core.state.settings_check import GROUP, NAMED_LIMITS
from carpool.protocol.display import user_name

LARGEST = 10**15  # microseconds: thirty years; keeps sums inside 64 bits
MOST = 1000  # of all kinds: each change of a setting is written with all of them
_GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def named_limits_table(limits: Mapping[str, int]) -> dict[str, int | None]:
    """Return the limits with names of users in the place of their uids."""
    return {_shown(name): most for name, most in sorted(limits.items())}


def split_named_limits(
    present: Mapping[str, int], values: Mapping[str, int | None]
) -> tuple[dict[str, int], dict[str, int | None]]:
    """Return the named limits as ``values`` change them (None removes one), and the rest of ``values``.

    Raises ValueError, for people.
    """
    named = {_key(name): most for name, most in values.items() if "." in name}
    for name, most in named.items():
        if most is not None and not 0 <= most <= LARGEST:
            raise ValueError(f"{name}={most} is not between 0 and {LARGEST}")
    merged = {name: most for name, most in {**present, **named}.items() if most is not None}
    if len(merged) > MOST:
        raise ValueError(f"there would be {len(merged)} limits with a name; {MOST} are allowed")
    return merged, {name: value for name, value in values.items() if "." not in name}


def groups(limits: Mapping[str, int]) -> list[str]:
    """Return the names of the groups that have a limit."""
    return sorted(name.partition(".")[2] for name in limits if name.startswith(f"{GROUP}."))


def _key(name: str) -> str:
    kind, _, whose = name.partition(".")
    if kind not in NAMED_LIMITS:
        raise ValueError(f"there is no limit {name!r}; limits with a name are {GROUP}.NAME and {_OF_USERS}")
    if kind == GROUP:
        if not _GROUP_NAME.fullmatch(whose):
            raise ValueError(f"{whose!r} is no name of a group: letters, digits, - and _, 64 at most")
        return name
    return f"{kind}.{_uid(whose)}"


_OF_USERS = " and ".join(f"{kind}.USER" for kind in NAMED_LIMITS if kind != GROUP)


def _uid(user: str) -> int:
    if user.isascii() and user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {user!r} on this machine") from None


def _shown(name: str) -> str:
    kind, _, whose = name.partition(".")
    return name if kind == GROUP else f"{kind}.{user_name(int(whose))}"
