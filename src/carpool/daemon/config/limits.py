"""What users of one daemon may do, and how much of it: ``limits.toml`` in the daemon's home, read when it starts.

Root, and the user who runs the daemon, may do everything; the file is theirs (`prepare_home` refuses a home in which
others could write).
"""

from __future__ import annotations

import grp
from enum import StrEnum
from typing import Annotated

import msgspec

from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home


class Audience(StrEnum):
    """Who has a right."""

    ADMINS = "admins"
    EVERYONE = "everyone"


class Size(int):
    """Bytes; written as a text with a unit, such as "64MiB"."""


#: Most that makes sense for a count or a rate.
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class UserLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one daemon."""

    admin_group: str | None = (
        None  # members of this Unix group administer the daemon, too; none: root and its user only
    )
    services: Audience = Audience.ADMINS  # who may run services, whose turns come before all training
    packets_per_s: _Count = 2000  # from all jobs of one user; what comes faster for 10 s and more waits
    log_lines_per_minute: _Count = 60  # of the daemon's log that one user's mistakes may cause; the rest are counted

    @property
    def admin_gid(self) -> int | None:
        """Number of `admin_group`.  Raises KeyError if there is no such group."""
        return None if self.admin_group is None else grp.getgrnam(self.admin_group).gr_gid


def read_limits(home: Home) -> UserLimits:
    """The limits of this home; the defaults if it has no such file.  Raises StartupError for a file that is wrong."""
    try:
        limits = msgspec.toml.decode(home.limits.read_bytes(), type=UserLimits)
        _ = limits.admin_gid
    except FileNotFoundError:
        return UserLimits()
    except (OSError, KeyError, RecursionError, msgspec.DecodeError) as error:
        hint = "docs/settings.md lists the limits; put the file right, or remove it for the defaults"
        raise StartupError("bad_limits", f"{home.limits}: {_what(error)}", hint) from None
    return limits


def _what(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"admin_group: {error.args[0]}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error) or "nested too deeply"
