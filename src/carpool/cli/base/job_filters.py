"""The options --all, --user, --state and --name, which select jobs, and further select among those that were named."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from carpool.cli.base.job_states import is_in
from carpool.cli.base.job_words import is_called
from carpool.protocol.api import JobInfo

EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Filters:
    """``users``: uids; empty: the caller's own jobs; None: jobs of all users."""

    everything: bool
    users: tuple[int, ...] | None
    states: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def narrow(self) -> bool:
        """Whether there are jobs that these options leave out."""
        return self.users != () or bool(self.states or self.names)

    def take(self, job: JobInfo) -> bool:
        """Whether the job has one of the states and one of the names."""
        return (not self.states or is_in(job, self.states)) and (
            not self.names or any(is_called(job, name) for name in self.names)
        )

    def select(self, jobs: Iterable[JobInfo]) -> list[JobInfo]:
        """Return the jobs that match all options."""
        return [job for job in jobs if self.owned(job) and self.take(job)]

    def owned(self, job: JobInfo) -> bool:
        """Whether the job is of one of the users."""
        return self.users is None or job.owner in (self.users or (os.getuid(),))

    def words(self) -> str:
        """The options as they would be typed, for messages."""
        options = ["--all"] if self.everything else []
        options += [f"--state {','.join(self.states)}"] if self.states else []
        options += [f"--name {name}" for name in self.names]
        return " ".join(options)


def users(texts: Sequence[str]) -> tuple[int, ...] | None:
    """Parse users, given by name or uid with commas between; None: all users.  Raises ValueError, for people."""
    names = [name for text in texts for name in text.split(",")]
    return None if EVERYBODY in names else tuple(dict.fromkeys(map(_uid, names)))


def _uid(name: str) -> int:
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"this machine has no user {name!r}: write a name, a uid, or '*' for everybody") from None
