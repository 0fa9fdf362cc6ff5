"""Users by name, for people."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of an account; the number where there is none (any more)."""
    import pwd  # only wanted in messages

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
