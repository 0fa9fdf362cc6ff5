"""A notice: a target of a job, and the message for that target."""

from __future__ import annotations

import msgspec

from carpool.protocol.notices import NotifyTarget


class NoticeBody(msgspec.Struct, frozen=True):
    """The JSON of a webhook; for a command each field but ``text`` is a variable.  Times are UTC (ISO 8601)."""

    event: str
    job: int
    name: str
    attempt: int
    user: str
    host: str
    device: str | None
    outcome: str | None
    exit_code: int | None
    signal: int | None
    submitted: str
    started: str | None
    ended: str | None
    array: int | None
    index: int | None
    text: str  # one readable line


class Notice(msgspec.Struct, frozen=True):
    """A target and the message for it; ``cwd``: where a command runs."""

    owner: int
    gid: int
    cwd: str
    target: NotifyTarget
    body: NoticeBody
