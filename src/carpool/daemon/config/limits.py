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
from carpool.protocol.units import parse_size

SMALLEST_LOG = 64 << 10  # bytes


class Audience(StrEnum):
    """Who has a right."""

    ADMINS = "admins"
    EVERYONE = "everyone"


class Visibility(StrEnum):
    """What users see of the jobs of others; `carpool.daemon.api.visibility` says which fields these are."""

    ALL = "all"
    NAMES = "names"
    OWN = "own"


class UserLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one daemon."""

    admin_group: str | None = (
        None  # members of this Unix group administer the daemon, too; none: root and its user only
    )
    services: Audience = Audience.ADMINS  # who may run services, whose turns come before all training
    visibility: Visibility = Visibility.NAMES  # what users see of others' jobs: `all`, `names` or `own`, see below
    job_log: str = "1GiB"  # size of the log of one attempt, at least 64KiB; of a longer one the oldest part is deleted
    keep_days: Annotated[int, msgspec.Meta(ge=1)] = (
        90  # ended jobs, their logs and their events are removed after so long
    )
    keep_jobs: Annotated[int, msgspec.Meta(ge=1)] = 20_000  # most ended jobs; of more the oldest are removed
    keep_bytes: str = "20GiB"  # size of the logs of all ended jobs; of more the oldest jobs are removed

    @property
    def admin_gid(self) -> int | None:
        """Number of `admin_group`.  Raises KeyError if there is no such group."""
        return None if self.admin_group is None else grp.getgrnam(self.admin_group).gr_gid

    @property
    def job_log_bytes(self) -> int:
        """Bytes of `job_log`.  Raises ValueError."""
        size = parse_size(self.job_log)
        if size < SMALLEST_LOG:
            raise ValueError(f"job_log: {self.job_log} is less than 64KiB")
        return size

    @property
    def keep_bytes_size(self) -> int:
        """Bytes of `keep_bytes`.  Raises ValueError."""
        return parse_size(self.keep_bytes)


def read_limits(home: Home) -> UserLimits:
    """The limits of this home; the defaults if it has no such file.  Raises StartupError for a file that is wrong."""
    try:
        limits = msgspec.toml.decode(home.limits.read_bytes(), type=UserLimits)
        _ = limits.admin_gid, limits.job_log_bytes, limits.keep_bytes_size
    except FileNotFoundError:
        return UserLimits()
    except (OSError, KeyError, ValueError, RecursionError, msgspec.DecodeError) as error:
        hint = "docs/settings.md lists the limits; put the file right, or remove it for the defaults"
        raise StartupError("bad_limits", f"{home.limits}: {_what(error)}", hint) from None
    return limits


def _what(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"admin_group: {error.args[0]}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error) or "nested too deeply"
