"""Names of users, for messages."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Return the name of an account; the number if there is no such account."""
    import pwd  # only needed in messages

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
